"""Files and folders with any name that the file system allows are indexed, found, and opened by the shown name."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.file_names import escape_bytes, to_disk, to_text
from tests.program import Qmd

pytestmark = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names are text there")

NAMES = [
    b"caf\xe9.md", b"\xff\xfe.md", b"\\xE9.md", b"\\x5C.md", b"\\x5CxE9.md", b"\\\xe9.md", b"back\\slash.md",
    b"a\nb.md", b"a\tb.md", b'"quoted".md', b"it's.md", b"100%.md", b"%41.md", b"a#b.md", b"what?.md",
    b"a:b.md", b"notes:12.md", b"a, b.md", b"-dash.md", b"--help.md", b"trail .md", b" lead.md", b"[draft].md",
    b"{a,b}.md", b"star*.md", b"!bang.md", b"~tilde.md", b"$HOME.md", "caf\u00e9.md".encode(),
    "cafe\u0301.md".encode(), "\U0001f600.md".encode(), "\u65e5\u672c.md".encode(), "\u202e.md".encode(),
    b"d\xe9r/f\xefle.md", b"\x7f\x01.md", b"ab.md ",
]  # fmt: skip


@given(
    st.binary(min_size=1, max_size=30) | st.lists(st.sampled_from([b"\\", b"x", b"E9", b"5C", b"\xe9"])).map(b"".join)
)
def test_every_name_has_a_text_that_leads_back_to_it(raw: bytes) -> None:
    name = os.fsdecode(raw)
    text = to_text(name)
    text.encode()
    assert os.fsencode(to_disk(text)) == raw
    if raw.decode(errors="ignore").encode() == raw and b"\\" not in raw:
        assert text == name


def test_typed_text_keeps_its_backslashes() -> None:
    assert escape_bytes("a\\xE9 \udce9") == "a\\xE9 \\xE9"


@pytest.fixture
def odd_notes(home: Path) -> Path:
    folder = home / os.fsdecode(b"n\xf6tes")
    for number, name in enumerate(NAMES):
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"word{number} keeper\n")
    return folder


def test_all_names_survive_index_search_ls_and_get(odd_notes: Path, qmd: Qmd) -> None:
    assert qmd("index", "--no-embed", "--mask", "**/*", "--name", "n", str(odd_notes)).status == 0
    rows = qmd("search", "keeper", "--json", "-n", "100").json
    assert len(rows) == len(NAMES)
    for number, name in enumerate(NAMES):
        (row,) = qmd("search", f"word{number}", "--json", "--full-path").json
        assert (odd_notes.parent / row["file"]).read_text() == f"word{number} keeper\n"
        (plain,) = qmd("search", f"word{number}", "--json").json
        for reference in (
            plain["docid"],
            plain["uri"],
            f"n/{to_text(os.fsdecode(name))}",
            str(odd_notes / os.fsdecode(name)),
        ):
            got = qmd("get", "--no-line-numbers", "--", reference)
            assert f"word{number} keeper" in got.out, (name, reference, got)
        many = qmd("multi-get", "--json", "--", plain["uri"])
        assert f"word{number} keeper" in many.out, (name, many)
    listed = qmd("ls", "n").out
    listed.encode()
    assert "caf\\xE9.md" in listed


def test_a_collection_context_and_name_that_are_no_utf8_brick_nothing(odd_notes: Path, qmd: Qmd) -> None:
    name = os.fsdecode(b"f\xe9")
    assert qmd("index", "--no-embed", "--mask", "**/*", str(odd_notes)).status == 0
    assert qmd("collection", "add", str(odd_notes), "--name", name).status == 0
    assert qmd("context", "add", f"qmd://{name}/", name).status == 0
    assert qmd("search", "keeper").status == 0
    assert qmd("search", name).status == 0
    assert qmd("ls", name).status == 0
    assert qmd("status", "--json").status == 0
    assert qmd("get", os.fsdecode(b"\xff")).status == 3
    assert qmd("collection", "remove", name).status == 0
    assert [one["name"] for one in qmd("collection", "list", "--json").json] == ["n\\xF6tes"]


def test_an_index_lies_in_a_folder_of_any_name(
    odd_notes: Path, qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / os.fsdecode(b"c\xe9che")))
    assert qmd("index", "--no-embed", "--name", "n", str(odd_notes)).status == 0
    assert qmd("search", "keeper", "--files").out
