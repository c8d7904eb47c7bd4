"""Broken model files and failed pulls: one clear line, and search by words still works."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.files import exclusive_lock
from qmd.inference.loader import load_engines
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.models.catalogue import JINA_ZH, QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.onnx_files import FLOAT
from qmd.inference.records import ModelRecord
from qmd.inference.settings import EngineSettings
from qmd.plugins.onnx.model import value_info
from tests.inference.exported_graphs import PublishedWriter
from tests.inference.tiny_models import PUBLISHED, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer
from tests.plugins.models.model_hub import WEIGHTS, FakeHub, Reply, serve_hub
from tests.program import Qmd, Run

BUILTIN = locate_builtin()
Break = Callable[[Path], None]


class ExtraInputWriter(PublishedWriter):
    """Model with an extra input for an image."""

    def network(self) -> None:
        super().network()
        self.inputs.append(value_info("pixel_values", FLOAT, ["batch", 3]))


def _truncate(weights: Path) -> None:
    weights.write_bytes((BUILTIN / "model.onnx").read_bytes()[:1_000_000])


def _corrupt(weights: Path) -> None:
    weights.write_bytes(bytes(range(256)) * 4000)


def _empty_page(weights: Path) -> None:
    weights.write_text("<html><body>Please log in</body></html>")


def _other_model(weights: Path) -> None:
    weights.write_bytes((BUILTIN / "model.onnx").read_bytes())


def _decoder(weights: Path) -> None:
    write_model(weights, PUBLISHED, random_weights())


def _without_data(weights: Path) -> None:
    write_model(weights, replace(PUBLISHED, head="score"), random_weights(), external=True)
    weights.with_name(f"{weights.name}_data").unlink()


def _extra_input(weights: Path) -> None:
    write_model(weights, PUBLISHED, random_weights(), writer=ExtraInputWriter)


BROKEN: dict[str, tuple[ModelRecord, Break, str]] = {
    # case: model, damage to its file, words of the message
    "embedder, truncated": (JINA_ZH, _truncate, "cannot be used"),
    "embedder, corrupt": (JINA_ZH, _corrupt, "cannot be used"),
    "embedder, a web page": (JINA_ZH, _empty_page, "cannot be used"),
    "embedder, of another size": (JINA_ZH, _other_model, "384 dimensions, expected 768"),
    "embedder, a decoder": (JINA_ZH, _decoder, "cannot be used"),
    "embedder, without its data": (JINA_ZH, _without_data, "cannot be used"),
    "reranker, truncated": (QWEN_RERANKER, _truncate, "cannot be used"),
    "reranker, corrupt": (QWEN_RERANKER, _corrupt, "cannot be used"),
    "reranker, an encoder": (QWEN_RERANKER, _other_model, "cannot be used"),
    "reranker, without its data": (QWEN_RERANKER, _without_data, "cannot be used"),
    "reranker, of other inputs": (QWEN_RERANKER, _extra_input, "unexpected input 'pixel_values'"),
    "expander, truncated": (QWEN_EXPANDER, _truncate, "cannot be used"),
    "expander, an encoder": (QWEN_EXPANDER, _other_model, "cannot be used"),
    "expander, without its data": (QWEN_EXPANDER, _without_data, "cannot be used"),
    "expander, of other inputs": (QWEN_EXPANDER, _extra_input, "unexpected input 'pixel_values'"),
}


@pytest.fixture
def models(home: Path, tmp_path: Path) -> Path:
    return tmp_path / "cache" / "qmd" / "models"


@pytest.fixture
def embedded(indexed: Qmd) -> Qmd:
    assert indexed("embed").status == 0
    return indexed


def _place(models: Path, record: ModelRecord, damage: Break) -> Path:
    folder = models / record.folder
    write_tokenizer(folder)
    weights = folder / record.format_for("cpu").weights.path
    weights.parent.mkdir(parents=True, exist_ok=True)
    damage(weights)
    return weights


def _paths(run: Run) -> list[str]:
    assert run.status == 0, run.err
    return [row["file"] for row in run.json]


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_model_is_one_line_with_a_remedy(models: Path, case: str) -> None:
    record, damage, words = BROKEN[case]
    _place(models, record, damage)
    (line,) = load_engines(EngineSettings(models, allow_gpu=False), [record.role]).failures
    assert f"model '{record.name}'" in line and words in line and "qmd models" in line
    assert "\n" not in line


@pytest.mark.parametrize("record", [JINA_ZH, QWEN_RERANKER, QWEN_EXPANDER], ids=lambda record: str(record.role))
def test_beside_a_broken_model_the_words_still_answer(embedded: Qmd, models: Path, record: ModelRecord) -> None:
    _place(models, record, _truncate)
    run = embedded("query", "sliding window limiter", "--json", "--expand")
    assert "sunday.md" in _paths(run)[0]
    assert "Traceback" not in run.err
    assert len([line for line in run.err.splitlines() if f"model '{record.name}'" in line]) == 1, run.err


def test_a_broken_tokenizer_is_one_line(embedded: Qmd, models: Path) -> None:
    weights = _place(models, QWEN_RERANKER, _decoder)
    (weights.parent / "tokenizer.json").write_text('{"version": "1.0", "model"')
    run = embedded("query", "sliding window limiter", "--json")
    assert "sunday.md" in _paths(run)[0]
    assert len([line for line in run.err.splitlines() if "tokenizer" in line]) == 1


@pytest.mark.parametrize("command", ["index", "embed"])
def test_a_broken_embedding_model_is_status_4_after_the_words_are_indexed(
    embedded: Qmd, models: Path, notes: Path, command: str
) -> None:
    _place(models, JINA_ZH, _truncate)
    (notes / "new.md").write_text("# Zebra\n\nA zebra has stripes.\n")
    if command == "embed":
        embedded("update")
    run = embedded(command)
    assert run.status == 4
    assert len([line for line in run.err.splitlines() if line.startswith("error: ")]) == 1
    assert JINA_ZH.name in run.err
    assert "new.md" in _paths(embedded("search", "zebra", "--json"))[0]


def test_the_vectors_of_before_are_used_again_once_the_broken_model_is_gone(embedded: Qmd, models: Path) -> None:
    _place(models, JINA_ZH, _truncate)
    assert embedded("models", "remove", JINA_ZH.name).status == 0
    run = embedded("vsearch", "sliding window limiter", "--json")
    assert "sunday.md" in _paths(run)[0]
    assert "warning" not in run.err


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("no_proxy", "*")
    with serve_hub() as running:
        running.files["model.onnx"] = WEIGHTS
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def _refused(run: Run, words: str) -> None:
    assert run.status == 4
    assert words in run.err
    assert "Traceback" not in run.err
    assert len([line for line in run.err.splitlines() if line.startswith("error: ")]) == 1


def test_a_dropped_connection_is_resumed(qmd: Qmd, hub: FakeHub, models: Path) -> None:
    hub.drop_after = [10**9, 10**9, 1_000_000]
    run = qmd("pull", QWEN_RERANKER.name)
    assert run.status == 0, run.err
    assert (models / QWEN_RERANKER.folder / "model.onnx").read_bytes() == WEIGHTS
    assert "bytes=1000000-" in {byte_range for _, _, byte_range in hub.requests}


def test_a_hub_that_is_gone_is_one_line(qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "*")
    _refused(qmd("pull", QWEN_RERANKER.name), "model hub cannot be reached")


def test_a_disk_without_room_is_told_and_the_earlier_files_stay(
    qmd: Qmd, hub: FakeHub, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert qmd("pull", QWEN_RERANKER.name).status == 0
    hub.files["model.onnx"] = WEIGHTS[::-1]
    nearly_full = shutil._ntuple_diskusage(10**9, 10**9, 1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: nearly_full)
    _refused(qmd("pull", QWEN_RERANKER.name, "--refresh"), "not enough space")
    assert (models / QWEN_RERANKER.folder / "model.onnx").read_bytes() == WEIGHTS
    assert qmd("models", "verify", QWEN_RERANKER.name).status == 0


def test_a_disk_that_fills_up_on_the_way_is_told_and_the_next_pull_goes_on(
    qmd: Qmd, hub: FakeHub, models: Path
) -> None:
    resource = pytest.importorskip("resource", reason="needs limits on the size of files")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        run = qmd("pull", QWEN_RERANKER.name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    _refused(run, "cannot write")
    assert not (models / QWEN_RERANKER.folder).exists()
    assert qmd("pull", QWEN_RERANKER.name).status == 0
    assert any(byte_range for _, _, byte_range in hub.requests)


def test_a_file_with_a_wrong_checksum_is_refused_and_the_earlier_one_stays(
    qmd: Qmd, hub: FakeHub, models: Path
) -> None:
    assert qmd("pull", QWEN_RERANKER.name).status == 0
    hub.wrong_tags = True
    _refused(qmd("pull", QWEN_RERANKER.name, "--refresh"), "sha256")
    assert (models / QWEN_RERANKER.folder / "model.onnx").read_bytes() == WEIGHTS


def test_a_newer_version_is_told_beside_the_result(qmd: Qmd, hub: FakeHub, models: Path) -> None:
    assert qmd("pull", QWEN_RERANKER.name).status == 0
    hub.files["model.onnx"] = WEIGHTS[::-1]
    run = qmd("pull", QWEN_RERANKER.name)
    assert run.status == 0 and "already downloaded" in run.out
    assert f"'qmd models pull {QWEN_RERANKER.name} --refresh' takes it" in run.err
    run = qmd("pull", QWEN_RERANKER.name, "--refresh")
    assert run.status == 0 and "other bytes in model.onnx" in run.err
    assert (models / QWEN_RERANKER.folder / "model.onnx").read_bytes() == WEIGHTS[::-1]


def test_a_second_pull_at_the_same_time_says_so_without_words_of_the_database(
    qmd: Qmd, hub: FakeHub, models: Path
) -> None:
    with exclusive_lock(models / ".staging" / f"{QWEN_RERANKER.folder}.lock") as is_held:
        assert is_held
        run = qmd("pull", QWEN_RERANKER.name)
    assert run.status == 5
    assert f"error: model '{QWEN_RERANKER.name}' is being fetched by another process\n" in run.err


def test_a_refusal_of_the_hub_is_told_as_one(qmd: Qmd, hub: FakeHub, models: Path) -> None:
    hub.reply = lambda asked: Reply(403, {"X-Error-Code": "GatedRepo"})
    run = qmd("pull", QWEN_RERANKER.name)
    _refused(run, f"'{QWEN_RERANKER.repository}' is gated")
    assert "HF_TOKEN" in run.err and "check the connection" not in run.err
