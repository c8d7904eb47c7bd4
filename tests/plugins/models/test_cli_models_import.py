"""Import of models of other programs."""

import shlex
from pathlib import Path

import gguf
import pytest

from tests.plugins.models.gguf_files import finish, write_gemma, write_qwen3
from tests.program import Qmd

EXPANDER = "qmd-query-expansion-1.7B-q4_k_m"


@pytest.fixture
def models(home: Path, tmp_path: Path) -> Path:
    """Return the folder of models, which is tobi/qmd's as well."""
    folder = tmp_path / "cache" / "qmd" / "models"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def tobis(models: Path) -> Path:
    """Write small versions of tobi/qmd's three files."""
    write_qwen3(models / f"hf_tobil_{EXPANDER}.gguf", {"": "Q4_K", "attn_v": "Q6_K", "token_embd": "Q6_K"})
    ranks = {"pooling": gguf.PoolingType.RANK, "classes": True}
    write_qwen3(models / "hf_ggml-org_qwen3-reranker-0.6b-q8_0.gguf", "Q8_0", **ranks)  # type: ignore[arg-type]
    write_gemma(models / "hf_ggml-org_embeddinggemma-300M-Q8_0.gguf", "Q8_0")
    return models


def test_one_command_takes_over_the_models_of_tobis_qmd(tobis: Path, qmd: Qmd) -> None:
    file = shlex.quote(str(tobis / f"hf_tobil_{EXPANDER}.gguf"))
    assert f"qmd models import {file}" in qmd("models", "list").out
    run = qmd("models", "import", str(tobis))
    assert run.status == 0
    assert [line.split()[2:4] for line in run.out.splitlines()] == [
        ["embeddinggemma-300M-Q8_0", "(embed)"],
        ["qwen3-reranker-0.6b-q8_0", "(rerank)"],
        [EXPANDER, "(expand)"],
    ]
    assert f"generate: {EXPANDER}" in run.err
    rows = {row["name"]: row for row in qmd("models", "list", "--json").json}
    assert rows[EXPANDER]["present"] and not any("import" in row for row in rows.values())
    assert qmd("models", "verify", EXPANDER).status == 0
    assert qmd("models", "import", str(tobis)).out.count("already imported") == 3


def test_imported_models_serve_a_configuration_of_tobis_qmd(tobis: Path, notes: Path, tmp_path: Path, qmd: Qmd) -> None:
    (tmp_path / "config" / "qmd").mkdir(parents=True)
    (tmp_path / "config" / "qmd" / "index.yml").write_text(
        "models:\n"
        "  embed: hf:ggml-org/embeddinggemma-300M-GGUF/embeddinggemma-300M-Q8_0.gguf\n"
        "  rerank: hf:ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF/qwen3-reranker-0.6b-q8_0.gguf\n"
    )
    assert qmd("collection", "add", str(notes)).status == 0
    run = qmd("embed")
    assert (run.status, "models import" in run.err) == (0, True)
    assert qmd("models", "import", str(tobis)).status == 0
    run = qmd("embed", "-f")
    assert (run.status, "embeddinggemma-300M-Q8_0" in run.out + run.err) == (0, True)
    run = qmd("query", "the rate limiter", "--json")
    assert run.json and "import" not in run.err


def test_a_model_that_is_not_read_stops_no_others_of_its_folder(models: Path, qmd: Qmd) -> None:
    write_qwen3(models / "b.gguf", "Q8_0")
    finish(gguf.GGUFWriter(str(models / "a.gguf"), "llama"))
    run = qmd("models", "import", str(models))
    assert run.status == 4
    first, second = run.out.splitlines()
    assert first.startswith("✗ a is not imported") and "'llama'" in first
    assert second.startswith("✓ Imported b")
    assert qmd("models", "import", str(models / "a.gguf")).status == 4
    assert "a.gguf" not in qmd("models", "list").out


def test_a_role_and_a_name_can_be_given(models: Path, tmp_path: Path, qmd: Qmd) -> None:
    write_qwen3(tmp_path / "x.gguf", "Q8_0")
    run = qmd("models", "import", str(tmp_path / "x.gguf"), "--role", "embed", "--name", "mine")
    assert (run.status, "Imported mine (embed)" in run.out) == (0, True)
    assert qmd("models", "import", str(tmp_path / "x.gguf"), "--role", "chat").status == 2
    assert qmd("models", "remove", "mine").status == 0
    assert not list(models.glob("imported--*"))


@pytest.mark.parametrize("asked", ["ollama:none", "hf:a/b/c.gguf", "none.gguf"])
def test_what_is_not_here_is_said_in_one_line(asked: str, qmd: Qmd) -> None:
    run = qmd("models", "import", asked)
    assert (run.status, run.err.startswith("error: ")) == (3, True)


def test_a_form_of_encoders_is_refused_for_other_models(models: Path, tmp_path: Path, qmd: Qmd) -> None:
    write_qwen3(tmp_path / "x.gguf", "Q8_0")
    assert qmd("models", "import", str(tmp_path / "x.gguf"), "--form", "q8").status == 0
    run = qmd("models", "import", str(tmp_path / "x.gguf"), "--form", "int8")
    assert (run.status, run.err) == (2, "error: 'x' has no form 'int8'\nhint: import it with --form q8\n")
    assert qmd("models", "export", "x", str(tmp_path / "x.tar")).status == 0
    run = qmd("models", "import", str(tmp_path / "x.tar"), "--form", "int8")
    assert (run.status, "has no form 'int8'" in run.err, run.err.count("\n")) == (2, True, 2)
