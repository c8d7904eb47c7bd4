"""What an older version of qmd left on a machine is read by this one, with the same answers and nothing made again."""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest
from ruamel.yaml import YAML

from qmd.analysis import ANALYSIS_VERSION
from qmd.app import freshness
from qmd.cli.app import main
from qmd.indexing.stamps import Stamp
from qmd.retrieval.calibration import WEAK
from qmd.store.sqlite.files import register_checksums
from tests.upgrade.world import HERE, LONG_AGO, lay_out, variables

VERSIONS = sorted(folder.parent.name for folder in HERE.glob("*/answers.json"))
TOLERANCE = 0.02
"""Of scores: other processors round otherwise. Within it the order of two may be another as well."""

CONTEXT = re.compile(r"^Folder Context: .*?(?=\n---)", re.DOTALL | re.MULTILINE)
"""A context, which is one line in text since."""

FREE = {"sizeBytes", "tips", "snippet"}
"""What a later version may say otherwise; and a score may rise, where what was typed stands in the note."""

Qmd = Callable[..., str]


def versions_with(name: str) -> pytest.MarkDecorator:
    """Run a test with the versions that left a certain file."""
    versions = [version for version in VERSIONS if (HERE / version / name).is_file()]
    return pytest.mark.parametrize("kept", versions, indirect=True)


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest) -> Path:
    """The folder of an older version."""
    return HERE / str(request.param)


@pytest.fixture
def root(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_zone: Callable[[str], None]
) -> Iterator[Path]:
    """A machine as that version left it, elsewhere."""
    set_zone("UTC")
    monkeypatch.setattr(freshness, "_LOOK_S", 60.0)
    lay_out(tmp_path, kept)
    for name, value in variables(tmp_path):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    cache = tmp_path / "cache" / "qmd"
    cache.mkdir(parents=True, exist_ok=True)
    for packed in kept.glob("*.sqlite.xz"):
        (cache / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    for archive in kept.glob("*.tar.xz"):
        with tarfile.open(archive) as packed_folder:
            # Of our own making; the Python 3.11.2 of Debian 12 knows no filters.
            if hasattr(tarfile, "data_filter"):
                packed_folder.extraction_filter = tarfile.data_filter
            packed_folder.extractall(cache if archive.name == "models.tar.xz" else tmp_path)
    yield tmp_path


@pytest.fixture
def qmd(root: Path, capsys: pytest.CaptureFixture[str]) -> Qmd:
    """Runs a command that has to succeed, with what it printed."""

    def run(*argv: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(argv) == status
        shown = capsys.readouterr()
        return (shown.err if status else shown.out).replace(str(root), "ROOT")

    return run


def assert_same(found: Any, kept: Any, where: str) -> None:
    """That an answer holds all that the kept one does."""
    if isinstance(kept, dict):
        for key, value in kept.items():
            if key not in FREE:
                assert_same(found[key], value, f"{where} {key}")
    elif isinstance(kept, list):
        assert len(found) == len(kept), where
        for place, (one, other) in enumerate(zip(in_order(found, kept), kept, strict=True)):
            assert_same(one, other, f"{where} {place}")
    elif where.endswith(" score"):
        # Relevance is calibrated anew: a first hit that was shown is shown.
        assert not where.endswith(" 0 score") or found >= min(kept, WEAK) - TOLERANCE, where
    elif isinstance(kept, float):
        assert found == pytest.approx(kept, abs=TOLERANCE), where
    else:
        assert found == kept, where


def in_order(found: list[Any], kept: list[Any]) -> list[Any]:
    """The hits of an answer, those of equal score as the kept ones have them."""
    if not kept or not isinstance(kept[0], dict) or "score" not in kept[0]:
        return found
    assert sorted(one["uri"] for one in found) == sorted(one["uri"] for one in kept)
    scores = [one["score"] for one in found]
    assert all(later <= earlier + TOLERANCE for earlier, later in pairwise(scores))
    by_uri = {one["uri"]: one for one in found}
    return [by_uri[one["uri"]] for one in kept]


def test_indexes_of_an_older_version_answer_as_they_did_and_reading_changes_no_file(
    kept: Path, qmd: Qmd, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {file: file.read_bytes() for file in (*root.rglob("*.yml"), *root.rglob("trusted.json"))}
    for one in json.loads((kept / "answers.json").read_text("utf-8")):
        argv, out = one["argv"], one["out"]
        monkeypatch.chdir(root / one.get("in", "."))
        shown = qmd(*argv)
        if out.startswith(("[", "{")):
            assert_same(json.loads(shown), json.loads(out), " ".join(argv))
        else:
            assert shown == CONTEXT.sub(lambda one: one[0].replace("\n\n", " "), out), argv
    assert {file: file.read_bytes() for file in files} == files


def test_front_matter_of_an_older_index_is_filtered_by(qmd: Qmd) -> None:
    found = json.loads(qmd("search", 'oven aliases:"The Big Oven"', "--json"))
    assert [one["title"] for one in found] == ["Oven"]
    found = json.loads(qmd("vsearch", "what does our bread cost", "--filter", "tags:recipes date<=2026-03", "--json"))
    assert [one["title"] for one in found] == ["Rye bread"]
    assert {"aliases", "date", "tags"} <= {one["field"] for one in json.loads(qmd("collection", "metadata", "--json"))}


@pytest.mark.parametrize("index", ["index", "imported"])
def test_an_index_of_an_older_version_needs_nothing_made_again(qmd: Qmd, root: Path, index: str) -> None:
    assert_nothing_is_made_again(qmd, root / "cache" / "qmd" / f"{index}.sqlite", "--index", index)


@versions_with("project.tar.xz")
def test_the_index_of_a_project_needs_nothing_made_again(qmd: Qmd, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "project")
    assert_nothing_is_made_again(qmd, root / "project" / ".qmd" / "index.sqlite")


def assert_nothing_is_made_again(qmd: Qmd, index: Path, *options: str) -> None:
    """Index again: no file counts as changed, and each vector stays as it is, byte for byte."""
    before = json.loads(qmd("status", "--json", *options))
    vectors = stored_vectors(index)
    shown = qmd("index", *options)
    done = [line for line in shown.splitlines() if line.startswith("✓ ") and " note" in line]
    assert done and all(re.match(r"✓ \S+  [0-9,]+ notes?  ", line) for line in done), "nothing new, updated or removed"
    assert "All content hashes already have embeddings" in shown
    after = json.loads(qmd("status", "--json", *options))
    for key in ("totalDocuments", "needsEmbedding", "chunks", "vectors", "fingerprint"):
        assert after[key] == before[key], key
    assert vectors and stored_vectors(index) == vectors


def test_an_update_reads_no_file_that_is_as_it_was(qmd: Qmd, root: Path) -> None:
    with closing(apsw.Connection(str(root / "cache" / "qmd" / "index.sqlite"))) as connection:
        sql = "SELECT value FROM meta WHERE key = 'made_by:analysis:bakery'"
        [(stamp,)] = connection.execute(sql)
    is_outdated = Stamp.parse(str(stamp)).outdated(ANALYSIS_VERSION) or (lambda _: False)
    note = root / "notes" / "bakery" / "orders" / "School.md"
    # Other words in a file of the same size and time: only reading it can tell.
    note.write_bytes(note.read_bytes().replace(b"pretzels", b"baguette"))
    os.utime(note, (LONG_AGO, LONG_AGO))
    qmd("update")
    found = json.loads(qmd("search", "pretzels", "--json"))
    # Another analysis reads each file once more.
    assert bool(found) is not is_outdated("orders/School.md")


def stored_vectors(index: Path) -> list[Any]:
    """Every row of the tables that hold vectors, as bytes."""
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '*_vector_chunks*' ORDER BY name"
    with closing(apsw.Connection(str(index))) as connection:
        tables = [str(name) for (name,) in connection.execute(sql)]
        return [row for table in tables for row in connection.execute(f'SELECT * FROM "{table}"')]


def test_a_model_that_an_older_version_imported_is_listed_verified_and_used(qmd: Qmd) -> None:
    rows = {row["name"]: row for row in json.loads(qmd("models", "list", "--json"))}
    assert rows["small"]["present"] and rows["small"]["role"] == "embed"
    assert "small: model.onnx" in qmd("models", "verify", "small")
    assert "small" in json.dumps(json.loads(qmd("doctor", "--json", "--index", "imported")))
    hits = json.loads(qmd("vsearch", "the canteen buys pretzels on Fridays", "--json", "--index", "imported"))
    assert hits[0]["path"] == "orders/School.md"


def test_a_configuration_keeps_its_comments_and_what_only_another_version_knows(qmd: Qmd, root: Path) -> None:
    file = root / "config" / "index.yml"
    text = file.read_text("utf-8")
    foreign = "thinking:\n  of: tomorrow  # not of this version\n"
    file.write_text(foreign + text.replace("    update: ", "    colour: blue\n    update: "), "utf-8")
    assert "pricing.md" in qmd("search", "supermarket")
    qmd("context", "add", "qmd://work/", "Decisions")
    qmd("collection", "add", "notes/bakery/orders", "--name", "orders")
    edited = file.read_text("utf-8")
    assert edited.startswith(foreign) and "    colour: blue\n" in edited
    for line in text.splitlines():
        assert line in edited.splitlines()


@versions_with("original.txt")
def test_tobi_qmd_finds_in_a_configuration_what_it_was_seen_to_read(kept: Path, qmd: Qmd, root: Path) -> None:
    told = (kept / "original.txt").read_text("utf-8").splitlines()
    read = collections_of(root / "config" / "index.yml")
    expected = []
    for name, one in read.items():
        expected.append(f"{name} (qmd://{name}/){' [excluded]' if one.get('includeByDefault') is False else ''}")
        expected.append(f"  Pattern:  {one['pattern']}")
        expected += [f"  Ignore:   {', '.join(one['ignore'])}"] if "ignore" in one else []
        expected += [f"    {text}" for text in one.get("context", {}).values()]
    assert set(expected) < set(told)
    for name in ("work", "archive"):
        qmd("collection", "add", f"notes/{name}", "--name", name, "--mask", read[name]["pattern"], "--index", "new")
    qmd("collection", "update-cmd", "work", read["work"]["update"], "--index", "new")
    qmd("collection", "exclude", "archive", "--index", "new")
    qmd("context", "add", "qmd://archive/", "Papers of the old shop", "--index", "new")
    written = collections_of(root / "config" / "new.yml")
    for name in ("work", "archive"):
        assert {key: written[name].get(key) for key in read[name]} == read[name]


def collections_of(file: Path) -> dict[str, Any]:
    """The collections of a configuration, as any reader of YAML has them."""
    found: dict[str, Any] = YAML(typ="safe").load(file.read_text("utf-8"))["collections"]
    return found


@versions_with("trusted.json")
def test_trust_holds_for_the_project_that_was_trusted_as_it_was(
    qmd: Qmd, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(root / "project", root / "copy")
    for project, is_trusted in (("project", True), ("copy", False)):
        monkeypatch.chdir(root / project)
        qmd("update")
        assert (root / project / "pulled.mark").exists() is is_trusted
    monkeypatch.chdir(root / "project")
    file = Path(".qmd", "index.yml")
    file.write_text(file.read_text("utf-8").replace("pulled.mark", "other.mark"), "utf-8")
    qmd("update")
    assert not Path("other.mark").exists()


@pytest.mark.parametrize(
    "argv",
    [("search", "oven"), ("vsearch", "oven"), ("get", "Oven"), ("ls", "bakery"), ("status",), ("update",), ("index",),
     ("embed",), ("cleanup",), ("collection", "add", "notes")],
    ids=lambda argv: argv[0],
)  # fmt: skip
def test_an_index_of_a_newer_version_is_refused_in_one_line_and_left_as_it_is(
    qmd: Qmd, root: Path, argv: tuple[str, ...]
) -> None:
    index = root / "cache" / "qmd" / "index.sqlite"
    assert register_checksums()  # or the page would be written without its checksum
    with closing(apsw.Connection(str(index))) as connection:
        connection.execute("PRAGMA user_version = 999")
    before = index.read_bytes()
    assert qmd(*argv, status=1) == (
        "error: index 'ROOT/cache/qmd/index.sqlite' was written by a newer qmd (version 999)\nhint: upgrade qmd\n"
    )
    assert index.read_bytes() == before
