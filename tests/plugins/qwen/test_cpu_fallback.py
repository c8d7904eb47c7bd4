"""Reranking and expansion when a GPU's memory runs out: smaller batches, then the CPU. No device is needed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from qmd.inference.base import EngineDescription
from qmd.inference.engines.cpu_fallback import FallbackEngine
from qmd.inference.models.catalogue import QWEN_RERANKER
from qmd.inference.runtime.gpu_memory import OutOfMemory
from qmd.inference.runtime.sessions import Session, open_session
from qmd.inference.settings import EngineSettings
from qmd.plugins.qwen import cross_encoder, language_models
from qmd.plugins.qwen.cross_encoder import QwenReranker, load_cross_encoder
from qmd.plugins.qwen.decoder_signature import read_signature
from qmd.plugins.qwen.rerank_runs import BatchRunner
from qmd.retrieval.trace import Trace
from tests.inference.tiny_models import PUBLISHED, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer

FULL = OutOfMemory("model 'm' needs more memory than the GPU has left")
PASSAGES = [f"passage number {n} {'with more words ' * n}" for n in range(12)]


class RoomySession(Session, frozen=True):
    """A session with memory for a number of padded tokens."""

    room: int = 1 << 30

    def run(self, outputs: Sequence[str] | None, feeds: Any) -> list[Any]:
        if feeds["input_ids"].size > self.room:
            raise FULL
        return super().run(outputs, feeds)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reranker")
    write_tokenizer(path)
    write_model(path / "model.onnx", replace(PUBLISHED, head="score", past=False, positions=False), random_weights())
    return path


@pytest.fixture(scope="module")
def session(folder: Path) -> Session:
    return open_session(folder / "model.onnx", format="fp32", threads=1, allow_gpu=False)


def runner(session: Session, room: int, batch_tokens: int = 4096) -> BatchRunner:
    fields = {name: getattr(session, name) for name in session.__struct_fields__}
    return BatchRunner(RoomySession(**fields, room=room), read_signature(session), 0, batch_tokens)


def test_a_batch_of_passages_that_does_not_fit_is_halved_until_it_does(session: Session) -> None:
    endings = [[5 + n] * (10 + n) for n in range(16)]
    whole = runner(session, 1 << 30).run([1, 2], endings)
    expected = {index: row for batch, rows in whole for index, row in zip(batch, rows, strict=True)}
    short = runner(session, 120)
    sizes: list[int] = []
    for batch, rows in short.run([1, 2], endings):
        sizes.append(len(batch))
        for index, row in zip(batch, rows, strict=True):
            assert np.allclose(row, expected.pop(index), atol=1e-4)
    assert not expected
    assert max(sizes) > 1
    # After too large a batch, no later one is as large.
    assert max(sizes) * 18 <= 2 * 120


def test_without_room_for_one_passage_the_batches_give_up(session: Session) -> None:
    with pytest.raises(OutOfMemory):
        list(runner(session, 5).run([1, 2], [[3] * 10, [4] * 10]))


def loads(folder: Path, fails_at: str, opened: list[bool]) -> Callable[[bool], QwenReranker]:
    def load(with_gpu: bool) -> QwenReranker:
        opened.append(with_gpu)
        if with_gpu and fails_at == "load":
            raise FULL
        engine = load_cross_encoder(folder, QWEN_RERANKER, EngineSettings(folder, threads=1, allow_gpu=False))
        if with_gpu:
            full = runner(replace(engine.session, got="cuda"), 1)
            engine = QwenReranker(full, engine._head, engine.prompt, replace(engine.description, provider="cuda"))
        return engine

    return load


@pytest.mark.parametrize("fails_at", ["load", "score"])
def test_a_reranker_without_room_goes_on_with_the_cpu_and_one_line_says_so(folder: Path, fails_at: str) -> None:
    opened: list[bool] = []
    reranker = FallbackEngine(loads(folder, fails_at, opened))
    on_cpu = load_cross_encoder(folder, QWEN_RERANKER, EngineSettings(folder, threads=1, allow_gpu=False))
    assert reranker.score("query", PASSAGES) == on_cpu.score("query", PASSAGES)
    reranker.score("query", PASSAGES[:2])
    assert opened == [True, False]
    assert reranker.description.provider == "cpu"
    trace = Trace()
    trace.record_model(reranker.description)
    assert trace.warnings == ["'Qwen3-Reranker-0.6B' runs on the CPU: the GPU has no memory left for it"]


def test_a_cpu_without_memory_is_not_asked_twice(folder: Path, session: Session) -> None:
    opened: list[bool] = []

    def load(with_gpu: bool) -> QwenReranker:
        opened.append(with_gpu)
        engine = load_cross_encoder(folder, QWEN_RERANKER, EngineSettings(folder, threads=1, allow_gpu=False))
        engine._runner = runner(session, 1)
        return engine

    with pytest.raises(OutOfMemory):
        FallbackEngine(load).score("query", PASSAGES)
    assert opened == [True]


class Expander:
    """A fake of `QwenExpander` on one device."""

    def __init__(self, session: Session, is_full: bool) -> None:
        self.session = session
        self.description = EngineDescription("expand", "m", "q4f16", "full", session.got)
        self._is_full = is_full

    def expand(self, query: str, **_: object) -> str:
        if self._is_full:
            raise FULL
        return f"{query} on {self.session.got}"


def test_an_expander_without_room_goes_on_with_the_cpu(session: Session) -> None:
    def load(with_gpu: bool) -> Any:
        return Expander(replace(session, got="cuda" if with_gpu else "cpu"), is_full=with_gpu)

    expander = FallbackEngine(load)
    assert str(expander.expand("a question")) == "a question on cpu"
    assert expander.description.note == "'m' runs on the CPU: the GPU has no memory left for it"


def test_a_reranker_on_a_device_is_warmed_before_the_first_query(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, int]] = []
    logits = BatchRunner.logits

    def note(self: BatchRunner, rows: Sequence[Sequence[int]], side: Any) -> Any:
        shapes.append((len(rows), len(rows[0])))
        return logits(self, rows, side)

    opened = language_models.open_language_model

    def on_device(*arguments: Any) -> Any:
        model = opened(*arguments)
        return replace(model, session=replace(model.session, got="cuda"))

    settings = EngineSettings(folder, threads=1, allow_gpu=False)
    monkeypatch.setattr(BatchRunner, "logits", note)
    load_cross_encoder(folder, QWEN_RERANKER, settings)
    assert shapes == []
    monkeypatch.setattr(cross_encoder, "open_language_model", on_device)
    load_cross_encoder(folder, QWEN_RERANKER, settings)
    assert shapes == [(1, 64)]
