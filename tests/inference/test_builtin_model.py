"""The built-in model: the committed files, checked against fp32 vectors made without the ONNX graph."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from qmd.cli.app import main
from qmd.inference.engines.embedder import OnnxEmbedder
from qmd.inference.models.builtin import MINILM, MULTILINGUAL, find_builtin, is_word, locate_builtin
from qmd.inference.models.weights import locate_model

LOWEST_COSINE = 0.99
"""The recipe measured 0.9914 at worst on these texts; another CPU's kernels may differ in the last digits."""


def canonical() -> list[tuple[str, np.ndarray]]:
    entries = json.loads((locate_builtin() / "canonical.json").read_text(encoding="utf-8"))
    return [(entry["text"], np.array(entry["vector"])) for entry in entries]


def test_vectors_agree_with_the_fp32_weights(embedder: OnnxEmbedder) -> None:
    texts, expected = zip(*canonical(), strict=True)
    cosines = (embedder.embed_documents(texts) * np.array(expected)).sum(axis=1)
    assert cosines.min() >= LOWEST_COSINE


def test_different_texts_keep_their_distances_to_each_other(embedder: OnnxEmbedder) -> None:
    texts, expected = zip(*canonical(), strict=True)
    ours = embedder.embed_documents(texts)
    reference = np.array(expected)
    assert np.abs(ours @ ours.T - reference @ reference.T).max() < 0.06


def test_every_file_is_the_one_its_provenance_names() -> None:
    folder = locate_builtin()
    text = (folder / "PROVENANCE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| `([0-9a-f]{64})` \|$", text, re.M)
    present = {name: digest for name, digest in rows if (folder / name).is_file()}
    assert set(present) == {"model.onnx", "model_batches.onnx", "tokenizer.json", "canonical.json"}
    for name, digest in present.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_catalogue_records_the_built_in_files_exactly() -> None:
    folder = locate_builtin()
    assert MINILM.batches is not None
    for file in (MINILM.formats[0].weights, MINILM.batches, *MINILM.files):
        content = (folder / file.path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size_bytes, file.sha256)


def test_built_in_licence_is_beside_the_model() -> None:
    assert "Apache License" in (locate_builtin() / "LICENSE").read_text(encoding="utf-8")


def test_built_in_model_stays_under_25_million_bytes() -> None:
    assert (locate_builtin() / "model.onnx").stat().st_size < 25_000_000


def test_built_in_model_is_found_whatever_the_models_folder_is(tmp_path: Path) -> None:
    assert locate_model(MINILM, tmp_path) == locate_builtin()


@pytest.mark.parametrize("command", ["path", "verify", "pull"])
def test_a_built_in_model_without_its_package_names_the_command_that_installs_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A package of that name without the model goes before the real one, if there is one.
    (tmp_path / "qmd_multilingual").mkdir()
    (tmp_path / "qmd_multilingual/__init__.py").write_text("raise SystemExit('it was run')")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_builtin(MULTILINGUAL) is None
    assert main(["models", command, "multilingual"]) == 4
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error == "error: the package qmd-search-multilingual of a clone of qmd is not installed"
    assert re.search(r"install .*models/multilingual'?$", hint)
    assert main(["models", "list"]) == 0
    assert re.search(r"multilingual +built-in +not installed", capsys.readouterr().out)


@pytest.mark.parametrize(
    "word",
    ["divorce", "decide", "Decided", "divorcing", "shopped", "happily", "elections", "1736", "café", "greediness"],
)
def test_a_word_of_the_vocabulary_and_its_inflections_are_words(word: str) -> None:
    assert is_word(word)


@pytest.mark.parametrize(
    "typed", ["reprsentative", "selction", "recieve", "happend", "##ing", 'ing":1', "", "kubernetes", "слово", "casz"]
)
def test_a_typing_error_and_a_piece_are_no_words(typed: str) -> None:
    assert not is_word(typed)


def test_every_whole_word_of_the_shipped_tokenizer_is_known() -> None:
    tokenizer = json.loads((locate_builtin() / "tokenizer.json").read_text(encoding="utf-8"))
    whole = [word for word in tokenizer["model"]["vocab"] if word.isascii() and word.isalpha()]
    assert len(whole) > 20_000
    assert all(map(is_word, whole[::500]))
