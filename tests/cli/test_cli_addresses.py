"""Indexes at addresses, with an engine of another package."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

import qmd as package
from qmd import plugins
from qmd.installation import install_command
from qmd.store.runs import EmbeddingLock
from qmd.store.sqlite import opening as sqlite
from qmd.store.sqlite.index import SqliteReader
from qmd.store.sqlite.writer import SqliteWriter
from tests.program import Qmd, write_notes

ADDRESS = "shelf:team/notes"
SHELF = plugins.Store("shelf", "Shelf", "shelf:place", "another_package:resolve", "another_package")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an engine of another package for its addresses."""
    folder = tmp_path / "bucket"
    engine = ModuleType("another_package")

    def place(address: str) -> Path:
        return folder / f"{address.replace('/', '_')}.sqlite"

    def open_reader(address: str, state: Path) -> SqliteReader:
        return sqlite.open_reader(place(address))

    def open_writer(address: str, state: Path, *, busy_timeout_ms: int | None = None) -> SqliteWriter:
        return sqlite.open_writer(place(address), busy_timeout_ms=busy_timeout_ms)

    vars(engine).update(
        open_reader=open_reader,
        open_writer=open_writer,
        mend=lambda *given, thorough: (),
        resolve=lambda text, cwd, home: text if text != "shelf:" else None,
        STORES={"shelf": SHELF},
    )
    monkeypatch.setitem(sys.modules, engine.__name__, engine)
    monkeypatch.setattr(plugins, "foreign", lambda: (engine,))
    return folder


def uris(qmd: Qmd, *argv: str) -> set[str]:
    return {row["file"].partition("?")[0] for row in qmd(*argv, "--json").json}


def test_an_index_at_an_address_is_made_searched_and_shown(qmd: Qmd, notes: Path, bucket: Path, tmp_path: Path) -> None:
    assert qmd("index", str(notes), "--no-embed", "--index", ADDRESS).status == 0
    assert uris(qmd, "search", "pricing", "--index", ADDRESS) == {"qmd://notes/pricing.md"}
    assert f"Index: {ADDRESS}\n" in qmd("status", "--index", ADDRESS).out
    assert qmd("status", "--index", ADDRESS, "--json").json["index"] == ADDRESS
    assert f"Index: {ADDRESS}\n" in qmd("doctor", "--no-gpu", "--index", ADDRESS).out
    assert ADDRESS in qmd("--index", ADDRESS).out
    assert qmd("cleanup", "--index", ADDRESS).status == 0
    (config,) = (tmp_path / "config/qmd").glob("*.yml")
    assert config.name.startswith("shelf_team_notes-")
    assert not [file.name for file in (tmp_path / "cache/qmd").iterdir() if "sqlite" in file.name]


def test_index_path_and_python_take_addresses(
    qmd: Qmd, notes: Path, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("INDEX_PATH", ADDRESS)
        assert qmd("index", str(notes), "--no-embed").status == 0
    assert (tmp_path / "config/qmd/index.yml").exists()
    with package.open_index(ADDRESS) as index:
        assert index.exists()
        assert index.status().place == ADDRESS
        assert [hit.document.path for hit in index.search("pricing", mode="lexical").hits] == ["pricing.md"]
    with package.open_index("shelf:team/other") as index:
        assert not index.exists()
        assert index.status().documents == 0


def test_without_an_index_an_address_says_so(qmd: Qmd, bucket: Path, home: Path) -> None:
    for argv in (("search", "x"), ("cleanup",)):
        assert qmd(*argv, "--index", "shelf:here").status == 3
    assert "no index at" in qmd("cleanup", "--index", "shelf:here").err
    assert "Index: shelf:here" in qmd("status", "--index", "shelf:here").out
    assert not (home / "here").exists()


def test_without_its_engine_an_address_says_what_to_install(
    qmd: Qmd, home: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "qmd.plugins.lance.opening", None)
    run = qmd("search", "x", "--index", "s3://team/notes")
    assert run.status == 1
    assert run.err == (
        f"error: index 's3://team/notes' needs LanceDB, which is not installed\nhint: {install_command('lance')}\n"
    )
    monkeypatch.setattr(plugins.foreign()[0], "STORES", {"shelf": plugins.Store(*SHELF[:-1], "nothing")})
    assert qmd("search", "x", "--index", ADDRESS).err == (
        f"error: index '{ADDRESS}' needs Shelf, which is not installed\n"
    )


def test_an_unknown_scheme_says_what_is_possible(qmd: Qmd, home: Path, bucket: Path) -> None:
    for address in ("gs://bucket/x", "shelf:"):
        run = qmd("search", "x", "--index", address)
        assert run.status == 2
        assert run.err == (
            f"error: index '{address}' is not at a place that qmd knows\n"
            "hint: give a name, lance:/path, s3://bucket/prefix or shelf:place\n"
        )


def test_the_locks_of_an_address_lie_in_the_cache(qmd: Qmd, notes: Path, bucket: Path, tmp_path: Path) -> None:
    assert qmd("index", str(notes), "--no-embed", "--index", ADDRESS).status == 0
    with package.open_index(index=ADDRESS) as index:
        assert index.path.parent == tmp_path / "cache/qmd"
        with EmbeddingLock(index.path):
            refused = qmd("cleanup", "--index", ADDRESS)
    assert f"computing vectors for index '{ADDRESS}'" in refused.err


@pytest.mark.parametrize(("damaged", "again"), [("_versions/*.manifest", ()), ("data/*.lance", ("--verify",))])
def test_a_damaged_lancedb_table_is_one_line_with_the_command_that_builds_it_again(
    qmd: Qmd, notes: Path, tmp_path: Path, damaged: str, again: tuple[str, ...]
) -> None:
    pytest.importorskip("lancedb", reason="LanceDB has no wheel for this system")
    at = ("--index", f"lance:{tmp_path / 'tables'}")
    assert qmd("index", str(notes), *at).status == 0
    found = uris(qmd, "search", "pricing", *at)
    for file in (tmp_path / "tables/documents.lance").glob(damaged):
        file.write_bytes(b"damaged")
    # The next command is a new process; the present one still has the sound tables open.
    importlib.import_module("qmd.plugins.lance.opening")._connection.cache_clear()
    refused = qmd("search", "pricing", *at)
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith(f"error: index '{at[1]}' cannot be used: ")
    assert refused.err.endswith("\nhint: rebuild the damaged parts from your files: qmd index --verify\n")
    mended = qmd("index", *again, *at)
    assert mended.status == 0
    assert f"index '{at[1]}' was damaged: documents, words are built again from your files\n" in mended.err
    assert "Embedded" not in mended.out
    assert uris(qmd, "search", "pricing", *at) == found
    assert qmd("index", "--verify", *at).err == ""


def test_one_machine_deletes_nothing_of_another_ones_collections(
    qmd: Qmd, notes: Path, home: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_notes(home / "mine", {"here.md": "# Here\n\nPricing here.\n"})
    both = {"qmd://notes/pricing.md", "qmd://mine/here.md"}
    configs = {"notes": tmp_path / "ann", "mine": tmp_path / "bob"}
    for name, folder in configs.items():
        monkeypatch.setenv("QMD_CONFIG_DIR", str(folder))
        assert qmd("index", str(home / name), "--no-embed", "--index", ADDRESS).status == 0
    for folder in configs.values():
        monkeypatch.setenv("QMD_CONFIG_DIR", str(folder))
        assert qmd("index", "--no-embed", "--index", ADDRESS).status == 0
        assert uris(qmd, "search", "pricing", "--index", ADDRESS) == both
    monkeypatch.setenv("QMD_CONFIG_DIR", str(configs["mine"]))
    assert qmd("collection", "remove", "mine", "--index", ADDRESS).status == 0
    assert uris(qmd, "search", "pricing", "--index", ADDRESS) == both - {"qmd://mine/here.md"}
    monkeypatch.setenv("QMD_CONFIG_DIR", str(tmp_path / "without a file"))
    assert uris(qmd, "search", "pricing", "--index", ADDRESS) == {"qmd://notes/pricing.md"}


def test_a_search_changes_nothing_at_an_address(qmd: Qmd, notes: Path, bucket: Path) -> None:
    assert qmd("index", str(notes), "--no-embed", "--index", ADDRESS).status == 0
    (notes / "new.md").write_text("# New\n\nPricing again.\n")
    assert uris(qmd, "search", "pricing", "--index", ADDRESS) == {"qmd://notes/pricing.md"}
    assert qmd("index", "--no-embed", "--index", ADDRESS).status == 0
    assert len(uris(qmd, "search", "pricing", "--index", ADDRESS)) == 2


def test_a_process_that_stays_sees_what_others_have_written(qmd: Qmd, notes: Path, bucket: Path) -> None:
    assert qmd("index", str(notes), "--no-embed", "--index", ADDRESS).status == 0
    with package.open_index(ADDRESS) as index, package.open_index(ADDRESS) as other:
        assert index.search("gardening", mode="lexical").hits
        other.remove_collection("notes")
        assert not index.search("gardening", mode="lexical").hits
