"""The version of a model that a pull takes, and its messages when the hub has another one."""

import hashlib
import re
from pathlib import Path

import onnx
import pytest
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.models.catalogue import MODELS, QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.models.folders import read_manifest
from qmd.inference.records import UNPINNED, ModelFile, ModelFormat, ModelRecord
from qmd.plugins.models.fetch.archives import import_model
from qmd.plugins.models.fetch.downloads import PullReport, pull_model
from qmd.plugins.models.inventory import verify_model
from tests.plugins.models.model_hub import COMMIT, WEIGHTS, Asked, FakeHub, Reply

RECORD = replace(
    QWEN_RERANKER,
    formats=(
        ModelFormat("q8", ModelFile("model.onnx"), "cpu"),
        ModelFormat("fp16", ModelFile("onnx/model.onnx"), "cuda"),
    ),
    files=(ModelFile("tokenizer.json"), ModelFile("config.json")),
)
NEWER = "b" * 40


@pytest.fixture(autouse=True)
def keep_versions(hub: FakeHub) -> None:
    hub.reply = lambda asked: _only(hub, asked)


def _only(hub: FakeHub, asked: Asked) -> Reply | None:
    """Serve the first version under its commit, and the present `files` as the newest."""
    if asked.revision in (UNPINNED, hub.commit):
        return None
    kept = hub.old.get((asked.revision, asked.name)) if asked.revision == COMMIT else None
    if kept is None:
        return Reply(404, {"X-Error-Code": "RevisionNotFound"})
    headers = {"ETag": f'"{hashlib.sha256(kept).hexdigest()}"', "X-Repo-Commit": COMMIT}
    return Reply(200, headers, kept)


def _publish(hub: FakeHub, name: str, content: bytes) -> None:
    hub.old = {(COMMIT, path): kept for path, kept in hub.files.items()}
    hub.files[name], hub.commit = content, NEWER


def _pull(hub: FakeHub, place: Path, *formats: str, record: ModelRecord = RECORD, refresh: bool = False) -> PullReport:
    return pull_model(record, place, formats=formats or None, env=hub.env(), refresh=refresh)


def test_a_second_pull_fetches_nothing_and_asks_only_for_something_newer(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path)
    hub.requests.clear()
    assert _pull(hub, tmp_path) == PullReport(tmp_path / RECORD.folder, (), 0)
    assert hub.requests == [("HEAD", "model.onnx", None)]


def test_a_later_pull_takes_another_format_of_the_version_that_is_here(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path, "q8")
    _publish(hub, "onnx/model.onnx", WEIGHTS[::-1])
    report = _pull(hub, tmp_path, "fp16")
    assert report.fetched == ("onnx/model.onnx",)
    assert (report.folder / "onnx/model.onnx").read_bytes() == WEIGHTS
    manifest = read_manifest(report.folder)
    assert manifest is not None and manifest.commit == COMMIT
    assert {"onnx/model.onnx", "model.onnx"} <= {item.path for item in manifest.files}


def test_a_newer_version_is_told_and_taken_only_on_request(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path)
    _publish(hub, "model.onnx", WEIGHTS[:6000])
    report = _pull(hub, tmp_path)
    assert report.fetched == ()
    assert report.notes == (
        f"a newer 'model.onnx' is published in '{RECORD.repository}'; "
        f"'qmd models pull {RECORD.name} --refresh' takes it",
    )
    report = _pull(hub, tmp_path, refresh=True)
    assert (report.folder / "model.onnx").read_bytes() == WEIGHTS[:6000]
    line = f"'{RECORD.repository}' went from revision {COMMIT[:12]} to {NEWER[:12]}: other bytes in model.onnx"
    assert report.notes == (line,)
    manifest = read_manifest(report.folder)
    assert manifest is not None and manifest.commit == NEWER
    assert all(check.status == "ok" for check in verify_model(RECORD, tmp_path))


def test_a_refresh_takes_every_format_that_is_here(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path, "q8", "fp16")
    _publish(hub, "onnx/model.onnx", WEIGHTS[::-1])
    assert "onnx/model.onnx" in _pull(hub, tmp_path, "q8", refresh=True).fetched


def test_a_mirror_with_other_bytes_for_the_same_version_is_refused_at_the_start(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path)
    (tmp_path / RECORD.folder / "model.onnx").unlink()
    hub.files["model.onnx"] = WEIGHTS[:6000]
    hub.requests.clear()
    with pytest.raises(ModelError, match="is not the pinned one: sha256") as caught:
        _pull(hub, tmp_path)
    assert "--refresh" in (caught.value.hint or "")
    assert hub.asked_for("GET", "model.onnx") == 0


def test_a_small_file_without_a_digest_of_the_hub_must_come_again_as_it_was(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path)
    (tmp_path / RECORD.folder / "config.json").unlink()
    hub.files["config.json"] = b"[]"
    with pytest.raises(ModelError, match=r"'config\.json' of .* is not what was expected") as caught:
        _pull(hub, tmp_path)
    assert "--refresh" in (caught.value.hint or "")


def test_a_pinned_digest_is_asked_of_the_first_pull(hub: FakeHub, tmp_path: Path) -> None:
    pinned = ModelFormat("q8", ModelFile("model.onnx", 5000, "1" * 64), "cpu")
    record = replace(RECORD, revision=COMMIT, formats=(pinned,))
    with pytest.raises(ModelError, match=r"'model\.onnx' of .* is not the pinned one"):
        _pull(hub, tmp_path, record=record)
    assert hub.asked_for("GET", "model.onnx") == 0
    right = ModelFile("model.onnx", 5000, hashlib.sha256(WEIGHTS[:5000]).hexdigest())
    record = replace(record, formats=(ModelFormat("q8", right, "cpu"),))
    assert "model.onnx" in _pull(hub, tmp_path, record=record).fetched
    assert _pull(hub, tmp_path, record=record) == PullReport(tmp_path / RECORD.folder, (), 0)


def test_a_damaged_file_of_the_right_size_is_fetched_again(hub: FakeHub, tmp_path: Path) -> None:
    report = _pull(hub, tmp_path)
    (report.folder / "model.onnx").write_bytes(bytes(5000))
    assert _pull(hub, tmp_path).fetched == ("model.onnx",)
    assert (report.folder / "model.onnx").read_bytes() == WEIGHTS[:5000]


def test_files_of_a_pull_that_was_given_up_do_not_get_into_another_version(hub: FakeHub, tmp_path: Path) -> None:
    report = _pull(hub, tmp_path)
    left = tmp_path / ".staging" / RECORD.folder / "model.onnx"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of another version")
    _pull(hub, tmp_path)
    assert (report.folder / "model.onnx").read_bytes() == WEIGHTS[:5000]


def test_a_model_that_hub_or_revision_lack_is_named_with_the_file(hub: FakeHub, tmp_path: Path) -> None:
    del hub.files["model.onnx"]
    with pytest.raises(ModelError, match=f"no 'model.onnx' of '{RECORD.repository}' at revision '{COMMIT}'"):
        _pull(hub, tmp_path)


@pytest.mark.parametrize("record", MODELS, ids=lambda record: record.name)
def test_what_the_catalogue_pins_is_a_commit_and_digests(record: ModelRecord) -> None:
    assert record.revision == UNPINNED or re.fullmatch(r"[0-9a-f]{40}", record.revision)
    for file in (*record.files, *(item.weights for item in record.formats)):
        assert (file.sha256 is None) == (file.size_bytes is None)
        assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)


def test_every_file_of_the_expander_that_is_pulled_unasked_is_pinned() -> None:
    # The half-precision weights differ: their revision is fixed and the hub reports their sha256.
    weights = [item.weights for item in QWEN_EXPANDER.formats if item.name != "fp16"]
    files = (*QWEN_EXPANDER.files, *weights)
    assert QWEN_EXPANDER.revision != UNPINNED
    assert all(file.sha256 for file in files)


def _graph(*locations: str) -> bytes:
    constants = []
    for location in locations:
        constant = onnx.helper.make_tensor(location, onnx.TensorProto.FLOAT, [1], bytes(4), raw=True)
        onnx.external_data_helper.set_external_data(constant, location, 0, 4)
        constant.ClearField("raw_data")
        constants.append(constant)
    return bytes(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], constants)).SerializeToString())


@pytest.mark.parametrize(
    "names", [("model.onnx_data",), ("model.onnx.data",), ("model.onnx_data", "model.onnx_data_1")]
)
def test_files_that_a_graph_names_are_fetched_and_checked(hub: FakeHub, tmp_path: Path, names: tuple[str, ...]) -> None:
    hub.files["onnx/model.onnx"] = _graph(*names)
    hub.files |= {f"onnx/{name}": WEIGHTS[:2000] for name in names}
    report = _pull(hub, tmp_path, "fp16")
    assert set(report.fetched) >= {f"onnx/{name}" for name in names}
    checks = {check.path: check.status for check in verify_model(RECORD, tmp_path)}
    assert {checks[f"onnx/{name}"] for name in names} == {"ok"}
    (report.folder / f"onnx/{names[0]}").unlink()
    assert _pull(hub, tmp_path, "fp16").fetched == (f"onnx/{names[0]}",)


def test_a_single_file_costs_no_question_for_others(hub: FakeHub, tmp_path: Path) -> None:
    _pull(hub, tmp_path)
    assert {name for _, name, _ in hub.requests} == {"tokenizer.json", "config.json", "model.onnx"}


def test_a_graph_whose_tensors_the_hub_lacks_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    hub.files["model.onnx"] = _graph("model.onnx.data")
    with pytest.raises(ModelError, match=r"no 'model\.onnx\.data' of"):
        _pull(hub, tmp_path)
    assert not (tmp_path / RECORD.folder).exists()


@pytest.mark.parametrize("location", [".", "a\0b", "../x", "a/../../b"])
def test_a_graph_that_names_no_file_of_its_folder_leaves_nothing(hub: FakeHub, tmp_path: Path, location: str) -> None:
    hub.files["model.onnx"] = _graph(location)
    with pytest.raises(ModelError, match="not a file in its folder"):
        _pull(hub, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


@pytest.mark.parametrize("commit", ["../../../x", "a/b", "C:x", "x" * 5_000])
def test_a_commit_of_the_hub_that_is_none_makes_no_path(hub: FakeHub, tmp_path: Path, commit: str) -> None:
    hub.commit, hub.reply = commit, lambda asked: None
    report = _pull(hub, tmp_path / "models")
    assert "model.onnx" in report.fetched
    manifest = read_manifest(report.folder)
    assert manifest is not None and manifest.commit is None
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def test_a_plain_download_is_imported_with_the_files_that_its_graph_names(tmp_path: Path) -> None:
    source = tmp_path / "download"
    source.mkdir()
    (source / "model.onnx").write_bytes(_graph("model.onnx.data"))
    (source / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"'model\.onnx\.data' is missing"):
        import_model(source, tmp_path / "models", RECORD)
    (source / "model.onnx.data").write_bytes(b"1234")
    import_model(source, tmp_path / "models", RECORD)
    assert (tmp_path / "models" / RECORD.folder / "model.onnx.data").read_bytes() == b"1234"


def test_a_plain_download_of_another_version_of_pinned_weights_is_not_imported(tmp_path: Path) -> None:
    source = tmp_path / "download"
    source.mkdir()
    (source / "model.onnx").write_bytes(WEIGHTS[:5000])
    for name in ("tokenizer.json", "config.json"):
        (source / name).write_text("{}")
    weights = ModelFile("model.onnx", 5000, "1" * 64)
    config = ModelFile("config.json", 3, "2" * 64)
    record = replace(RECORD, formats=(ModelFormat("q8", weights, "cpu"),), files=(ModelFile("tokenizer.json"), config))
    with pytest.raises(ModelError, match=r"'model\.onnx' in .* another version than the pinned one"):
        import_model(source, tmp_path / "models", record)
    right = replace(weights, sha256=hashlib.sha256(WEIGHTS[:5000]).hexdigest())
    import_model(source, tmp_path / "models", replace(record, formats=(ModelFormat("q8", right, "cpu"),)))
