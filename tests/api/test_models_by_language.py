"""One index with two built-in models: each collection has the one that reads its main language.

The second model is the first one's graph under the other record, in a package of the name that is looked for: its
prompts make other vectors.
"""

from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import qmd
from qmd.app.records import EmbeddingStart
from qmd.errors import ModelError
from qmd.inference.models import builtin
from qmd.inference.models.builtin import locate_builtin
from qmd.progress import Progress
from qmd.store.opening import open_writer
from tests.program import write_notes

MINI, MULTI = "all-MiniLM-L6-v2 int8 (built-in)", "multilingual int8 (built-in)"
NOTES = {
    "de/preis.md": "# Preis\n\nWir haben uns nach den Gesprächen für den Preis je Platz entschieden, und es ist gut.\n",
    "de/rosen.md": "# Rosen\n\nIm Winter werden die Rosen geschnitten, wenn es nicht mehr so kalt ist.\n",
    "en/price.md": "# Price\n\nWe have decided on a price for each seat after the interviews, and that is good.\n",
    "en/tram.md": "# Tram\n\nThe tram to the river was full, so that we walked along the water.\n",
}
Open = Callable[..., qmd.Index]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the package of the second model; without the returned folder it is not installed."""
    made = tmp_path / "site" / "qmd_multilingual"
    made.mkdir(parents=True)
    for name in ("model.onnx", "tokenizer.json"):
        (made / name).write_bytes((locate_builtin() / name).read_bytes())
    (made / "model.onnx.data").touch()
    # Elsewhere the real package may be installed.
    monkeypatch.setattr(builtin, "find_spec", lambda name: PathFinder.find_spec(name, [str(made.parent)]))
    return made


@pytest.fixture
def open_notes(folder: Path) -> Open:
    write_notes(folder, NOTES)

    def open_index(*names: str, model: str = "auto") -> qmd.Index:
        collections = {name: {"path": str(folder / name)} for name in names or ("en", "de")}
        config = {"collections": collections, "models": {"embed": model}}
        return qmd.open_index(folder / "index.sqlite", config=config)

    return open_index


def facts(index: qmd.Index) -> dict[str, str]:
    with index.reader() as reader:
        known = {name: value.partition(" ")[0] for name, value in reader.facts().items()}
    return {name.removeprefix("model:"): value for name, value in known.items() if name.startswith("model:")}


def models(index: qmd.Index, collections: Sequence[str] | None = None) -> tuple[str, ...]:
    return index.search("price", mode="dense", collections=collections).models


def made_before(open_notes: Open, package: Path) -> None:
    """Make the index of all notes without the package."""
    hidden = package.rename(package.with_name("hidden"))
    with open_notes() as index:
        index.update()
        assert index.embed().embedded == 4
    hidden.rename(package)


@pytest.mark.usefixtures("package")
def test_each_collection_has_the_model_of_its_language_and_one_query_finds_notes_of_both(open_notes: Open) -> None:
    starts: list[EmbeddingStart] = []
    states: list[Progress] = []
    with open_notes() as index:
        index.update()
        assert index.status().pending_documents == 4
        report = index.embed(on_start=starts.append, on_progress=states.append)
        assert (report.documents, starts[0].pending, starts[0].model.model) == (
            4,
            4,
            "all-MiniLM-L6-v2 and multilingual",
        )
        assert (states[-1].done, {one.total for one in states}) == (states[-1].total, {states[-1].total})
        status = index.status()
        assert [one.model for one in status.collections] == [None, "multilingual"]
        assert (status.pending_documents, status.embedded_documents, status.vectors) == (0, 4, 4)
        assert set(models(index)) == {MINI, MULTI}
        found = index.search("price", mode="dense")
        assert {hit.document.collection for hit in found.hits} == {"de", "en"} and not found.warnings
        assert (models(index, ["de"]), models(index, ["en"])) == ((MULTI,), (MINI,))
        assert index.embed().embedded == 0
        related = index.related("de/preis.md", collections=["de"])
        assert related.notes[0].similarity is not None


@pytest.mark.usefixtures("package")
def test_a_search_of_one_collection_opens_its_model_only(open_notes: Open) -> None:
    with open_notes() as index:
        index.update()
        index.embed()
    for names, opened in (["en"], {""}), (["de"], {"multilingual"}):
        with open_notes() as index:
            models(index, names)
            assert index.engine_settings().by_collection == opened


def test_an_index_from_before_the_package_keeps_its_vectors_and_the_line_names_the_command(
    open_notes: Open, package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made_before(open_notes, package)
    with open_notes() as index:
        index.update()
        assert (index.embed().embedded, facts(index), models(index)) == (0, {}, (MINI,))
        [line] = caplog.messages
        assert line.startswith(
            "de: mostly German, which all-MiniLM-L6-v2 does not read; to embed again with multilingual"
        )
        assert "qmd embed -c de --force" in line
        assert index.embed("de", force=True).embedded == 2
        assert (facts(index), set(models(index))) == ({"de": "multilingual"}, {MINI, MULTI})
        assert index.embed().embedded == 0
        assert index.cleanup()["unused vectors"] == 2


def test_without_the_package_its_collections_are_searched_by_words_and_nothing_is_embedded(
    open_notes: Open, package: Path
) -> None:
    with open_notes() as index:
        index.update()
        index.embed()
    package.rename(package.with_name("gone"))
    with open_notes() as index:
        index.update()
        assert (index.embed().embedded, facts(index)) == (0, {"de": "multilingual"})
        found = index.search("Preis Platz")
        assert found.hits[0].document.path == "preis.md"
        (line,) = (line for line in found.warnings if "qmd-search-multilingual" in line)
        assert "is not installed; " in line
    with open_notes() as index, pytest.raises(ModelError, match="multilingual"):
        index.embed("de")
    with open_notes() as index:
        assert index.embed("de", force=True).embedded == 2
        assert (facts(index), models(index)) == ({}, (MINI,))


@pytest.mark.usefixtures("package")
def test_a_configured_model_reads_all_collections_whatever_they_had(open_notes: Open) -> None:
    with open_notes() as index:
        index.update()
        index.embed()
    with open_notes(model="multilingual") as index:
        assert index.embed().embedded == 2
        assert (facts(index), models(index), index.status().pending_documents) == ({}, (MULTI,), 0)


@pytest.mark.usefixtures("package")
def test_the_model_goes_with_a_collection_that_is_renamed_or_removed(open_notes: Open) -> None:
    with open_notes() as index:
        index.update()
        index.embed()
        index.rename_collection("de", "notizen")
        assert (facts(index), index.status().pending_documents) == ({"notizen": "multilingual"}, 0)
        index.remove_collection("notizen")
        assert (facts(index), index.status().pending_documents) == ({}, 0)


@pytest.mark.usefixtures("package")
def test_a_run_that_ends_between_the_models_continues_with_the_second(open_notes: Open) -> None:
    with open_notes() as index:
        index.update()
        index.embed("en")
        assert index.status().pending_documents == 2
        assert not index.embed_in_background(lambda: False)
        assert (index.status().pending_documents, set(models(index))) == (0, {MINI, MULTI})


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    "value", ["/etc/passwd 0123456789abcdef", "../x", "http://evil/v1#m 0123456789abcdef", "x " + "0" * 16]
)
def test_a_strange_record_of_a_model_opens_nothing(open_notes: Open, value: str) -> None:
    with open_notes() as index:
        index.update()
        index.embed()
        with open_writer(index.path) as writer:
            writer.set_facts({"model:en": value, "model:de": None})
    with open_notes() as index:
        assert set(models(index)) <= {MINI}
        assert index.search("price").hits
        assert index.embed().embedded in (0, 2)
        assert index.engine_settings().by_collection <= {"", "multilingual", "x"}


@pytest.mark.usefixtures("package")
def test_a_question_that_the_configured_model_reads_gets_no_advice_on_another_one(open_notes: Open) -> None:
    with open_notes("de", model="multilingual") as index:
        index.update()
        index.embed()
        assert not any("all-MiniLM-L6-v2 reads" in line for line in index.search("wann ist der Preis gut").warnings)
