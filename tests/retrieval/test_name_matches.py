"""A query that is the name of a note finds that note first."""

import pytest

from qmd.records import Scope
from qmd.retrieval.calibration import NAMED
from qmd.retrieval.name_matches import MANY_NOTES, find_named
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import Mode, SearchRequest
from tests import fakes
from tests.note_index import NoteIndex

EMBEDDER = fakes.HashingEmbedder()


@pytest.fixture(scope="module")
def vault() -> NoteIndex:
    index = NoteIndex(EMBEDDER)
    index.add("Maths/Dirac comb.md", "It picks samples.\n")
    index.add("Maths/Sampling.md", "# Sampling\n\n" + "A Dirac comb, the Dirac comb and Dirac combs. " * 5)
    index.add("Compilers/flow graph.md", "---\naliases: [CFG, control-flow graph]\n---\nVertices are instructions.\n")
    index.add("Compilers/passes.md", "CFG, CFG and CFG: the control flow graph. " * 5)
    index.add("Languages/C++.md", "A language with templates.\n")
    index.add("Languages/C.md", "C++ came after C, and C++ has what C has.\n")
    index.add("Howto/release.md", "Steps.\n\n## Undo a release\n\nPush the tag again.\n")
    index.add("Howto/rollback.md", "To undo a release, undo the release that a release undid.\n")
    return index


def first(vault: NoteIndex, query: str, mode: Mode) -> str:
    engines = fakes.fake_engines(embedder=EMBEDDER, reranker=fakes.OverlapReranker())
    return search(vault, engines, parse_query(query), SearchRequest(mode=mode)).hits[0].document.path


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("Dirac comb", "Maths/Dirac comb.md"),
        ("dirac-comb", "Maths/Dirac comb.md"),
        ("CFG", "Compilers/flow graph.md"),
        ("Control Flow Graph", "Compilers/flow graph.md"),
        ("c++", "Languages/C++.md"),
        ("undo a release", "Howto/release.md"),
    ],
)
def test_a_name_an_alias_or_a_heading_finds_its_note_first(vault: NoteIndex, query: str, path: str, mode: Mode) -> None:
    assert first(vault, query, mode) == path


def test_a_name_among_other_words_makes_no_nonsense_relevant(vault: NoteIndex) -> None:
    engines = fakes.fake_engines()
    answer = search(vault, engines, parse_query("zebra Dirac comb xylophone marmalade"), SearchRequest(mode="lexical"))
    assert answer.hits[0].document.path == "Maths/Dirac comb.md"
    assert answer.hits[0].relevance < NAMED


def test_a_name_outside_the_scope_names_nothing(vault: NoteIndex) -> None:
    assert find_named(vault, "Dirac comb", Scope(path_prefix="Languages/")) == {}
    assert find_named(vault, "undo a release", Scope(path_prefix="Languages/")) == {}


def test_a_name_that_many_notes_have_tells_nothing() -> None:
    index = NoteIndex()
    for number in range(MANY_NOTES + 1):
        index.add(f"{number}/agenda.md", f"Meeting {number}.\n\n## Decisions\n")
    assert find_named(index, "agenda", Scope()) == {}
    assert find_named(index, "decisions", Scope()) == {}


def test_the_explanation_has_the_kind_of_name(vault: NoteIndex) -> None:
    answer = search(vault, fakes.fake_engines(), parse_query("CFG"), SearchRequest(mode="lexical", explain=True))
    explanation = answer.hits[0].explanation
    assert explanation is not None
    assert [(part.source, part.kind) for part in explanation.contributions if part.source == "name"] == [
        ("name", "alias")
    ]
