import shutil
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.errors import ModelError, NotFoundError, QmdError, UsageError
from qmd.inference.models.builtin import MINILM
from qmd.inference.models.catalogue import JINA_ZH, QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.models.folders import model_path, read_manifest
from qmd.inference.records import ModelFile, ModelFormat
from qmd.plugins.models.fetch.archives import export_model, import_model
from qmd.plugins.models.fetch.downloads import formats_to_pull, pull_model
from qmd.plugins.models.fetch.hub import HubFile
from qmd.plugins.models.fetch.transfer import fetch
from qmd.plugins.models.inventory import list_models, remove_model, verify_model
from tests.plugins.models.model_hub import COMMIT, WEIGHTS, FakeHub

RECORD = replace(
    QWEN_RERANKER,
    formats=(
        ModelFormat("fp16", ModelFile("onnx/model.onnx"), "cuda"),
        ModelFormat("q8", ModelFile("model.onnx"), "cpu"),
    ),
    files=(ModelFile("tokenizer.json"), ModelFile("config.json"), ModelFile("absent.json")),
)


def _pull(hub: FakeHub, models_dir: Path, *formats: str, **env: str) -> tuple[str, ...]:
    return pull_model(RECORD, models_dir, formats=formats or None, env=hub.env(**env)).fetched


def test_a_pull_places_the_common_files_and_the_format_for_a_cpu(hub: FakeHub, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    report = pull_model(RECORD, tmp_path, env=hub.env(), on_progress=lambda *step: seen.append(step))
    assert set(report.fetched) == {"tokenizer.json", "config.json", "model.onnx"}
    assert (report.folder / "model.onnx").read_bytes() == WEIGHTS[:5000]
    assert ("model.onnx", 5000, 5000) in seen
    manifest = read_manifest(report.folder)
    assert manifest is not None and manifest.commit == COMMIT and len(manifest.files) == 3
    assert not list((tmp_path / ".staging").glob("*/*"))


def test_a_machine_with_cuda_needs_the_formats_made_for_it() -> None:
    pulled = {
        record.role: (formats_to_pull(record, has_cuda=False), formats_to_pull(record, has_cuda=True))
        for record in (JINA_ZH, QWEN_EXPANDER, QWEN_RERANKER)
    }
    assert pulled == {
        "embed": (("int8",), ("fp16",)),
        "expand": (("q4",), ("q4f16",)),
        "rerank": (("fp16",), ("fp16",)),
    }


def _fetch(hub: FakeHub, target: Path) -> None:
    url = f"{hub.url}/{RECORD.repository}/resolve/main/onnx/model.onnx"
    fetch(HubFile("onnx/model.onnx", url, len(WEIGHTS), None, None, {}), target, sleep=lambda s: None)


def test_a_dropped_connection_is_resumed_at_the_next_byte(hub: FakeHub, tmp_path: Path) -> None:
    target = tmp_path / "partial"
    hub.drop_after = [1_000_000, 500_000]
    _fetch(hub, target)
    assert target.read_bytes() == WEIGHTS
    assert [byte_range for _, _, byte_range in hub.requests] == [None, "bytes=1000000-", "bytes=1500000-"]


def test_a_connection_that_keeps_dropping_keeps_the_part_and_says_how_to_go_on(hub: FakeHub, tmp_path: Path) -> None:
    target = tmp_path / "partial"
    hub.drop_after = [1000] + [0] * 20
    with pytest.raises(ModelError) as caught:
        _fetch(hub, target)
    assert target.stat().st_size == 1000
    assert "resumes" in (caught.value.hint or "")


def test_an_interrupted_pull_is_continued_by_the_next(hub: FakeHub, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(path: str, done: int, total: int | None) -> None:
        if path == "onnx/model.onnx" and done >= 1 << 20:
            raise Stop

    with pytest.raises(Stop):
        pull_model(RECORD, tmp_path, formats=["fp16"], env=hub.env(), on_progress=stop)
    assert not (tmp_path / RECORD.folder / "onnx").exists()
    hub.requests.clear()
    _pull(hub, tmp_path, "fp16")
    ranges = [byte_range for command, name, byte_range in hub.requests if command == "GET" and "onnx" in name]
    assert ranges and ranges[0] is not None
    assert (tmp_path / RECORD.folder / "onnx/model.onnx").read_bytes() == WEIGHTS


def test_a_wrong_checksum_is_refused_and_the_earlier_file_stays(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path, "fp16")
    hub.wrong_tags = True
    with pytest.raises(ModelError, match="sha256"):
        pull_model(RECORD, tmp_path, formats=["fp16"], env=hub.env(), refresh=True)
    assert (tmp_path / RECORD.folder / "onnx/model.onnx").read_bytes() == WEIGHTS
    assert all(check.status == "ok" for check in verify_model(RECORD, tmp_path))


@pytest.mark.parametrize("switch", ["QMD_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_opens_no_socket(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(ModelError, match=f"{switch} is set") as caught:
        _pull(hub, tmp_path, **{switch: "1"})
    assert "import" in (caught.value.hint or "")
    assert hub.requests == []


def test_a_full_disk_is_named_at_the_start(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1 << 20))
    with pytest.raises(ModelError, match="not enough space"):
        _pull(hub, tmp_path)
    assert all(command == "HEAD" for command, _, _ in hub.requests)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up_on_the_way_is_one_clear_line(hub: FakeHub) -> None:
    with pytest.raises(ModelError, match="No space left") as caught:
        _fetch(hub, Path("/dev/full"))
    assert "\n" not in caught.value.message


def test_an_unknown_repository_and_a_dead_hub_are_one_clear_line_each(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(QmdError) as unknown:
        pull_model(replace(RECORD, repository="some/other"), tmp_path, env=hub.env())
    with pytest.raises(ModelError) as dead:
        pull_model(RECORD, tmp_path, env={"HF_ENDPOINT": "http://127.0.0.1:9"})
    for caught in (unknown, dead):
        assert "\n" not in caught.value.message


def test_a_built_in_model_and_an_unknown_format_are_wrong_usage(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        pull_model(MINILM, tmp_path, env=hub.env())
    with pytest.raises(UsageError, match="q9"):
        _pull(hub, tmp_path, "q9")


def test_verify_tells_damaged_and_missing_files(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path, "fp16", "q8")
    folder = tmp_path / RECORD.folder
    damaged = bytearray(WEIGHTS)
    damaged[1000] ^= 1
    (folder / "onnx/model.onnx").write_bytes(damaged)
    (folder / "config.json").unlink()
    found = {check.path: check.status for check in verify_model(RECORD, tmp_path)}
    assert found == {"onnx/model.onnx": "damaged", "config.json": "missing", "model.onnx": "ok", "tokenizer.json": "ok"}


def test_a_hand_made_folder_is_verified_as_far_as_anything_is_known(tmp_path: Path) -> None:
    folder = tmp_path / RECORD.folder
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"x")
    (folder / "tokenizer.json").write_bytes(b"{}")
    assert {check.status for check in verify_model(RECORD, tmp_path)} == {"unknown"}


@pytest.mark.parametrize("name", ["model.tar", "model.tar.gz", "folder"])
def test_an_exported_model_is_imported_elsewhere(hub: FakeHub, tmp_path: Path, name: str) -> None:
    _pull(hub, tmp_path / "a", "q8")
    target = export_model(RECORD, tmp_path / "a", tmp_path / "out" / name)
    assert import_model(target, tmp_path / "b").name == RECORD.name
    assert (tmp_path / "b" / RECORD.folder / "model.onnx").read_bytes() == WEIGHTS[:5000]
    assert read_manifest(tmp_path / "b" / RECORD.folder) == read_manifest(tmp_path / "a" / RECORD.folder)
    assert not list((tmp_path / "b").glob(".import-*"))
    assert not list((tmp_path / "out").glob("*.partial"))


def test_a_damaged_export_is_refused_and_the_earlier_model_stays(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path / "a", "q8")
    exported = export_model(RECORD, tmp_path / "a", tmp_path / "exported")
    import_model(exported, tmp_path / "b")
    (exported / "model.onnx").write_bytes(b"y" * 5000)
    with pytest.raises(ModelError, match="damaged"):
        import_model(exported, tmp_path / "b")
    assert (tmp_path / "b" / RECORD.folder / "model.onnx").read_bytes() == WEIGHTS[:5000]


def test_a_truncated_archive_is_one_clear_line(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path / "a", "q8")
    whole = export_model(RECORD, tmp_path / "a", tmp_path / "whole.tar")
    whole.write_bytes(whole.read_bytes()[:3000])
    with pytest.raises(QmdError) as caught:
        import_model(whole, tmp_path / "b", RECORD)
    assert "\n" not in caught.value.message
    assert {path.suffix for path in (tmp_path / "b").rglob("*") if path.is_file()} == {".lock"}
    assert not list((tmp_path / "b").rglob("*.importing"))


def test_an_import_that_names_no_model_asks_for_the_name(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError, match="which model"):
        import_model(tmp_path / "x", tmp_path / "b")
    with pytest.raises(NotFoundError):
        import_model(tmp_path / "nowhere", tmp_path / "b")


def test_a_removed_model_is_gone_and_its_size_told(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path, "q8")
    assert remove_model(RECORD, tmp_path) > 5000
    assert not (tmp_path / RECORD.folder).exists()
    assert not list(tmp_path.glob(".removed-*"))
    with pytest.raises(NotFoundError):
        remove_model(RECORD, tmp_path)
    with pytest.raises(NotFoundError, match="not on this machine"):
        model_path(RECORD, tmp_path)
    with pytest.raises(UsageError):
        remove_model(MINILM, tmp_path)


def test_a_linked_model_folder_loses_the_link_and_not_the_files(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path / "a", "q8")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / RECORD.folder).symlink_to(tmp_path / "a" / RECORD.folder)
    remove_model(RECORD, tmp_path / "b")
    assert (tmp_path / "a" / RECORD.folder / "model.onnx").exists()


def test_the_list_shows_what_is_here(tmp_path: Path) -> None:
    states = {state.record.name: state for state in list_models(tmp_path)}
    assert states[MINILM.name].is_present
    assert not states[QWEN_RERANKER.name].is_present
    folder = tmp_path / QWEN_RERANKER.folder
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"x" * 10)
    (folder / "tokenizer.json").write_bytes(b"{}")
    state = next(state for state in list_models(tmp_path) if state.record is QWEN_RERANKER)
    assert state.is_present and state.formats == ("fp16",)
