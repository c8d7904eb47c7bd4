import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.runtime.sessions import open_session
from qmd.plugins.qwen.decoder_signature import read_signature
from qmd.plugins.qwen.decoding import Decoder, Limits, generate_branches
from qmd.plugins.qwen.kv_context import GrowingContext, InPlaceContext, KeyValueContext, Rows
from tests.inference.exported_graphs import ExportForm, PlainWriter, PublishedWriter
from tests.inference.tiny_models import PUBLISHED, SHAPE, Weights, random_weights, reference_logits, write_model

GENAI_18 = replace(
    PUBLISHED, linear="q4", accuracy_level=4, positions=False, states_head_size=False, data_suffix=".data"
)
"""The GenAI builder 0.18's output for a CPU: the head size left open, weights in `model.onnx.data`."""
Q4F16 = replace(PUBLISHED, activations="fp16", linear="q4")
EIGHT_BIT = frozenset({"layers.0.v", "layers.1.down"})
MIXED = replace(PUBLISHED, linear="q4", table="q8", positions=False, has_zeros=True, eight_bit=EIGHT_BIT)
"""The layout of the published file for a CPU."""
CASES: dict[str, tuple[ExportForm, type[PublishedWriter], float]] = {
    # name: form, writer, largest difference from the float64 reference (logits have a standard deviation of 0.65)
    "fp32": (PUBLISHED, PublishedWriter, 2e-5),
    "fp32-without-positions": (replace(PUBLISHED, positions=False), PublishedWriter, 2e-5),
    "fp16": (replace(PUBLISHED, activations="fp16"), PublishedWriter, 8e-3),
    "q4f16": (Q4F16, PublishedWriter, 8e-3),
    "q4f16-level-4": (replace(Q4F16, accuracy_level=4), PublishedWriter, 8e-2),
    "plain": (PUBLISHED, PlainWriter, 2e-5),
    "plain-without-positions": (replace(PUBLISHED, positions=False), PlainWriter, 2e-5),
    "plain-q4f16": (Q4F16, PlainWriter, 1e-2),
    "genai-0.18": (replace(GENAI_18, accuracy_level=0), PublishedWriter, 2e-5),
    "genai-0.18-half": (replace(GENAI_18, activations="fp16", positions=True), PublishedWriter, 8e-2),
    "plain-without-head-size": (replace(PUBLISHED, states_head_size=False), PlainWriter, 2e-5),
    "own-q4": (ExportForm(linear="q4", table="q4", block=32, accuracy_level=0), PublishedWriter, 2e-5),
    "mixed-with-zero-points": (MIXED, PublishedWriter, 2e-5),
    "own-q8-level-4": (ExportForm(linear="q8", block=32), PublishedWriter, 8e-2),
}
IDS = [int(i) for i in np.random.default_rng(0).integers(0, SHAPE.vocab, 12)]
Opened = tuple[Decoder, Weights, float]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Opened]:
    folder = tmp_path_factory.mktemp("decoders")
    cache: dict[str, Opened] = {}

    def get(case: str) -> Opened:
        if case not in cache:
            form, writer, tolerance = CASES[case]
            path = folder / f"{case}.onnx"
            held = write_model(path, form, random_weights(), writer=writer)
            session = open_session(path, format="q4", threads=1)
            cache[case] = Decoder(session), held, tolerance
        return cache[case]

    return get


@pytest.mark.parametrize("case", CASES)
def test_prefill_equals_the_reference(case: str, opened: Callable[[str], Opened]) -> None:
    decoder, weights, tolerance = opened(case)
    logits = decoder.open_context(32).append([IDS])
    assert np.abs(logits[0] - reference_logits(weights, IDS)[-1]).max() < tolerance


@pytest.mark.parametrize("case", CASES)
def test_one_token_a_step_equals_the_reference(case: str, opened: Callable[[str], Opened]) -> None:
    decoder, weights, tolerance = opened(case)
    context = decoder.open_context(32)
    got = [context.append([chunk])[0] for chunk in (IDS[:6], *([i] for i in IDS[6:]))]
    expected = reference_logits(weights, IDS)[5:]
    assert np.abs(np.array(got) - expected).max() < tolerance


@pytest.mark.parametrize("case", CASES)
def test_rewinding_to_a_shared_prefix_forgets_what_came_after(case: str, opened: Callable[[str], Opened]) -> None:
    decoder, weights, tolerance = opened(case)
    context = decoder.open_context(32)
    context.append([IDS[:5]])
    after_prefix = context.checkpoint()
    for tail in ([7, 8, 9], [200, 100], [7, 8, 9, 10]):
        context.restore(after_prefix)
        logits = context.append([tail])
        assert np.abs(logits[0] - reference_logits(weights, [*IDS[:5], *tail])[-1]).max() < tolerance


@pytest.mark.parametrize("case", CASES)
def test_a_batch_of_unequal_branches_equals_each_branch_alone(case: str, opened: Callable[[str], Opened]) -> None:
    decoder, weights, tolerance = opened(case)
    if decoder.branches_refusal is not None:
        # Without the input, a plain graph counts the padding of shorter rows as positions.
        assert case == "plain-without-positions"
        return
    prompt = decoder.open_context(32)
    prompt.append([IDS])
    tails = [[11], [21, 22, 23], [31, 32]]
    branches, first = prompt.fork(tails, 4)
    steps = [first, branches.append([[41], [42], [43]]), branches.append([[51], [52], [53]])]
    for row, tail in enumerate(tails):
        text = [*IDS, *tail, 41 + row, 51 + row]
        expected = reference_logits(weights, text)[len(IDS) + len(tail) - 1 :]
        assert np.abs(np.array([step[row] for step in steps]) - expected).max() < tolerance
    assert prompt.lengths == [len(IDS)]


def test_a_prompt_read_as_a_padded_batch_equals_each_row_alone(opened: Callable[[str], Opened]) -> None:
    for case in ("fp32", "plain", "own-q4"):
        decoder, weights, tolerance = opened(case)
        rows = [IDS, IDS[:4], IDS[2:9]]
        logits = decoder.open_context(32, batch=3).append(rows)
        expected = np.array([reference_logits(weights, row)[-1] for row in rows])
        assert np.abs(logits - expected).max() < tolerance


def test_tensors_are_updated_in_place_only_where_the_graph_allows_it(opened: Callable[[str], Opened]) -> None:
    assert isinstance(opened("q4f16")[0].open_context(8), InPlaceContext)
    assert isinstance(opened("plain")[0].open_context(8), GrowingContext)


def test_in_place_and_growing_contexts_agree(opened: Callable[[str], Opened]) -> None:
    decoder, _, _ = opened("fp32")
    in_place, growing = decoder.open_context(32), Decoder(decoder.session, in_place=False).open_context(32)
    for chunk in (IDS[:6], IDS[6:7], IDS[7:]):
        assert np.abs(in_place.append([chunk]) - growing.append([chunk])).max() < 1e-5


def test_the_signature_is_read_from_the_graph(opened: Callable[[str], Opened]) -> None:
    signature = read_signature(opened("q4f16")[0].session)
    assert (signature.layers, signature.kv_heads, signature.head_size) == (2, 2, 32)
    assert signature.kv_dtype == "float16"
    assert signature.has_positions
    assert signature.past[:2] == ("past_key_values.0.key", "past_key_values.0.value")
    assert not read_signature(opened("fp32-without-positions")[0].session).has_positions


def test_large_tensors_can_lie_beside_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    form = ExportForm(linear="q8", block=32, accuracy_level=0)
    weights = write_model(path, form, random_weights(), external=True)
    assert (tmp_path / "model.onnx_data").stat().st_size > path.stat().st_size
    logits = Decoder(open_session(path, format="q8", threads=1)).open_context(16).append([IDS])
    assert np.abs(logits[0] - reference_logits(weights, IDS)[-1]).max() < 2e-5


def test_a_decoder_of_the_present_genai_builder_opens_with_its_data_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    weights = write_model(path, replace(GENAI_18, accuracy_level=0), random_weights(), external=True)
    assert (tmp_path / "model.onnx.data").is_file() and not (tmp_path / "model.onnx_data").exists()
    decoder = Decoder(open_session(path, format="q4", threads=1))
    assert (decoder.signature.kv_heads, decoder.signature.head_size, decoder.in_place) == (2, 32, True)
    assert np.abs(decoder.open_context(16).append([IDS])[0] - reference_logits(weights, IDS)[-1]).max() < 2e-5


def test_a_graph_that_takes_no_head_size_is_one_clear_line(tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "model.onnx"
    write_model(path, GENAI_18, random_weights())
    model = onnx.load(str(path))
    # An output of the first layer that does not continue the past.
    node = next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")
    next(one for one in node.attribute if one.name == "num_heads").i = 3
    onnx.save(model, str(path))
    with pytest.raises(ModelError, match="does not state the size of its attention heads"):
        Decoder(open_session(path, format="q4", threads=1))


@pytest.mark.parametrize(
    ("form", "norm", "message"),
    [(replace(PUBLISHED, past=False), 1.0, "key-value"), (PUBLISHED, np.nan, "returns values that are not numbers")],
    ids=["no key-value tensors", "no numbers"],
)
def test_a_graph_that_cannot_decode_is_one_line(tmp_path: Path, form: ExportForm, norm: float, message: str) -> None:
    weights = random_weights()
    weights["norm"] *= norm
    write_model(tmp_path / "model.onnx", form, weights)
    with pytest.raises(ModelError, match=message):
        Decoder(open_session(tmp_path / "model.onnx", format="fp32", threads=1, allow_gpu=False))


def _greedy(logits: np.ndarray, generated: object) -> int:
    return int(logits.argmax())


def _greedy_reference(weights: Weights, ids: list[int], n: int) -> list[int]:
    text = list(ids)
    for _ in range(n):
        text.append(int(reference_logits(weights, text)[-1].argmax()))
    return text[len(ids) :]


def test_greedy_generation_equals_the_reference(opened: Callable[[str], Opened]) -> None:
    for case in ("fp32", "plain"):
        decoder, weights, _ = opened(case)
        context = decoder.open_context(32)
        (result,) = generate_branches(context, context.append([IDS]), [_greedy], (), [8], Limits())
        assert list(result.tokens) == _greedy_reference(weights, IDS, 8)
        assert result.stop == "budget"


def test_generation_stops_at_any_end_token_and_leaves_it_out(opened: Callable[[str], Opened]) -> None:
    decoder, weights, _ = opened("fp32")
    expected = _greedy_reference(weights, IDS, 8)
    end = expected[3]
    context = decoder.open_context(32)
    (result,) = generate_branches(context, context.append([IDS]), [_greedy], (end, 9999), [8], Limits())
    assert list(result.tokens) == expected[: expected.index(end)]
    assert result.stop == "end"


def test_generation_stops_at_the_deadline_and_on_cancellation(opened: Callable[[str], Opened]) -> None:
    decoder, _, _ = opened("fp32")
    cases = ((Limits(deadline_s=time.monotonic() - 1), "deadline"), (Limits(is_cancelled=lambda: True), "cancelled"))
    for limits, reason in cases:
        context = decoder.open_context(32)
        (result,) = generate_branches(context, context.append([IDS]), [_greedy], (), [8], limits)
        assert result.stop == reason
        assert len(result.tokens) == 1


def test_branches_generate_what_each_would_generate_alone(opened: Callable[[str], Opened]) -> None:
    decoder, weights, _ = opened("fp32")
    prompt = decoder.open_context(32)
    prompt.append([IDS])
    tails, budgets = [[11], [21, 22, 23]], [3, 6]
    branches, logits = prompt.fork(tails, 6)
    results = generate_branches(branches, logits, [_greedy, _greedy], (), budgets, Limits())
    for tail, budget, result in zip(tails, budgets, results, strict=True):
        assert list(result.tokens) == _greedy_reference(weights, [*IDS, *tail], budget)


@pytest.mark.parametrize("case", ["fp32", "plain"])
def test_a_branch_that_has_ended_leaves_the_batch(
    case: str, opened: Callable[[str], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, weights, _ = opened(case)
    kind = type(decoder.open_context(1))
    append, fed = kind.append, []

    def count(self: KeyValueContext, rows: Rows) -> np.ndarray:
        fed.append(len(rows))
        return append(self, rows)

    monkeypatch.setattr(kind, "append", count)
    prompt = decoder.open_context(32)
    prompt.append([IDS])
    # First one in the middle, then the last.
    tails, budgets = [[11], [21, 22, 23], [11], [31, 32]], [5, 2, 6, 3]
    branches, logits = prompt.fork(tails, 6)
    before = len(fed)
    results = generate_branches(branches, logits, [_greedy] * 4, (), budgets, Limits())
    assert fed[before:] == [4, 3, 2, 2, 1]
    for tail, budget, result in zip(tails, budgets, results, strict=True):
        assert list(result.tokens) == _greedy_reference(weights, [*IDS, *tail], budget)


@pytest.mark.parametrize(
    ("stepwise", "batch", "refusal"),
    [
        # Deviations of a row read token by token, and of a row in a batch, from the row read in one run.
        (0.0, 0.001, None),
        (0.02, 0.02, None),
        (0.1, 0.12, None),
        (0.0, 0.1, "correlate only by 0.99"),
        (0.3, 0.3, "correlate only by 0.9"),
        (0.0, -0.01, "likeliest tokens differ from those"),
    ],
)
def test_a_batch_may_differ_from_its_rows_as_much_as_these_do_from_themselves(
    opened: Callable[[str], Opened], monkeypatch: pytest.MonkeyPatch, stepwise: float, batch: float, refusal: str | None
) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((2, 60_000)).astype(np.float32)
    rows[:, 7] = 6.0

    def moved(by: float) -> np.ndarray:
        other = (rows + abs(by) * rng.standard_normal(rows.shape)).astype(np.float32)
        if by < 0:
            other[:, 7] = 0.0
        return other

    class Scripted:
        """A session that answers the probe in order: the prompt, both rows at once, the second in two steps."""

        def __init__(self, *answers: np.ndarray) -> None:
            self.answers = iter(answers)

        def append(self, rows: Rows) -> np.ndarray:
            return next(self.answers)

        def checkpoint(self) -> None:
            pass

        def restore(self, state: None) -> None:
            pass

        def fork(self, tails: Rows, room: int) -> object:
            return Scripted(moved(batch)), None

    decoder = Decoder.__new__(Decoder)
    answers = (rows[:1], rows[:1], rows[1:], rows[:1], moved(stepwise)[1:])
    monkeypatch.setattr(decoder, "open_context", lambda capacity: Scripted(*answers), raising=False)
    told = decoder.branches_refusal
    assert told is None if refusal is None else told is not None and refusal in told


def test_a_full_context_is_refused(opened: Callable[[str], Opened]) -> None:
    context = opened("fp32")[0].open_context(8)
    with pytest.raises(ValueError, match="cannot hold"):
        context.append([IDS])


def test_reading_all_but_the_last_tokens_first_gives_the_same_logits(opened: Callable[[str], Opened]) -> None:
    for case in ("fp32", "plain"):
        decoder, weights, tolerance = opened(case)
        context = decoder.open_context(32, batch=2)
        context.reads_in_two = True
        rows = [IDS, IDS[:4]]
        expected = np.array([reference_logits(weights, row)[-1] for row in rows])
        assert np.abs(context.append(rows) - expected).max() < tolerance
        assert context.lengths == [12, 4]
