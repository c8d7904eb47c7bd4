"""LanceDB tables with a damaged file: one line that names the command, which rebuilds them."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("lancedb", reason="LanceDB has no wheel for this system")

from qmd.errors import StoreError
from qmd.indexing.embed import embed_pending
from qmd.indexing.update import update_collection
from qmd.plugins.lance import claim
from qmd.plugins.lance.opening import mend
from qmd.records import Collection, LexicalTerm, Scope
from qmd.store.base import IndexReader, IndexWriter
from qmd.store.opening import open_reader, open_writer
from tests.fakes import HashingEmbedder
from tests.processes import environment

EMBEDDER = HashingEmbedder(dim=32)
Damage = Callable[[Path], None]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    raw, dice = bytearray(file.read_bytes()), random.Random(file.stat().st_size)
    for _ in range(8):
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    file.write_bytes(raw)


def fill_at_random(file: Path) -> None:
    file.write_bytes(random.Random(1).randbytes(file.stat().st_size))


DAMAGES: tuple[Damage, ...] = (cut, flip, Path.unlink, fill_at_random)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Notes and a sound index of them."""
    folder = tmp_path_factory.mktemp("lance")
    (folder / "notes").mkdir()
    for number in range(8):
        (folder / "notes" / f"{number}.md").write_text(f"# Note {number}\n\nriver planet kettle {number}\n")
    (folder / "notes" / "lossy.md").write_text("---\ntags: [@x]\n---\n# Without its front matter\n\nriver\n")
    with open_writer(folder / "state" / "index.sqlite", f"lance:{folder / 'sound'}") as writer:
        fill(writer, folder)
    return folder


def fill(writer: IndexWriter, home: Path) -> None:
    notes = Collection("notes", home / "notes")
    writer.mirror_config([notes], None, "digest")
    update_collection(writer, notes)
    embed_pending(writer, EMBEDDER)


def newest(tables: Path, table: str, kind: str) -> Path:
    """Return a file of a table: its newest manifest, or its newest file of data or of an index."""
    files = sorted((tables / f"{table}.lance").glob(kind))
    # Manifests count downwards.
    return files[0] if kind == MANIFEST else max(files, key=lambda file: file.stat().st_mtime_ns)


MANIFEST, DATA, INDEX = "_versions/*.manifest", "data/*.lance", "_indices/*/page_data.lance"
QUESTIONS: tuple[Callable[[IndexReader], object], ...] = (
    lambda reader: sorted(document.path for document in reader.iter_documents()),
    lambda reader: len(reader.texts([document.hash for document in reader.iter_documents()])),
    lambda reader: len(reader.search_lexical([LexicalTerm("river", '"river"')], 9, Scope())),
    lambda reader: [
        round(one.score, 2)
        for one in reader.search_dense(EMBEDDER.embed_queries(["kettle"])[0], 9, Scope(), EMBEDDER.fingerprint)
    ],
    lambda reader: (reader.status(None).pending_documents, reader.status(None).vectors),
    lambda reader: list(reader.similar_terms("rivr")),
    lambda reader: [one.path for one in reader.left_out("notes")],
    lambda reader: reader.check(),
)


def ask(home: Path, tables: Path) -> list[object]:
    """Return the answers; for a failed one its error, which states the remedy in one line."""
    try:
        with open_reader(home / "state" / "index.sqlite", f"lance:{tables}") as reader:
            return [one_line(question, reader) for question in QUESTIONS]
    except StoreError as error:
        return [one_line_of(error)]


def one_line(question: Callable[[IndexReader], object], reader: IndexReader) -> object:
    try:
        return question(reader)
    except StoreError as error:
        return one_line_of(error)


def one_line_of(error: StoreError) -> StoreError:
    assert len(error.message.splitlines()) == 1
    # Some flipped bits look like a file of a newer LanceDB, which must be kept as a whole.
    assert error.hint is not None and ("qmd index --verify" in error.hint or "version" in error.message)
    return error


CASES: list[tuple[str, str, Damage]] = [
    *(("chunks", kind, damage) for kind in (MANIFEST, DATA, INDEX) for damage in DAMAGES),
    *(("state", kind, damage) for kind in (MANIFEST, DATA) for damage in DAMAGES),
    *((table, kind, cut) for table in ("documents", "vectors_1", "words") for kind in (MANIFEST, DATA, INDEX)),
    *(("places", kind, cut) for kind in (MANIFEST, DATA)),
]


@pytest.fixture(scope="module")
def sound(home: Path) -> list[object]:
    """The answers of the sound index."""
    return ask(home, home / "sound")


@pytest.fixture
def tables(home: Path, tmp_path: Path) -> Path:
    """A copy of the sound index."""
    return Path(shutil.copytree(home / "sound", tmp_path / "tables"))


@pytest.mark.parametrize(("table", "kind", "damage"), CASES)
def test_a_damaged_file_is_one_line_and_its_content_is_rebuilt(
    home: Path,
    tables: Path,
    sound: list[object],
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    kind: str,
    damage: Damage,
) -> None:
    # The previous state names a writer, which has ended.
    monkeypatch.setattr(claim, "SILENT_S", 0.3)
    assert not [answer for answer in sound if isinstance(answer, StoreError)] and sound[-1] == []
    damage(newest(tables, table, kind))
    ask(home, tables)
    local, address = home / "state" / "index.sqlite", f"lance:{tables}"
    if damage is flip:
        # Without checksums a flipped bit in the middle of the data can be a value like others.
        try:
            mend(address, local, thorough=True)
            with open_writer(local, address) as writer:
                fill(writer, home)
        except StoreError as error:
            one_line_of(error)
        return
    named = mend(address, local, thorough=True)
    with open_writer(local, address) as writer:
        fill(writer, home)
    assert ask(home, tables) == sound
    # Without its newest manifest the one row has the previous state, to which the other tables are reset.
    assert table in named or (table, damage) == ("state", Path.unlink)


@pytest.mark.parametrize("table", ["documents", "chunks", "vectors_1", "places", "words", "state"])
def test_a_damaged_manifest_of_an_older_version_does_not_block_cleanup(
    home: Path, tables: Path, sound: list[object], table: str
) -> None:
    cut(sorted((tables / f"{table}.lance").glob(MANIFEST))[-1])
    local, address = home / "state" / "index.sqlite", f"lance:{tables}"
    with open_reader(local, address) as reader:
        assert len(reader.check()) == 1
    assert table in mend(address, local, thorough=True)
    with open_writer(local, address) as writer:
        fill(writer, home)
        writer.cleanup()
    assert ask(home, tables) == sound


def test_a_manifest_cut_at_any_place_is_one_line_also_where_the_library_panics(home: Path, tables: Path) -> None:
    manifest = newest(tables, "state", MANIFEST)
    for length in reversed(range(manifest.stat().st_size)):
        os.truncate(manifest, length)
        with pytest.raises(StoreError) as caught:
            open_reader(home / "state" / "index.sqlite", f"lance:{tables}")
        one_line_of(caught.value)


def test_a_command_that_meets_a_damaged_file_prints_no_warnings_of_the_library(tables: Path, tmp_path: Path) -> None:
    for file in (tables / "documents.lance" / "_indices").glob("*/metadata.lance"):
        fill_at_random(file)
    environ = environment(tmp_path, INDEX_PATH=f"lance:{tables}", QMD_DAEMON="off")
    command = [sys.executable, "-m", "qmd", "search", "river"]
    run = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert [line.partition(":")[0] for line in run.stderr.splitlines()] == ["error", "hint"]
