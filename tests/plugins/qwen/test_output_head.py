"""An expander with logits of some rows writes the same text as with all of them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.models.catalogue import QWEN_EXPANDER
from qmd.inference.records import ModelFile, ModelFormat
from qmd.inference.runtime.sessions import open_session
from qmd.inference.settings import EngineSettings
from qmd.plugins.qwen.decoding import Decoder
from qmd.plugins.qwen.expansion import ExpanderOptions, QwenExpander, load_expander
from qmd.plugins.qwen.grammar import LineGrammar
from qmd.plugins.qwen.output_head import OutputHead
from tests.inference.exported_graphs import ExportForm
from tests.inference.tiny_models import PUBLISHED, SHAPE, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer

MIXED = replace(PUBLISHED, linear="q4", table="q8", positions=False, has_zeros=True, accuracy_level=4)
"""The layout of the published file for a CPU: logits of every token, and a zero point for every block."""
FORMS = {"own": ExportForm(linear="q4", block=32), "published": MIXED}
FORMS["four-bit-table"] = ExportForm(linear="q8", table="q4", block=32)
RECORD = replace(QWEN_EXPANDER, formats=(ModelFormat("q4", ModelFile("model.onnx"), "cpu"),))
PROMPT = [5, 6, 7]


def _write(folder: Path, form: ExportForm) -> Path:
    write_tokenizer(folder)
    write_model(folder / "model.onnx", form, random_weights(), external=True)
    return folder / "model.onnx"


def _load(folder: Path, mode: str = "batched") -> QwenExpander:
    options = ExpanderOptions(mode=mode)  # type: ignore[arg-type]
    return load_expander(folder, RECORD, EngineSettings(folder, allow_gpu=False, threads=1), options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["batched", "sequential"])
def test_lines_are_those_of_the_whole_graph(form: str, mode: str, tmp_path: Path) -> None:
    path = _write(tmp_path, FORMS[form])
    expander = _load(tmp_path, mode)
    assert expander.session.head is not None and expander.handling == ()
    whole = Decoder(open_session(path, format="q4", threads=1))
    plain = QwenExpander(whole, expander.tokenizer, expander.description, ExpanderOptions(mode=mode))  # type: ignore[arg-type]
    for query in ("yes the", "Wie heißt es?", "что это", "42"):
        assert expander.expand(query) == plain.expand(query)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_rows", [1, 16, 100, SHAPE.vocab])
def test_logits_of_the_chosen_rows_are_those_of_the_whole_graph(form: str, n_rows: int, tmp_path: Path) -> None:
    path = _write(tmp_path, FORMS[form])
    head = OutputHead(path, 1)
    rest = Decoder(
        replace(open_session(path, format="q4", threads=1, graph=head.graph, options=head.options), head=head)
    )
    allowed = np.zeros(SHAPE.vocab, np.bool_)
    allowed[np.random.default_rng(n_rows).permutation(SHAPE.vocab)[:n_rows]] = True
    head.choose(allowed)
    expected = Decoder(open_session(path, format="q4", threads=1)).open_context(8).append([PROMPT])[0]
    logits = rest.open_context(8).append([PROMPT])[0]
    assert np.array_equal(logits[allowed], expected[allowed])
    assert np.isneginf(logits[~allowed]).all()


def test_scales_may_be_flat(tmp_path: Path) -> None:
    path = _write(tmp_path, MIXED)
    model = onnx.load(str(path))
    last = next(node for node in reversed(model.graph.node) if node.op_type == "MatMulNBits")
    scales = next(tensor for tensor in model.graph.initializer if tensor.name == last.input[2])
    values = onnx.numpy_helper.to_array(scales)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values.reshape(-1), "flat"))
    before = _load(tmp_path).expand("yes the")
    last.input[2] = "flat"
    onnx.save(model, str(path))
    expander = _load(tmp_path)
    assert expander.session.head is not None and expander.expand("yes the") == before


def test_a_graph_that_ends_otherwise_is_opened_whole(tmp_path: Path) -> None:
    _write(tmp_path, replace(MIXED, table="fp"))
    expander = _load(tmp_path)
    assert expander.session.head is None
    assert len(expander.expand("yes").subqueries) + len(expander.expand("yes").dropped) == 4


def _edited(path: Path, name: str, number: int) -> None:
    model = onnx.load(str(path), load_external_data=False)
    last = next(node for node in reversed(model.graph.node) if node.op_type == "MatMulNBits")
    next(one for one in last.attribute if one.name == name).i = number
    onnx.save(model, str(path))


@pytest.mark.parametrize("damage", ["N", "K", "cut off", "outside"])
def test_a_damaged_last_product_is_one_clear_line(damage: str, tmp_path: Path) -> None:
    path = _write(tmp_path, MIXED)
    data = path.with_name("model.onnx_data")
    if damage == "cut off":
        data.write_bytes(data.read_bytes()[:2000])
    elif damage == "outside":
        path.write_bytes(path.read_bytes().replace(b"model.onnx_data", b"../../../../etc"))
    else:
        _edited(path, damage, 32)
    with pytest.raises(ModelError):
        _load(tmp_path).expand("yes")


def test_lines_are_written_in_latin_letters_and_those_of_the_query() -> None:
    words = ["a", "é", " 7", "д", "β", "中", "の", "한", "aд"]
    spellings = [*(word.encode() for word in words), b"\xd0", None]
    grammar = LineGrammar(spellings, {10})

    def written(*scripts: str) -> str:
        mask = grammar.writing_in(frozenset(scripts))
        assert mask[9] and mask[10]  # a piece of a character, and the end
        return "".join(word for word, is_in in zip(words, mask, strict=False) if is_in)

    assert written() == written("LATIN") == "aé 7"
    assert written("CYRILLIC") == "aé 7дaд"
    assert written("CJK") == written("HANGUL", "LATIN") == "aé 7中の한"
    assert LineGrammar([b"\xd0\xb4", None], {1}).writing_in(frozenset()).all()
