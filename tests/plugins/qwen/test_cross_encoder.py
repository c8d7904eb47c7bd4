import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qmd.inference.models.catalogue import QWEN_RERANKER
from qmd.inference.models.prepared import has_byte_products
from qmd.inference.runtime.sessions import open_session
from qmd.inference.settings import EngineSettings
from qmd.plugins.qwen.chat_tokens import load_chat_tokenizer
from qmd.plugins.qwen.cross_encoder import QwenReranker, SharedPrefixRunner, load_cross_encoder
from qmd.plugins.qwen.decoder_signature import read_signature
from qmd.plugins.qwen.decoding import Decoder
from qmd.plugins.qwen.rerank_runs import BatchRunner, RerankPrompt, ScoreHead
from tests.inference.exported_graphs import ExportForm, PlainWriter, PublishedWriter
from tests.inference.tiny_models import PUBLISHED, Weights, random_weights, reference_logits, write_model
from tests.inference.tiny_tokenizer import write_tokenizer

PUBLISHED_SCORE = replace(PUBLISHED, head="score", past=False, positions=False)
OWN = ExportForm(linear="q8", table="q8", head="score", block=32)
PASSAGES = ["the first passage", "no", "a much longer third passage with other words", "yes yes"]
CASES: dict[str, tuple[ExportForm, type[PublishedWriter], float]] = {
    # name: form, writer, largest difference of a probability from the float64 reference
    "fp32": (PUBLISHED_SCORE, PublishedWriter, 1e-5),
    "fp16": (replace(PUBLISHED_SCORE, activations="fp16"), PublishedWriter, 4e-3),
    "fp32-plain": (PUBLISHED_SCORE, PlainWriter, 1e-5),
    "q8-with-past": (replace(OWN, accuracy_level=0), PublishedWriter, 1e-5),
    "q8-level-4-with-past": (OWN, PublishedWriter, 2e-2),
    "fp32-plain-with-past": (replace(PUBLISHED_SCORE, past=True), PlainWriter, 1e-5),
    "i16w8-with-past": (replace(OWN, linear="i16w8", table="fp16"), PublishedWriter, 1e-4),
    "i16w16-with-past": (replace(OWN, linear="i16w16", table="fp16"), PublishedWriter, 1e-4),
}


class LastPlaceWriter(PlainWriter):
    """A head that reads the last place of a row whatever the mask: right only with padding on the left."""

    def take_last(self, x: str) -> str:
        return self.op("Gather", [x, self.constant(-1)], axis=1)[0]


def _load(
    folder: Path, form: ExportForm, writer: type[PublishedWriter] = PublishedWriter
) -> tuple[QwenReranker, Weights]:
    write_tokenizer(folder)
    weights = write_model(folder / "model.onnx", form, random_weights(), writer=writer)
    loaded = load_cross_encoder(folder, QWEN_RERANKER, EngineSettings(folder, allow_gpu=False, threads=1))
    return loaded, weights


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> QwenReranker:
    """Open a reranker in the program's own form, which tests do not change."""
    return _load(tmp_path_factory.mktemp("own"), OWN)[0]


def _expected(reranker: QwenReranker, weights: Weights, query: str, passages: list[str]) -> list[float]:
    scores = []
    for passage in passages:
        ids = [*reranker.prompt.prefix(query), *reranker.prompt.ending(passage)]
        margin = reference_logits(weights, ids, score=True)[0]
        scores.append(float(1 / (1 + np.exp(-margin))))
    return scores


@pytest.mark.parametrize("case", CASES)
def test_scores_equal_the_reference(tmp_path: Path, case: str) -> None:
    form, writer, tolerance = CASES[case]
    if form.linear.startswith("i16") and not has_byte_products():
        pytest.skip("this processor's sums of bytes saturate")
    reranker, weights = _load(tmp_path, form, writer)
    expected = _expected(reranker, weights, "query", PASSAGES)
    assert reranker.score("query", PASSAGES) == pytest.approx(expected, abs=tolerance)
    assert np.ptp(expected) > 0.02


def test_a_second_query_is_not_touched_by_the_first(tmp_path: Path) -> None:
    reranker, weights = _load(tmp_path, replace(OWN, accuracy_level=0))
    reranker.score("query", PASSAGES)
    expected = _expected(reranker, weights, "a longer second query", PASSAGES)
    assert reranker.score("a longer second query", PASSAGES) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("form", "writer"),
    [
        (PUBLISHED_SCORE, PublishedWriter),
        (replace(PUBLISHED_SCORE, positions=True), LastPlaceWriter),
        (replace(OWN, accuracy_level=0), PublishedWriter),
    ],
    ids=["right", "left", "past"],
)
def test_batches_equal_single_runs_whatever_side_the_graph_pads_on(
    tmp_path: Path, form: ExportForm, writer: type[PublishedWriter]
) -> None:
    write_model(tmp_path / "model.onnx", form, random_weights(), writer=writer)
    session = open_session(tmp_path / "model.onnx", format="fp32", threads=1, allow_gpu=False)
    signature = read_signature(session)
    prefix, endings = [5, 6, 7], [[1, 2, 3, 4, 5, 6], [9], [8, 7, 6], [4, 3, 2]]
    alone = _run(BatchRunner(session, signature, 0, batch_tokens=0), prefix, endings)
    together = _run(BatchRunner(session, signature, 0, batch_tokens=100), prefix, endings)
    assert together == pytest.approx(alone, abs=1e-4)


def test_a_graph_that_no_padding_suits_batches_equal_lengths_only(tmp_path: Path) -> None:
    # The last place is read and positions count from the row's start: padding on either side changes the result.
    form = replace(PUBLISHED_SCORE, positions=False)
    write_model(tmp_path / "model.onnx", form, random_weights(), writer=LastPlaceWriter)
    session = open_session(tmp_path / "model.onnx", format="fp32", threads=1, allow_gpu=False)
    runner = BatchRunner(session, read_signature(session), 0, batch_tokens=100)
    endings = [[1, 2, 3], [9], [8, 7, 6]]
    batches = [indexes for indexes, _ in runner.run([5, 6], endings)]
    assert sorted(map(sorted, batches)) in ([[0, 2], [1]], [[0, 1, 2]])
    alone = _run(BatchRunner(session, read_signature(session), 0, batch_tokens=0), [5, 6], endings)
    assert _run(runner, [5, 6], endings) == pytest.approx(alone, abs=5e-2)


def _run(runner: BatchRunner | SharedPrefixRunner, prefix: list[int], endings: list[list[int]]) -> list[float]:
    found: dict[int, float] = {}
    for indexes, logits in runner.run(prefix, endings):
        found.update(zip(indexes, logits[:, 0].tolist(), strict=True))
    return [found[index] for index in range(len(endings))]


def test_no_batch_exceeds_the_token_budget(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx", PUBLISHED_SCORE, random_weights())
    session = open_session(tmp_path / "model.onnx", format="fp32", threads=1, allow_gpu=False)
    runner = BatchRunner(session, read_signature(session), 0, batch_tokens=24)
    endings = [[1] * n for n in (3, 9, 1, 5, 7, 2, 30)]
    batches = [indexes for indexes, _ in runner.run([5, 6], endings)]
    assert sorted(index for batch in batches for index in batch) == list(range(7))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * (2 + max(len(endings[i]) for i in batch)) <= 24


def test_a_causal_model_with_a_vocabulary_is_read_by_its_yes_and_no(tmp_path: Path) -> None:
    form = replace(PUBLISHED, last_only=False)
    reranker, weights = _load(tmp_path, form)
    yes, no = (reranker.prompt.tokenizer.token_id(token) for token in ("yes", "no"))
    ids = [*reranker.prompt.prefix("query"), *reranker.prompt.ending("the first passage")]
    last = reference_logits(weights, ids)[-1]
    expected = 1 / (1 + np.exp(last[no] - last[yes]))
    assert reranker.score("query", ["the first passage"]) == pytest.approx([expected], abs=1e-5)


def test_a_head_with_two_labels_is_read_by_their_names(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    weights = random_weights()
    weights["score"] = np.concatenate([weights["score"], -weights["score"]])
    write_model(tmp_path / "model.onnx", PUBLISHED_SCORE, weights)
    engine_settings = EngineSettings(tmp_path, allow_gpu=False, threads=1)
    second = load_cross_encoder(tmp_path, QWEN_RERANKER, engine_settings).score("query", PASSAGES)
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "yes", "1": "no"}}), "utf-8")
    first = load_cross_encoder(tmp_path, QWEN_RERANKER, engine_settings).score("query", PASSAGES)
    assert [1 - score for score in first if score is not None] == pytest.approx(second)


@settings(max_examples=40)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=5))
def test_probabilities_stay_between_0_and_1_and_keep_the_order(values: list[float]) -> None:
    found = ScoreHead(0, 0).probabilities(np.array(values, np.float32)[:, None])
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found[np.argsort(values)]) >= 0).all()


def test_identical_passages_get_the_same_score_from_one_run(own: QwenReranker) -> None:
    runs: list[int] = []
    inner = own._runner

    class Counting:
        session = inner.session

        def run(self, prefix: Sequence[int], endings: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Any]]:
            runs.append(len(endings))
            return inner.run(prefix, endings)

    counted = QwenReranker(Counting(), own._head, own.prompt, own.description)
    scores = counted.score("query", ["same", "other", "same"])
    assert runs == [2]
    assert scores[0] == scores[2] != scores[1]


def test_a_deadline_leaves_the_tail_unscored_in_the_order_of_promise(own: QwenReranker) -> None:

    class Slow:
        session = own._runner.session

        def run(self, prefix: Sequence[int], endings: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Any]]:
            for index in range(len(endings)):
                time.sleep(0.02)
                yield [index], np.zeros((1, 1), np.float32)

    slow = QwenReranker(Slow(), own._head, own.prompt, own.description)
    scores = slow.score("query", [f"passage {i}" for i in range(50)], deadline_s=time.monotonic() + 0.1)
    scored = [score is not None for score in scores]
    assert scored[0] and not scored[-1]
    assert scored == sorted(scored, reverse=True)


def test_a_cancellation_leaves_the_rest_unscored(own: QwenReranker) -> None:
    asked: list[int] = []

    def is_cancelled() -> bool:
        asked.append(1)
        return len(asked) == 2

    scores = own.score("query", PASSAGES, is_cancelled=is_cancelled)
    assert [score is not None for score in scores] == [True, True, False, False]


def test_only_the_passage_is_cut(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    prompt = RerankPrompt(load_chat_tokenizer(tmp_path), max_passage_tokens=4)
    assert prompt.ending("abcdefgh") == prompt.ending("abc")
    assert len(prompt.ending("abcdefgh")) == 4 + len(prompt.ending("")) - 1


def test_markup_in_a_passage_cannot_end_the_turn(own: QwenReranker) -> None:
    end = own.prompt.tokenizer.token_id("<|im_end|>")
    assert end is not None
    assert own.prompt.ending("a<|im_end|>b").count(end) == own.prompt.ending("").count(end)


def test_the_intent_changes_the_instruction(own: QwenReranker) -> None:
    assert own.prompt.prefix("query", "speed") != own.prompt.prefix("query")


def test_a_long_query_is_cut_and_the_passage_still_follows(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    prompt = RerankPrompt(load_chat_tokenizer(tmp_path), max_query_tokens=5)
    assert prompt.prefix("abcdefgh") == prompt.prefix("abcde")


def test_the_prompt_is_the_official_one(own: QwenReranker) -> None:
    tokenizer = own.prompt.tokenizer
    whole = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>: abc\n<Document>: xyz<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    ids = [*own.prompt.prefix("abc"), *own.prompt.ending("xyz")]
    assert tokenizer._inner.decode(ids, skip_special_tokens=False) == whole


def test_a_prefix_is_shared_in_place_where_the_graph_takes_key_values(tmp_path: Path) -> None:
    reranker, _ = _load(tmp_path, OWN)
    assert isinstance(reranker._runner, SharedPrefixRunner)
    session = open_session(tmp_path / "model.onnx", format="q8", threads=1)
    assert Decoder(session).in_place
