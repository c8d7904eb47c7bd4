"""Documents on a GPU: batches, agreement with the CPU, and exhausted memory. No device is needed."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import field
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.indexing.embed import embed_pending
from qmd.inference import loader
from qmd.inference.engines import embedder as embedder_module
from qmd.inference.engines.bulk_embedding import SAME_VECTORS, BulkEmbedder
from qmd.inference.engines.embedder import OnnxEmbedder, load_embedder
from qmd.inference.engines.encoder_graph import BatchRuns
from qmd.inference.models import weights_choice
from qmd.inference.models.builtin import MINILM, locate_builtin
from qmd.inference.models.catalogue import JINA_ZH
from qmd.inference.runtime import gpu_memory, sessions
from qmd.inference.runtime.gpu_memory import OutOfMemory
from qmd.inference.runtime.sessions import Session, open_session
from qmd.inference.settings import EngineSettings
from qmd.retrieval.trace import Trace

BATCHES = locate_builtin() / "model_batches.onnx"
DOCS = Path(__file__).parents[2] / "docs"


def sentences(n: int, most_letters: int = 120) -> list[str]:
    """Return real text from this project's manual."""
    paragraphs = "\n\n".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md")))
    parts = [part.strip() for part in re.split(r"\n\n|(?<=[.!?]) ", paragraphs) if 15 < len(part) <= most_letters]
    assert len(parts) >= n
    return parts[:n]


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session(BATCHES, format="fp32", threads=2, allow_gpu=False, fuse=False)


class CountedSession(Session, frozen=True):
    """A session with memory for a number of padded tokens, which records the requested shapes."""

    room: int = 1 << 30
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def run(self, outputs: Sequence[str] | None, feeds: Any) -> list[Any]:
        self.shapes.append(feeds["input_ids"].shape)
        if feeds["input_ids"].size > self.room:
            raise OutOfMemory("model 'm' needs more memory than the GPU has left")
        return super().run(outputs, feeds)


def with_room(session: Session, room: int = 1 << 30) -> CountedSession:
    fields = {name: getattr(session, name) for name in session.__struct_fields__}
    return CountedSession(**{**fields, "got": "cuda"}, room=room)


def test_the_twin_for_batches_gives_the_vectors_of_the_int8_graph(embedder: OnnxEmbedder, session: Session) -> None:
    texts = sentences(200, 1000)
    alone = embedder.embed_documents(texts)
    together = embedder.embed_documents(texts, runs=BatchRuns(session, 2048))
    cosines = (alone * together).sum(axis=1)
    # Measured on 600 texts: mean 0.9994, lowest 0.9935. The INT8 graph itself, with the last digit of its position
    # table changed: mean 0.9997, lowest 0.9940. Plain products of the widened weights: mean 0.9937.
    assert cosines.mean() >= SAME_VECTORS
    assert cosines.min() >= 0.99
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)


def test_a_text_has_the_same_vector_in_every_batch(embedder: OnnxEmbedder, session: Session) -> None:
    texts = sentences(12)
    alone = [embedder.embed_documents([text], runs=BatchRuns(session))[0] for text in texts]
    together = embedder.embed_documents(texts, runs=BatchRuns(session))
    assert ((np.array(alone) * together).sum(axis=1)).mean() > 0.999


def test_a_batch_holds_texts_of_similar_length_up_to_its_budget(session: Session) -> None:
    counted = with_room(session)
    texts = [[101] * n for n in (3, 40, 7, 38, 4, 9)]
    order = [index for index, _ in BatchRuns(counted, 80).run(texts)]
    assert counted.shapes == [(2, 40), (2, 9), (2, 4)]
    assert order == [1, 3, 5, 2, 4, 0]


def test_a_text_longer_than_the_budget_is_a_batch_of_its_own(session: Session) -> None:
    counted = with_room(session)
    assert len(list(BatchRuns(counted, 10).run([[101] * 30, [101] * 25]))) == 2
    assert counted.shapes == [(1, 30), (1, 25)]


def test_no_texts_are_no_run(session: Session) -> None:
    assert list(BatchRuns(session).run([])) == []


def test_a_batch_too_large_for_the_device_is_halved_and_smaller_ones_are_kept_to(session: Session) -> None:
    counted = with_room(session, room=100)
    runs = BatchRuns(counted, 400)
    assert len(list(runs.run([[101] * 20] * 20))) == 20
    assert runs.batch_tokens == 100
    assert counted.shapes == [(20, 20), (10, 20), *[(5, 20)] * 4]


def test_a_single_text_too_large_for_the_device_is_out_of_memory(session: Session) -> None:
    with pytest.raises(OutOfMemory):
        list(BatchRuns(with_room(session, room=10)).run([[101] * 20] * 3))


def test_a_graph_without_mask_is_not_batched(embedder: OnnxEmbedder) -> None:
    with pytest.raises(ModelError, match="attention_mask"):
        BatchRuns(embedder.session)


def bulk(
    embedder: OnnxEmbedder, session: Session, *, opened: list[int] | None = None, patience: int = 0
) -> BulkEmbedder:
    def open_runs() -> BatchRuns:
        if opened is not None:
            opened.append(1)
        return BatchRuns(session)

    return BulkEmbedder(embedder, open_runs, lambda: embedder, patience=patience)


def test_cuda_is_opened_once_there_are_many_texts_and_only_once(embedder: OnnxEmbedder, session: Session) -> None:
    opened: list[int] = []
    both = bulk(embedder, with_room(session), opened=opened, patience=150)
    texts = sentences(110)
    both.embed_documents(texts)
    assert (opened, both.description.provider) == ([], "cpu")
    both.embed_documents(texts)
    both.embed_documents(texts)
    assert (opened, both.description.provider, both.description.note) == ([1], "cuda", None)


def test_a_few_texts_and_queries_stay_on_the_cpu(embedder: OnnxEmbedder, session: Session) -> None:
    counted = with_room(session)
    both = bulk(embedder, counted)
    texts = sentences(5)
    assert np.array_equal(both.embed_documents(texts), embedder.embed_documents(texts))
    assert np.array_equal(both.embed_queries(texts), embedder.embed_queries(texts))
    assert counted.shapes == []


def test_progress_of_batches_counts_up_to_the_number_of_texts(embedder: OnnxEmbedder, session: Session) -> None:
    seen: list[int] = []
    bulk(embedder, session).embed_documents(sentences(110), seen.append)
    assert seen == list(range(1, 111))


def test_vectors_of_the_device_that_do_not_agree_are_not_stored(
    embedder: OnnxEmbedder, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((384, 384)))[0].astype(np.float32)
    runs = BatchRuns(session)
    rows = runs.run
    monkeypatch.setattr(runs, "run", lambda texts: ((index, row @ turned) for index, row in rows(texts)))
    both = BulkEmbedder(embedder, lambda: runs, lambda: embedder, patience=0)
    texts = sentences(110)
    assert np.array_equal(both.embed_documents(texts), embedder.embed_documents(texts))
    assert both.description.provider == "cpu"
    assert "the GPU's vectors agree with the CPU's by" in str(both.description.note)


def test_without_room_for_one_text_the_cpu_goes_on_and_a_line_says_so(embedder: OnnxEmbedder, session: Session) -> None:
    counted = with_room(session)
    both = bulk(embedder, counted)
    texts = sentences(110)
    both.embed_documents(texts)
    assert both.runs is not None
    both.runs.session = with_room(session, room=1)
    assert np.array_equal(both.embed_documents(texts), embedder.embed_documents(texts))
    assert both.description.provider == "cpu"
    assert both.description.note == "'model.onnx' runs on the CPU: the GPU has no memory left for one text"
    trace = Trace()
    trace.record_model(both.description)
    trace.record_model(both.description)
    assert trace.warnings == [both.description.note]


def test_a_query_without_room_is_embedded_on_the_cpu(embedder: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = load_embedder(locate_builtin(), MINILM)

    def full(texts: Sequence[str]) -> Any:
        raise OutOfMemory("model 'm' needs more memory than the GPU has left")

    on_gpu.session = replace(on_gpu.session, got="cuda")
    monkeypatch.setattr(on_gpu, "embed_queries", full)
    both = BulkEmbedder(on_gpu, lambda: None, lambda: embedder)
    assert np.array_equal(both.embed_queries(["bread"]), embedder.embed_queries(["bread"]))
    assert both.description.note is not None


def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, driver: bool, **settings: Any) -> Any:
    monkeypatch.setattr(gpu_memory, "load_driver", lambda: SimpleNamespace() if driver else None)
    monkeypatch.setattr(gpu_memory, "memory_now", lambda device: None)
    return loader.load_engines(EngineSettings(tmp_path, threads=1, **settings), ["embed", "rerank"])


def test_without_a_driver_nothing_of_the_gpu_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert isinstance(loaded(monkeypatch, tmp_path, driver=False).embedder, OnnxEmbedder)


def test_where_the_gpu_is_switched_off_nothing_of_it_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engines = loaded(monkeypatch, tmp_path, driver=True, allow_gpu=False)
    assert isinstance(engines.embedder, OnnxEmbedder)


def test_with_a_gpu_the_built_in_reranker_uses_the_cpu_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engines = loaded(monkeypatch, tmp_path, driver=True)
    assert isinstance(engines.embedder, BulkEmbedder)
    assert engines.embedder.inner.session is engines.reranker.session
    assert engines.embedder.fingerprint == load_embedder(locate_builtin(), MINILM).fingerprint


def test_a_driver_without_libraries_embeds_on_the_cpu_quietly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engines = loaded(monkeypatch, tmp_path, driver=True)
    verdict = sessions.NoCuda("the libraries of CUDA 13 do not load")
    monkeypatch.setattr(sessions, "cuda_verdict", lambda device=0: verdict)
    engines.embedder.open_now(sentences(20))
    assert engines.embedder.runs is None
    assert (engines.embedder.description.provider, engines.embedder.description.note) == ("cpu", None)


def test_a_reason_to_stay_on_the_cpu_is_in_the_report(embedder: OnnxEmbedder, make_pending: Callable[[], Any]) -> None:
    def open_runs() -> BatchRuns:
        raise ModelError("no room")

    both = BulkEmbedder(embedder, open_runs, lambda: embedder, patience=0)
    both.open_now(["a"])
    assert embed_pending(make_pending(), both).warnings == ("no documents go to the GPU in batches: no room",)


@pytest.fixture
def make_pending(tmp_path: Path) -> Callable[[], Any]:
    from qmd.store.opening import open_writer

    return lambda: open_writer(tmp_path / "index.sqlite", None)


def _both_files(folder: Path) -> None:
    for item in JINA_ZH.formats:
        (folder / item.weights.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / item.weights.path).write_bytes(b"x")


def test_with_cuda_its_file_embeds_with_and_without_the_switch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _both_files(tmp_path)
    opened: list[Any] = []

    def note(path: Path, **options: Any) -> Any:
        opened.append((path.name, options["allow_gpu"]))
        raise ModelError("enough")

    monkeypatch.setattr(weights_choice, "cuda_works", lambda: True)
    monkeypatch.setattr(embedder_module, "open_session", note)
    monkeypatch.setattr(embedder_module, "load_tokenizer", lambda *_, **__: None)
    for allow_gpu in (True, False):
        with pytest.raises(ModelError, match="enough"):
            embedder_module.load_embedder(tmp_path, JINA_ZH, allow_gpu=allow_gpu)
    monkeypatch.setattr(weights_choice, "cuda_works", lambda: False)
    with pytest.raises(ModelError, match="enough"):
        embedder_module.load_embedder(tmp_path, JINA_ZH)
    assert opened == [("model_fp16.onnx", True), ("model_fp16.onnx", False), ("model_quantized.onnx", True)]


def test_with_a_driver_opening_decides_which_file_embeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / JINA_ZH.folder
    _both_files(folder)
    (folder / "tokenizer.json").write_text("{}")
    settings = EngineSettings(tmp_path, embed=JINA_ZH.name)
    monkeypatch.setattr(gpu_memory, "load_driver", lambda: None)
    known = loader.identify_embedder(settings)
    assert known is not None and known.description.format == "int8"
    monkeypatch.setattr(gpu_memory, "load_driver", lambda: SimpleNamespace())
    assert loader.identify_embedder(settings) is None
