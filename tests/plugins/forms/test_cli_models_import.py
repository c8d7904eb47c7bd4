"""Taking over models that other programs brought."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import gguf
import pytest

from qmd.cli.app import main
from tests.plugins.forms.gguf_files import write_gemma, write_qwen3

EXPANDER = "qmd-query-expansion-1.7B-q4_k_m"


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of models, which is tobi/qmd's as well."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "cache" / "qmd" / "models"
    folder.mkdir(parents=True)
    return folder


def _tobi(models: Path) -> None:
    """The three files of tobi/qmd, small."""
    write_qwen3(models / f"hf_tobil_{EXPANDER}.gguf", {"": "Q4_K", "attn_v": "Q6_K", "token_embd": "Q6_K"})
    ranks = {"pooling": gguf.PoolingType.RANK, "classes": True}
    write_qwen3(models / "hf_ggml-org_qwen3-reranker-0.6b-q8_0.gguf", "Q8_0", **ranks)  # type: ignore[arg-type]
    write_gemma(models / "hf_ggml-org_embeddinggemma-300M-Q8_0.gguf", "Q8_0")


def test_one_command_takes_over_the_models_of_tobis_qmd(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _tobi(models)
    assert main(["models", "list"]) == 0
    listed = capsys.readouterr().out
    assert f"qmd models import {shlex.quote(str(models / f'hf_tobil_{EXPANDER}.gguf'))}" in listed
    assert main(["models", "import", str(models)]) == 0
    shown = capsys.readouterr()
    assert [line.split()[2:4] for line in shown.out.splitlines()] == [
        ["embeddinggemma-300M-Q8_0", "(embed)"],
        ["qwen3-reranker-0.6b-q8_0", "(rerank)"],
        [EXPANDER, "(expand)"],
    ]
    assert f"generate: {EXPANDER}" in shown.err
    assert main(["models", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[EXPANDER]["present"] and not any("import" in row for row in rows.values())
    assert main(["models", "verify", EXPANDER]) == 0
    assert main(["models", "import", str(models)]) == 0
    assert capsys.readouterr().out.count("already imported") == 3


def test_the_configuration_of_tobis_qmd_is_served_by_its_own_models_once_they_are_imported(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _tobi(models)
    (tmp_path / "config" / "qmd").mkdir(parents=True)
    (tmp_path / "config" / "qmd" / "index.yml").write_text(
        "models:\n"
        "  embed: hf:ggml-org/embeddinggemma-300M-GGUF/embeddinggemma-300M-Q8_0.gguf\n"
        "  rerank: hf:ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF/qwen3-reranker-0.6b-q8_0.gguf\n"
    )
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# The sea\n\nthe search for the other thing\n")
    assert main(["collection", "add", str(tmp_path / "notes"), "--name", "notes"]) == 0
    assert main(["embed"]) == 0
    assert "models import" in capsys.readouterr().err
    assert main(["models", "import", str(models)]) == 0
    assert main(["embed", "-f"]) == 0
    shown = capsys.readouterr()
    assert "embeddinggemma-300M-Q8_0" in shown.out + shown.err
    assert main(["query", "the sea", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) and "import" not in shown.err


def test_a_model_that_is_not_read_stops_no_others_of_its_folder(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_qwen3(models / "b.gguf", "Q8_0")
    writer = gguf.GGUFWriter(str(models / "a.gguf"), "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert main(["models", "import", str(models)]) == 4
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("✗ a is not imported") and "'llama'" in first
    assert second.startswith("✓ Imported b")
    assert main(["models", "import", str(models / "a.gguf")]) == 4
    assert main(["models", "list"]) == 0
    assert "a.gguf" not in capsys.readouterr().out


def test_a_role_and_a_name_can_be_given(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_qwen3(tmp_path / "x.gguf", "Q8_0")
    assert main(["models", "import", str(tmp_path / "x.gguf"), "--role", "embed", "--name", "mine"]) == 0
    assert "Imported mine (embed)" in capsys.readouterr().out
    assert main(["models", "import", str(tmp_path / "x.gguf"), "--role", "chat"]) == 2
    assert main(["models", "remove", "mine"]) == 0
    assert not list(models.glob("imported--*"))


@pytest.mark.parametrize("asked", ["ollama:none", "hf:a/b/c.gguf", "none.gguf"])
def test_what_is_not_here_is_said_in_one_line(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "import", asked]) == 3
    assert capsys.readouterr().err.startswith("error: ")
