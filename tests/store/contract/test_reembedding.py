"""`embed --force` and a change of model: existing vectors are searched until new ones replace them."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from qmd.app.records import EmbedRequest
from qmd.app.updating import embed
from qmd.indexing.reports import EmbedReport
from qmd.records import Scope
from qmd.store.base import IndexWriter
from tests.fakes import HashingEmbedder, fake_engines
from tests.store.conftest import MakeDocument
from tests.store.contract.conftest import Place

Answers = list[list[tuple[str, float]]]
WORDS = ("pricing", "river", "planet", "kettle")
FORCE = EmbedRequest(force=True)


def texts(n: int, word: str = "") -> dict[str, str]:
    return {f"{n}.md": f"{WORDS[n % len(WORDS)]} number {n} {word} " * (1 + n % 5) for n in range(n)}


def put(writer: IndexWriter, make: MakeDocument, notes: dict[str, str], collection: str = "n") -> None:
    writer.put_documents(collection, [make(path, text) for path, text in notes.items()])


def run(writer: IndexWriter, embedder: HashingEmbedder, request: EmbedRequest = EmbedRequest()) -> EmbedReport:
    return embed(writer, fake_engines(embedder), request, on_start=None, on_progress=None, should_stop=None)


def answers(place: Place, embedder: HashingEmbedder) -> Answers:
    """Return the results of some queries in a new reader."""
    with place.reader() as reader:
        assert reader.check() == []
        found = [reader.search_dense(one, 50, Scope(), embedder.fingerprint) for one in embedder.embed_queries(WORDS)]
        paths = {one.id: f"{one.collection}/{one.path}" for one in reader.iter_documents()}
        return [[(paths[one.document_id], round(one.score, 3)) for one in hits] for hits in found]


@pytest.mark.parametrize("collections", [None, ("n",)])
def test_a_search_during_embed_by_force_answers_as_before_at_every_step(
    place: Place, make: MakeDocument, collections: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmd.indexing.embed._GROUP_CHUNKS", 6)
    steps: list[Answers] = []
    with place.writer() as writer:
        put(writer, make, texts(30))
        put(writer, make, texts(8, "elsewhere"), "other")
        run(writer, HashingEmbedder())
        before = answers(place, HashingEmbedder())
        assert all(len(hits) > 5 for hits in before)
        watched = HashingEmbedder(before=lambda _: steps.append(answers(place, HashingEmbedder())))
        report = run(writer, watched, EmbedRequest(collections, force=True))
        assert (report.documents, report.reused) == (30 if collections else 38, 0)
        assert len(steps) >= 5
        assert all(step == before for step in steps)
        assert answers(place, HashingEmbedder()) == before
        assert writer.count_pending("0123456789abcdef")[0] == 0
        assert run(writer, watched).documents == 0


def test_a_new_model_is_not_seen_before_it_has_all_vectors_and_the_old_one_stays_whole(
    place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmd.indexing.embed._GROUP_CHUNKS", 6)
    old, new = HashingEmbedder(), HashingEmbedder(dim=64, fingerprint="fedcba9876543210")
    steps: list[tuple[Answers, Answers]] = []
    with place.writer() as writer:
        put(writer, make, texts(20))
        run(writer, old)
        before = answers(place, old)
        computing = replace(new, before=lambda _: steps.append((answers(place, old), answers(place, new))))
        assert run(writer, computing).documents == 20
        assert len(steps) >= 3
        assert all(step == (before, [[]] * len(WORDS)) for step in steps)
        assert all(len(hits) > 3 for hits in answers(place, new))
        assert [one.fingerprint for one in writer.models()] == [old.fingerprint, new.fingerprint]
        run(writer, new, FORCE)
        assert [one.fingerprint for one in writer.models()] == [new.fingerprint]


def test_a_new_model_of_one_collection_waits_for_the_others(place: Place, make: MakeDocument) -> None:
    new = HashingEmbedder(fingerprint="fedcba9876543210")
    with place.writer() as writer:
        put(writer, make, texts(4))
        put(writer, make, texts(4, "elsewhere"), "other")
        run(writer, HashingEmbedder())
        report = run(writer, new, EmbedRequest(("n",), resumes=True))
        line = "the new model's vectors are not used before all collections have them; run 'qmd embed'"
        assert report.warnings == (line,)
        assert [one.fingerprint for one in writer.models()] == ["0123456789abcdef"]
        assert run(writer, new, EmbedRequest(("other",), resumes=True)).warnings == ()
        assert writer.models()[-1].fingerprint == new.fingerprint
        assert writer.count_pending(new.fingerprint)[0] == 0


def test_documents_added_during_re_embedding_keep_their_vectors(place: Place, make: MakeDocument) -> None:
    late = make("late.md", "kettle late")

    def add_late(_: object) -> None:
        with place.writer() as other:
            if not other.find_docid(late.hash):
                other.put_documents("n", [late])
                run(other, HashingEmbedder(), EmbedRequest(resumes=True))

    with place.writer() as writer:
        put(writer, make, texts(6))
        run(writer, HashingEmbedder())
        run(writer, HashingEmbedder(before=add_late), FORCE)
    assert "n/late.md" in [path for path, _ in answers(place, HashingEmbedder())[3]]


_FORCE_UNTIL_KILLED = """
import os, signal, sys
from pathlib import Path
import qmd.indexing.embed as embedding
from qmd.app.records import EmbedRequest
from qmd.app.updating import embed
from qmd.store.opening import open_writer
from tests.fakes import HashingEmbedder, fake_engines
embedding._GROUP_CHUNKS = 6
steps = int(sys.argv[3])
def die():
    global steps
    steps -= 1
    if not steps:
        os.kill(os.getpid(), signal.SIGKILL)
    return False
with open_writer(Path(sys.argv[1]), sys.argv[2] or None) as writer:
    request = EmbedRequest(force=True)
    engines = fake_engines(HashingEmbedder())
    embed(writer, engines, request, on_start=None, on_progress=lambda _: die(), should_stop=None)
"""


@pytest.mark.skipif(os.name == "nt", reason="kills with SIGKILL")
def test_embed_by_force_that_is_killed_leaves_the_old_vectors_and_can_go_on(place: Place, make: MakeDocument) -> None:
    with place.writer() as writer:
        put(writer, make, texts(30))
        run(writer, HashingEmbedder())
        before = answers(place, HashingEmbedder())
    command = [sys.executable, "-c", _FORCE_UNTIL_KILLED, str(place.path), place.address or "", "7"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert answers(place, HashingEmbedder()) == before
    with place.writer(20_000) as writer:
        # A server that keeps up with changes leaves it to a command.
        assert run(writer, HashingEmbedder(), EmbedRequest(resumes=True)).documents == 0
        assert 0 < run(writer, HashingEmbedder()).documents < 30
        assert run(writer, HashingEmbedder()).documents == 0
        assert len(writer.models()) == 1 and writer.check() == []
    assert answers(place, HashingEmbedder()) == before


def test_the_scale_of_a_model_goes_with_its_vectors(place: Place, make: MakeDocument) -> None:
    before, after = (HashingEmbedder(fingerprint=name * 16, scale=None) for name in "ab")
    with place.writer() as writer:
        put(writer, make, texts(3))
        run(writer, before)
        run(writer, after)
        run(writer, before)
        assert {"scale:" + 16 * "a", "scale:" + 16 * "b"} <= writer.facts().keys()
        run(writer, after, FORCE)
        facts = writer.facts()
    assert [name for name in facts if name.startswith("scale:")] == ["scale:" + 16 * "b"]
    assert "made_by:chunks:" + 16 * "a" not in facts
