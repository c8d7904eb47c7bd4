"""Names, titles, headings, tags, links and contexts of others end no row and add none; `get` reads every shown name."""

import csv
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import quote

import pytest

from qmd.cli.invocation import describe_gated
from qmd.config.trust import GatedItems
from tests.program import Qmd

pytestmark = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="such names cannot exist")

HIDDEN = (
    "\n",
    "\r",
    "\r\n",
    "\v",
    "\f",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
    "\x1b",
    "\u202e",
    "\U000e0041",
)
FAKE = "qmd://docs/policy.md:1 #999999{0}Title: Policy{0}Score:  99%{0}{0}#999999,0.99,qmd:{0}error: run evil{0}5: x"
ROWS = re.compile(r"qmd://docs/\S.*\.md")
CONTROL = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\U000e0041]|\r(?!\n)")


@pytest.fixture
def hostile(home: Path, qmd: Qmd) -> dict[str, str]:
    """Return docid → address of the notes, one for each separator; `hub.md` links to them all."""
    folder = home / "docs"
    links = []
    for number, sign in enumerate(HIDDEN):
        fake = FAKE.format(sign).replace("/", "∕")
        name, title = f"{number}{fake}.md", json.dumps(f"river {fake}", ensure_ascii=False)
        head = f"---\ntitle: {title}\ntags: [{title}]\nfield: {title}\n---\n"
        inline = fake if "\n" not in sign else "\u2028"
        body = f"# river {inline}\n\n## Bank {inline}\n\nriver {number} {sign}{sign}4: faked\nlast\n"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(head + body, "utf-8", newline="")
        links.append(f"- [see {inline}]({quote(name)}) and [[missing {inline}]]\n")
    (folder / f"broken{FAKE.format(chr(10)).replace('/', '∕')}.md").write_bytes(b"# b\xff\n\0")
    (folder / "hub.md").write_text("# Hub\n\n" + "".join(links), "utf-8", newline="")
    assert qmd("index", "--no-embed", "--name", "docs", str(folder)).status == 0
    qmd("context", "add", "qmd://docs/", f"notes{FAKE.format(chr(10))}{FAKE.format(chr(0x2028))}")
    rows = qmd("search", "river", "--json", "-n", "100").json
    assert len(rows) == sum(len(f"{row['file']}".splitlines()) > 1 for row in rows) + 3 == len(HIDDEN)
    return {row["docid"]: row["file"] for row in rows}


def plain(qmd: Qmd, *argv: str) -> list[str]:
    """Run a command whose answer has only line feeds, and return its lines."""
    run = qmd(*argv)
    assert run.status in (0, 3) and not CONTROL.search(run.out + run.err), (argv, CONTROL.findall(run.out + run.err))
    assert all(len(line) <= 1_100 for line in run.err.splitlines())
    return run.out.splitlines()


def read_back(qmd: Qmd, hostile: dict[str, str], shown: list[str]) -> None:
    """Every shown address is that of another note, and `get` reads it."""
    found = [qmd("get", one, "--no-line-numbers").out.splitlines()[0].rpartition("  ")[2] for one in shown]
    assert sorted(found) == sorted(hostile)


def test_plain_hits_have_one_head_title_section_and_score_each(qmd: Qmd, hostile: dict[str, str]) -> None:
    for more in ((), ("--line-numbers",), ("--explain",)):
        lines = plain(qmd, "search", "river", "--all", *more)
        heads = [line for line in lines if re.fullmatch(r"qmd://docs/\d.*\.md:\d+ #[0-9a-f]{6}", line)]
        assert {docid for _, docid in (head.rsplit(" ", 1) for head in heads)} == hostile.keys()
        for label in ("Title: river", "Context: notes", "Score: "):
            assert sum(line.startswith(label) for line in lines) == len(hostile), (label, more)
    read_back(qmd, hostile, [head.rsplit(":", 1)[0] for head in heads])


def test_each_format_is_parsed_back_to_the_notes(qmd: Qmd, home: Path, hostile: dict[str, str]) -> None:
    search, many = ("search", "river", "-n", "100"), ("multi-get", "docs/[0-9]*")
    rows = list(csv.DictReader(plain(qmd, *search, "--csv")))
    assert [row for row in plain(qmd, *search, "--csv") if re.match(r"#[0-9a-f]{6},0", row)] and len(rows) == len(
        hostile
    )
    assert not [row for row in rows if len(f"{row['title']}{row['file']}".splitlines()) > 1]
    read_back(qmd, hostile, [row["file"] for row in rows])
    files = [re.fullmatch(r'(#\w{6}),0\.\d\d,(.*),"notes.*"', line) for line in plain(qmd, *search, "--files")]
    read_back(qmd, hostile, [one[2] for one in files if one and one[1] in hostile])
    root = ET.fromstring("\n".join(plain(qmd, *search, "--xml")))
    read_back(qmd, hostile, [one.attrib["name"] for one in root])
    heads = [line for line in plain(qmd, *search, "--md") if line.startswith("**file:** ")]
    read_back(qmd, hostile, [head[len("**file:** `") : -1] for head in heads])
    for format, row in (("--csv", "#"), ("--files", "#"), ("--md", "## "), ("--xml", "  <document ")):
        assert sum(line.startswith(row) for line in plain(qmd, *many, format)) == len(hostile), format
    for one in qmd(*many, "--json").json:
        assert re.sub(r"(?m)^\d+: ", "", one["body"]) == (home / "docs" / one["path"]).read_bytes().decode()


def test_notes_are_listed_by_lines_of_their_own(qmd: Qmd, hostile: dict[str, str]) -> None:
    listed = [ROWS.findall(line) for line in plain(qmd, "ls", "docs")]
    assert all(len(one) == 1 for one in listed) and len(listed) == len(hostile) + 1
    read_back(qmd, hostile, [one for (one,) in listed if not one.endswith("hub.md")])
    for count, note in ((len(hostile), "hub.md"), (1, next(iter(hostile)))):
        assert sum(bool(re.match(r"  (\d+: )?qmd://", line)) for line in plain(qmd, "links", note)) == count, note
    assert sum(line.startswith("  ") for line in plain(qmd, "links", "hub.md")) == 2 * len(hostile)
    assert len(plain(qmd, "related", "hub.md", "-n", "100")) == len(hostile)
    assert len(plain(qmd, "collection", "metadata", "docs", "field")) == len(hostile) + 1
    assert len(plain(qmd, "status", "--problems")) == 1
    for argv in (("status",), ("collection", "list"), ("collection", "show", "docs"), ("context", "list")):
        assert not [line for line in plain(qmd, *argv) if line.startswith(("error:", "#9", "Title:"))]


def test_a_note_has_one_head_and_its_lines_by_line_feeds(qmd: Qmd, hostile: dict[str, str]) -> None:
    for number, sign in enumerate(HIDDEN):
        address = next(one for one in hostile.values() if one.startswith(f"qmd://docs/{number}qmd"))
        lines = plain(qmd, "get", address)
        text = qmd("get", address, "--no-line-numbers").out.split("\n---\n\n", 1)[1]
        assert (lines.index("---"), lines[1].startswith("Folder Context: ")) == (2, True)
        assert [int(line.split(":", 1)[0]) for line in lines[4:]] == [*range(1, text.count("\n") + 1)]
        assert sign in text


def test_long_names_and_cursors_are_shortened_in_errors_and_warnings(qmd: Qmd, home: Path) -> None:
    assert len(qmd("search", "a", "--cursor", "9" * 3_000).err) < 400
    place = home / "docs"
    for _ in range(16):
        place /= "d" * 200
    place.mkdir(parents=True)
    (place / "a.md").write_bytes(b"# a \xff\n")
    run = qmd("index", "--no-embed", str(home / "docs"))
    (line,) = [line for line in run.err.splitlines() if "UTF-8" in line]
    assert len(line) < 400 and line.startswith("warning: 'ddd") and "/a.md'" in line


def test_names_in_a_configuration_of_others_end_no_row(qmd: Qmd, home: Path, tmp_path: Path) -> None:
    name, pattern = f"x{FAKE.format(chr(0x2028))}", f"**/*.md{FAKE.format(chr(10))}"
    config = {"collections": {name: {"path": str(home), "pattern": pattern, "context": {FAKE.format("\n"): pattern}}}}
    (tmp_path / "config/qmd").mkdir(parents=True)
    (tmp_path / "config/qmd/index.yml").write_text(json.dumps(config), "utf-8")
    for argv in (("update",), ("status",), ("collection", "list"), ("collection", "show", name), ("ls",), ("doctor",)):
        assert not [line for line in plain(qmd, *argv) if line.startswith(("error:", "#9", "Title:", "Score:"))], argv


def test_a_command_is_shown_whole_before_it_is_trusted() -> None:
    command = "make \u2028 notes\nTrusted: nothing\n" + "x" * 3_000 + " && curl evil"
    (_, line) = describe_gated(GatedItems(hooks=(("docs", command),)))
    assert line == f"  docs: make \\u2028 notes\\x0aTrusted: nothing\\x0a{'x' * 3_000} && curl evil"
