"""Model lookup and the choice of engines."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.inference.loader import EmbedderIdentity, choose_model, identify_embedder, load_engines
from qmd.inference.models.builtin import MINILM, locate_builtin
from qmd.inference.models.catalogue import (
    JINA_ZH,
    MAX_CONTEXT,
    MODELS,
    QWEN_EXPANDER,
    QWEN_RERANKER,
    chunk_tokens,
    find_family,
    find_model,
    full_model,
)
from qmd.inference.models.weights import locate_model
from qmd.inference.records import ModelRecord, Role
from qmd.inference.runtime.sessions import PROVIDER_BY_FORMAT
from qmd.inference.settings import EngineSettings


def place(record: ModelRecord, models_dir: Path) -> Path:
    """Create files with the names of a fetched model, without a model's content."""
    folder = models_dir / record.folder
    for path in (record.formats[0].weights.path, "tokenizer.json"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x")
    return folder


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("all-minilm-l6-v2", MINILM),
        ("Xenova/jina-embeddings-v2-base-zh", JINA_ZH),
        ("hf:onnx-community/Qwen3-0.6B-ONNX", QWEN_EXPANDER),
        ("hf:ggml-org/embeddinggemma-300M-GGUF/embeddinggemma-300M-Q8_0.gguf", JINA_ZH),
        ("hf:tobil/qmd-query-expansion-1.7B-gguf/qmd-query-expansion-1.7B-q4_k_m.gguf", QWEN_EXPANDER),
        ("hf:ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF/qwen3-reranker-0.6b-q8_0.gguf", QWEN_RERANKER),
    ],
)
def test_a_model_is_found_by_name_repository_or_gguf_address(name: str, record: ModelRecord) -> None:
    assert find_model(name) is record


def test_a_model_of_another_role_is_not_found() -> None:
    assert find_model("Qwen3-0.6B", "embed") is None


@pytest.mark.parametrize("role", ["embed", "rerank", "expand"])
def test_every_role_has_a_model_of_the_full_set(role: Role) -> None:
    assert (full_model(role).role, full_model(role).tier) == (role, "full")
    assert full_model(role) in MODELS


def test_every_format_is_one_the_session_factory_knows() -> None:
    assert {item.name for model in MODELS for item in model.formats} <= set(PROVIDER_BY_FORMAT)


@pytest.mark.parametrize("record", [record for record in MODELS if record.role == "embed"])
def test_an_embedding_model_is_fed_as_its_family_is(record: ModelRecord) -> None:
    family = find_family([record.repository], None)
    assert family is not None
    pooled = (family.pooling, family.query_prompt, family.document_prompt)
    assert (record.pooling, record.query_prompt, record.document_prompt) == pooled
    if record.tier == "full":
        assert record.context == min(family.max_length, MAX_CONTEXT)
        assert record.max_tokens == chunk_tokens(record.context, record.document_prompt)


def test_a_model_without_its_tokenizer_is_not_there(tmp_path: Path) -> None:
    folder = place(JINA_ZH, tmp_path)
    assert locate_model(JINA_ZH, tmp_path) == folder
    (folder / "tokenizer.json").unlink()
    assert locate_model(JINA_ZH, tmp_path) is None


def test_auto_takes_the_full_model_where_its_files_are(tmp_path: Path) -> None:
    settings = EngineSettings(tmp_path)
    assert choose_model(settings, "embed").record is None
    place(JINA_ZH, tmp_path)
    assert choose_model(settings, "embed").record is JINA_ZH


def test_built_in_is_kept_when_asked_for(tmp_path: Path) -> None:
    place(JINA_ZH, tmp_path)
    assert choose_model(EngineSettings(tmp_path, embed="built-in"), "embed").record is None


def test_the_configured_model_goes_before_the_environment(tmp_path: Path) -> None:
    settings = EngineSettings(tmp_path, env={"QMD_EMBED_MODEL": "built-in"})
    assert settings.model_for("embed") == "built-in"
    assert replace(settings, embed="jina").model_for("embed") == "jina"


@pytest.mark.parametrize(
    "name", ["hf:someone/thing-GGUF/thing.gguf", "hf:ggml-org/embeddinggemma-300M-GGUF/embeddinggemma-300M-Q8_0.gguf"]
)
def test_a_gguf_address_leaves_the_built_in_model_with_a_note(tmp_path: Path, name: str) -> None:
    engines = load_engines(EngineSettings(tmp_path, embed=name), ["embed"])
    assert engines.embedder is not None
    assert engines.embedder.description.tier == "built-in"
    assert any(name in note for note in engines.notes)
    assert engines.failures == ()


@pytest.mark.parametrize("name", ["no-such-model", "Xenova/jina-embeddings-v2-base-zh"])
def test_a_chosen_model_that_is_not_here_is_no_reason_to_embed_with_another(tmp_path: Path, name: str) -> None:
    engines = load_engines(EngineSettings(tmp_path, embed=name), ("embed", "rerank"))
    assert engines.embedder is None
    assert engines.reranker is not None
    (failure,) = engines.failures
    assert name in failure and "qmd models" in failure
    assert failure in engines.notes


def test_without_downloads_the_built_in_tier_answers_silently(tmp_path: Path) -> None:
    engines = load_engines(EngineSettings(tmp_path), ("embed", "rerank", "expand"))
    assert engines.embedder is not None and engines.reranker is not None
    assert engines.expander is None
    assert engines.notes == ()


@pytest.mark.parametrize("env", [{}, {"QMD_EMBED_MAX_TOKENS": "100"}], ids=repr)
@pytest.mark.parametrize("asked", ["auto", "built-in", str(locate_builtin())])
def test_an_embedder_is_told_from_its_files_as_it_calls_itself_once_it_is_open(
    tmp_path: Path, asked: str, env: dict[str, str]
) -> None:
    settings = EngineSettings(tmp_path, embed=asked, env=env)
    opened = load_engines(settings, ["embed"]).embedder
    assert opened is not None
    assert identify_embedder(settings) == EmbedderIdentity(opened.description, opened.fingerprint)


@pytest.mark.parametrize(
    "asked", ["no-such-model", "http://127.0.0.1:9/v1#name", "fastembed:name", "hf:ggml-org/some-GGUF/some.gguf"]
)
def test_an_embedder_that_must_be_asked_is_not_told_from_its_files(tmp_path: Path, asked: str) -> None:
    assert identify_embedder(EngineSettings(tmp_path, embed=asked)) is None


def test_embedder_and_reranker_share_one_session(tmp_path: Path) -> None:
    engines = load_engines(EngineSettings(tmp_path), ("embed", "rerank"))
    assert engines.embedder.encoder is engines.reranker._encoder  # type: ignore[union-attr]


def test_only_the_asked_roles_are_loaded(tmp_path: Path) -> None:
    engines = load_engines(EngineSettings(tmp_path), ["rerank"])
    assert engines.embedder is None
    assert engines.reranker is not None


def test_a_damaged_embedding_model_is_a_failure_and_a_damaged_reranker_leaves_the_built_in_one(tmp_path: Path) -> None:
    place(JINA_ZH, tmp_path)
    place(QWEN_RERANKER, tmp_path)
    engines = load_engines(EngineSettings(tmp_path), ("embed", "rerank"))
    assert engines.embedder is None
    assert engines.reranker is not None and engines.reranker.description.tier == "built-in"
    assert [name in line for name, line in zip((JINA_ZH.name, QWEN_RERANKER.name), engines.failures, strict=True)]
    assert all("\n" not in line for line in engines.failures)


def test_a_folder_without_a_model_is_a_note(tmp_path: Path) -> None:
    engines = load_engines(EngineSettings(tmp_path, embed=str(tmp_path)), ["embed"])
    assert any(str(tmp_path) in note for note in engines.notes)


def test_at_least_one_thread_is_used() -> None:
    assert EngineSettings(Path(), threads=0).threads_for("rerank") == 1


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers", "numpy"])
def test_a_missing_inference_package_is_a_note_and_no_crash(package: str) -> None:
    program = (
        "import sys; sys.modules[sys.argv[1]] = None\n"
        "from pathlib import Path\n"
        "from qmd.inference.loader import load_engines\n"
        "from qmd.inference.settings import EngineSettings\n"
        "engines = load_engines(EngineSettings(Path('none')), ('embed', 'rerank', 'expand'))\n"
        "assert engines.embedder is None and engines.reranker is None\n"
        "assert len(engines.notes) == 1, engines.notes\n"
        "print(engines.notes[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, package], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert package in done.stdout


def test_the_protocols_are_imported_without_a_heavy_package() -> None:
    program = (
        "import sys, qmd.inference.base, qmd.inference.loader\n"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers', 'fastembed'} & set(sys.modules)\n"
        "sys.exit(' '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
