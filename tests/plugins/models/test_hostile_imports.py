"""Untrusted models: a folder, an archive or a file cannot choose paths, fill the memory or take unlimited time."""

import hashlib
import io
import json
import os
import sys
import tarfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from msgspec.structs import replace

from qmd.errors import ModelError, QmdError, UsageError
from qmd.foreign import fold_name, is_name, path_below, read_json_file, short
from qmd.inference.models.catalogue import QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.models.folders import MANIFEST_NAME, Manifest, measure_file, read_manifest, write_manifest
from qmd.inference.models.imported import IMPORT_FILE, find_imported, imported_models
from qmd.inference.onnx_files import read_model
from qmd.inference.records import ModelFile, ModelRecord, Role
from qmd.inference.runtime.tokenization import read_json, read_tokenizer
from qmd.plugins.models.fetch.archives import export_model, import_model
from qmd.plugins.models.formats.importing import import_weights
from qmd.plugins.models.formats.sources import find_files, find_ollama, importable_files
from qmd.plugins.models.inventory import verify_model
from qmd.plugins.onnx.model import Model
from tests.plugins.models.gguf_files import HIDDEN, write_qwen3
from tests.plugins.models.safetensors_files import QWEN3_PARTS, write_safetensors

DEEP = b"[" * 200_000
posix = pytest.mark.skipif(sys.platform == "win32", reason="no pipes and few links there")


def _refusal(work: Callable[[], object]) -> str:
    """Return the one line of a refusal, which comes without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(QmdError) as caught:
            work()
    message = caught.value.message
    assert "\n" not in message and len(message) < 500
    return message


def _record(**changes: Any) -> dict[str, Any]:
    """Return a record as an import writes it."""
    weights = {"path": "model.onnx", "size_bytes": None, "sha256": None}
    record: dict[str, Any] = {"name": "m", "role": "embed", "tier": "full", "repository": "imported/m"}
    record |= {"revision": "local", "licence": "x", "languages": [], "scripts": [], "files": []}
    record |= {"context": 9, "max_tokens": 9}
    return {**record, "formats": [{"name": "q8", "weights": weights, "device": "cpu"}], **changes}


def _model(folder: Path, record: Mapping[str, Any], files: Mapping[str, bytes], repository: str = "x/y") -> Path:
    """Write an untrusted folder."""
    folder.mkdir()
    source = {"address": "a", "path": "p", "size_bytes": 1, "sha256": "0"}
    own = {IMPORT_FILE: json.dumps({"record": record, "source": source, "qmd": "0"}).encode()} if record else {}
    for name, content in {**files, **own}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    write_manifest(folder, Manifest(repository, None, tuple(measure_file(folder, name) for name in {**files, **own})))
    return folder


def _plain(members: Mapping[str, bytes]) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for name, content in members.items():
        member = tarfile.TarInfo(name)
        member.size = len(content)
        yield member, content


def _tar(path: Path, members: Mapping[str, bytes], mode: Literal["w", "w:gz"] = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for member, content in _plain(members):
            archive.addfile(member, io.BytesIO(content))
    return path


def _staged(models: Path) -> list[Path]:
    """Return the files of an import except its locks."""
    return [path for path in models.rglob("*") if path.is_file() and path.suffix != ".lock"]


def _refused_model(tmp_path: Path, source: Path, record: ModelRecord | None = None) -> str:
    """Return the refusal of an import that leaves nothing behind."""
    message = _refusal(lambda: import_model(source, tmp_path / "models", record))
    assert _staged(tmp_path / "models") == []
    return message


def _refused_weights(tmp_path: Path, source: Path, role: Role | None = None) -> str:
    """Return the refusal of an import of weights that leaves nothing behind."""
    message = _refusal(lambda: import_weights(source, tmp_path / "models", role=role))
    assert _staged(tmp_path / "models") == []
    return message


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "a/b", "a\\b", "/a", "C:a", "a\0b", "a\nb", "CON", "nul.txt", "com1.onnx", "a.", "a ", " a"),
        *("x" * 181, "a\u202eb", "\ud800", "a*", "LPT¹"),
    ],
)
def test_no_word_of_a_stranger_that_leads_elsewhere_is_a_name(tmp_path: Path, name: str) -> None:
    assert not is_name(name)
    assert "\n" not in short(name)
    if name != "a/b":
        _refusal(lambda: path_below(tmp_path, f"down/{name}/x" if name in ("..", "CON") else name, "it"))


def test_a_path_between_folders_stays_below(tmp_path: Path) -> None:
    assert path_below(tmp_path, "./onnx/model.onnx_data", "it") == tmp_path / "onnx" / "model.onnx_data"
    assert fold_name("Å.onnx") == fold_name("å.ONNX")
    assert len(short("tensor" * 10_000)) == 80


@posix
def test_a_link_in_a_models_folder_is_not_followed_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "onnx").symlink_to(tmp_path)
    assert "link" in _refusal(lambda: path_below(tmp_path / "models", "onnx/model.onnx", "it"))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tier", ["built-in", "full"])
@pytest.mark.parametrize("repository", ["..", "x/y", "/"])
def test_an_imported_record_replaces_no_other_file(tmp_path: Path, packed: bool, tier: str, repository: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("mine")
    for name in (str(home), "../home", "../../home"):
        record = _record(name=name, tier=tier, repository=repository)
        record["formats"][0]["weights"]["path"] = ".bashrc"
        source = _model(tmp_path / f"m{len(list(tmp_path.iterdir()))}", record, {".bashrc": b"PWNED"}, repository)
        if packed:
            files = {f"m/{path.name}": path.read_bytes() for path in source.iterdir()}
            source = _tar(tmp_path / f"{source.name}.tar", files)
        _refused_model(tmp_path, source)
    assert (home / ".bashrc").read_text() == "mine"
    assert [path.name for path in home.iterdir()] == [".bashrc"]


def test_a_foreign_record_gives_facts_and_no_folder_tier_or_repository(tmp_path: Path) -> None:
    record = _record(name="theirs", tier="built-in", repository="..", dim=7)
    taken = import_model(_model(tmp_path / "m", record, {"model.onnx": b"x"}), tmp_path / "models")
    assert (taken.name, taken.tier, taken.repository, taken.dim) == ("theirs", "full", "imported/theirs", 7)
    assert (tmp_path / "models" / "imported--theirs" / "model.onnx").read_bytes() == b"x"
    assert [model.record for model in imported_models(tmp_path / "models")] == [taken]
    assert not (tmp_path / "index.sqlite").exists()


@pytest.mark.parametrize("name", ["Qwen3-0.6B", QWEN_RERANKER.repository, "x\nerror: y", "a" * 5_000, "CON.", ""])
def test_a_record_that_calls_itself_a_model_of_the_catalogue_or_nothing_is_refused(tmp_path: Path, name: str) -> None:
    source = _model(tmp_path / "m", _record(name=name), {"model.onnx": b"x"})
    _refused_model(tmp_path, source)


def test_an_older_record_with_the_repository_of_the_catalogue_does_not_replace_it(tmp_path: Path) -> None:
    record = _record(repository=QWEN_RERANKER.repository, role="rerank")
    place = _model(tmp_path / "imported--mine", record, {"model.onnx": b"x", "tokenizer.json": b"{}"})
    (found,) = imported_models(tmp_path)
    assert (found.record.name, found.record.folder) == ("mine", place.name)
    assert find_imported(QWEN_RERANKER.repository, tmp_path) is None
    assert find_imported(QWEN_RERANKER.name, tmp_path) is None
    assert find_imported("mine", tmp_path) is not None


def test_a_source_that_is_called_like_a_model_of_the_catalogue_does_not_take_its_place(tmp_path: Path) -> None:
    place = _model(tmp_path / "imported--mine", _record(), {"model.onnx": b"x"})
    content = json.loads((place / IMPORT_FILE).read_text())
    content["source"]["address"] = QWEN_EXPANDER.name
    (place / IMPORT_FILE).write_text(json.dumps(content))
    assert find_imported(QWEN_EXPANDER.name, tmp_path) is None


@pytest.mark.parametrize("path", ["../../x", "/etc/passwd", "a\0b", "C:x", "", "prepared/../../x"])
def test_a_manifest_that_names_what_is_no_file_of_its_folder_is_refused(tmp_path: Path, path: str) -> None:
    listed = {"path": path, "size_bytes": 1, "sha256": "0"}
    (tmp_path / MANIFEST_NAME).write_text(json.dumps({"repository": "x", "commit": "../..", "files": [listed]}))
    _refusal(lambda: read_manifest(tmp_path))


@pytest.mark.parametrize("content", [DEEP, b"{", b"[]", b"\0", b'{"files":[{"path":"a","size_bytes":1e999}]}', b"5"])
def test_a_manifest_or_a_record_that_is_no_json_of_its_kind_is_one_line(tmp_path: Path, content: bytes) -> None:
    for name in (MANIFEST_NAME, IMPORT_FILE):
        source = tmp_path / name.removesuffix(".json")
        source.mkdir()
        (source / name).write_bytes(content)
        (source / "model.onnx").write_bytes(b"x")
        _refused_model(tmp_path, source)


def test_a_commit_that_is_a_path_is_no_commit(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_text(json.dumps({"repository": "x", "commit": "../../x", "files": []}))
    manifest = read_manifest(tmp_path)
    assert manifest is not None and manifest.commit is None


PINNED = replace(
    QWEN_EXPANDER,
    formats=tuple(
        replace(item, weights=ModelFile("model.onnx", 2, hashlib.sha256(b"ok").hexdigest()))
        for item in QWEN_EXPANDER.formats[:1]
    ),
    files=(ModelFile("tokenizer.json"),),
)


def test_a_manifest_of_an_archive_does_not_overrule_what_the_catalogue_pins(tmp_path: Path) -> None:
    files = {"model.onnx": b"no", "tokenizer.json": b"{}"}
    source = _model(tmp_path / "m", {}, files, PINNED.repository)
    assert "pinned" in _refused_model(tmp_path, source, PINNED)


def test_verify_says_that_a_file_is_not_the_one_that_is_pinned(tmp_path: Path) -> None:
    _model(tmp_path / PINNED.folder, {}, {"model.onnx": b"no", "tokenizer.json": b"{}"}, PINNED.repository)
    checks = {check.path: check.status for check in verify_model(PINNED, tmp_path)}
    assert checks == {"model.onnx": "differs", "tokenizer.json": "ok"}


def test_an_archive_brings_no_form_and_nothing_that_the_model_does_not_have(tmp_path: Path) -> None:
    files = {"model.onnx": b"ok", "tokenizer.json": b"{}", "prepared/q8/model.onnx": b"evil", "run.sh": b"evil"}
    source = _model(tmp_path / "m", {}, files, PINNED.repository)
    import_model(source, tmp_path / "models", PINNED)
    place = tmp_path / "models" / PINNED.folder
    assert sorted(path.name for path in place.iterdir()) == ["model.onnx", MANIFEST_NAME, "tokenizer.json"]


def _member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def _long_name() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 15 << 20
    yield header, bytes(15 << 20)


def _headers_in_a_row() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 512
    yield from ((header, b"11 path=aa\n" + bytes(501)) for _ in range(3_000))


def _name_with_a_null() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    member = tarfile.TarInfo("m")
    member.pax_headers = {"path": "m/a\0b"}
    yield member, b""


HOSTILE_ARCHIVES: dict[str, Callable[[], Iterable[tuple[tarfile.TarInfo, bytes]]]] = {
    "up": lambda: _plain({"../../x": b"x"}),
    "absolute": lambda: _plain({"/tmp/x": b"x"}),
    "link": lambda: [(_member("m/model.onnx", tarfile.SYMTYPE, "/etc/passwd"), b"")],
    "hard link": lambda: [(_member("m/model.onnx", tarfile.LNKTYPE, "/etc/passwd"), b"")],
    "pipe": lambda: [(_member("m/model.onnx", tarfile.FIFOTYPE), b"")],
    "device": lambda: [(_member("m/model.onnx", tarfile.CHRTYPE), b"")],
    "names that some systems take for one": lambda: _plain({"m/a": b"x", "m/A": b"y"}),
    "long name": lambda: _plain({"m/" + "x" * 300: b"x"}),
    "many members": lambda: _plain({f"m/{number}": b"" for number in range(1_001)}),
    "deep": lambda: _plain({"/".join("abcdefghijk"): b"x"}),
    "name of a device": lambda: _plain({"m/CON": b"x"}),
    "name with a null": _name_with_a_null,
    "header of 15 MiB": _long_name,
    "thousands of headers in a row": _headers_in_a_row,
    "many times its size": lambda: _plain({"m/model.onnx": bytes(40 << 20)}),
}


@pytest.mark.parametrize("name", HOSTILE_ARCHIVES)
def test_an_archive_that_no_export_makes_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "m.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for member, content in HOSTILE_ARCHIVES[name]():
            archive.addfile(member, io.BytesIO(content))
    assert (tmp_path / "m.tar.gz").stat().st_size < 1 << 20
    message = _refused_model(tmp_path, tmp_path / "m.tar.gz", QWEN_RERANKER)
    assert ("more than its model" in message) == (name in ("many members", "many times its size"))


def test_an_archive_needs_room_on_the_disk_for_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _tar(tmp_path / "m.tar", {"m/model.onnx": b"x" * 1_000}, "w")
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    assert "not enough space" in _refused_model(tmp_path, source, QWEN_RERANKER)


def test_no_more_is_unpacked_than_a_manifest_lists_and_what_it_does_not_is_not_taken(tmp_path: Path) -> None:
    files = {"model.onnx": b"ok", "tokenizer.json": b"{}"}
    whole = _model(tmp_path / "m", {}, files, PINNED.repository)
    packed = {f"m/{path.name}": path.read_bytes() for path in sorted(whole.iterdir(), reverse=True)}
    for members in ({**packed, "m/extra": b"x", "m/run.sh": b"y"}, packed):
        source = _tar(tmp_path / "a.tar.gz", dict(reversed(members.items())))
        import_model(source, tmp_path / "models", PINNED)
    assert {path.name for path in (tmp_path / "models" / PINNED.folder).iterdir()} == {*files, MANIFEST_NAME}
    source = _tar(tmp_path / "b.tar.gz", {**packed, "m/model.onnx": b"longer"})
    assert "more than its model" in _refusal(lambda: import_model(source, tmp_path / "other", PINNED))
    source = _tar(tmp_path / "c.tar.gz", {**packed, "m/model.onnx": b"o"})
    assert "is damaged" in _refusal(lambda: import_model(source, tmp_path / "other", PINNED))


def test_the_manifest_is_the_first_that_an_export_packs(tmp_path: Path) -> None:
    _model(tmp_path / PINNED.folder, {}, {"model.onnx": b"ok", "tokenizer.json": b"{}"}, PINNED.repository)
    target = export_model(PINNED, tmp_path, tmp_path / "m.tar.gz")
    with tarfile.open(target) as archive:
        assert archive.getnames()[0] == f"{PINNED.folder}/{MANIFEST_NAME}"


@pytest.mark.parametrize("content", [b"PK\3\4", b"", b"\x1f\x8b\x08", b"\x1f\x8bjunk" * 50, b"BZh9", b"x" * 5_000])
def test_what_is_no_archive_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.tar.gz").write_bytes(content)
    _refused_model(tmp_path, tmp_path / "m.tar.gz", QWEN_RERANKER)


@posix
def test_a_link_in_a_folder_that_leads_out_of_it_is_not_copied_and_one_of_the_hubs_cache_is(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    source = tmp_path / "evil"
    source.mkdir()
    (source / "model.onnx").write_bytes(b"ok")
    (source / "tokenizer.json").symlink_to(tmp_path / "secret")
    assert "link" in _refused_model(tmp_path, source, PINNED)
    cached = tmp_path / "models--x" / "snapshots" / "abc"
    blobs = tmp_path / "models--x" / "blobs"
    for folder in (cached, blobs):
        folder.mkdir(parents=True)
    for name, content in (("model.onnx", b"ok"), ("tokenizer.json", b"{}")):
        (blobs / name[:3]).write_bytes(content)
        (cached / name).symlink_to(blobs / name[:3])
    assert import_model(cached, tmp_path / "models", PINNED) == PINNED


@posix
def test_a_pipe_anywhere_is_no_file_to_wait_for(tmp_path: Path) -> None:
    home, models = tmp_path / "home", tmp_path / "models"
    manifests = home / ".ollama" / "models" / "manifests" / "registry.ollama.ai" / "library" / "x"
    studio = home / ".lmstudio" / "models"
    for folder in (manifests, studio, models, tmp_path / "in", home / ".ollama" / "models" / "blobs"):
        folder.mkdir(parents=True)
    (home / ".ollama" / "models" / "blobs" / "sha256-ab").write_bytes(b"")
    places = [manifests / "latest", studio / "a.gguf", models / "b.gguf"]
    places += [tmp_path / "in" / name for name in ("config.json", MANIFEST_NAME, IMPORT_FILE, "modules.json")]
    for place in places:
        os.mkfifo(place)
    os.mkfifo(home / "blob")
    assert find_files(models, home, {}) == () == importable_files(models, home, {})
    assert find_ollama("ollama:x", home, {}) is None
    _refusal(lambda: read_json(tmp_path / "in" / "config.json"))
    _refusal(lambda: read_manifest(tmp_path / "in"))
    _refusal(lambda: import_model(tmp_path / "in", models))
    _refusal(lambda: import_model(home / "blob", models))
    _refusal(lambda: import_weights(home / "blob", models))
    _refusal(lambda: import_weights(tmp_path / "in", models))


@pytest.mark.parametrize("content", [DEEP, b'{"layers":' * 100_000, b"[1e999]", b'{"layers":[{"digest":5}]}'])
def test_a_manifest_of_ollama_that_is_deep_or_strange_does_not_break_the_list(tmp_path: Path, content: bytes) -> None:
    manifests = tmp_path / ".ollama" / "models" / "manifests" / "h" / "o" / "n"
    manifests.mkdir(parents=True)
    (manifests / "latest").write_bytes(content)
    assert find_files(tmp_path / "models", tmp_path, {}) == ()


@pytest.mark.parametrize("digest", ["/etc/passwd", "../../../secret", "sha256:a\0b", "", "a/b"])
def test_a_manifest_of_ollama_names_blobs_alone(tmp_path: Path, digest: str) -> None:
    folder = tmp_path / ".ollama" / "models"
    (folder / "manifests" / "h" / "o" / "n").mkdir(parents=True)
    (folder / "blobs").mkdir()
    (tmp_path / "secret").write_bytes(b"GGUF")
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": digest}
    (folder / "manifests" / "h" / "o" / "n" / "latest").write_text(json.dumps({"layers": [layer]}))
    assert find_files(tmp_path / "models", tmp_path, {}) == ()


@pytest.mark.parametrize("content", [DEEP, b'{"a":' * 100_000, b"\0\0", b"\xff\xfe\xff", b"9" * 10_000])
def test_a_configuration_that_is_deep_or_no_json_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    _refusal(lambda: read_json(tmp_path / "config.json"))
    with pytest.raises(ValueError):
        read_json_file(tmp_path / "config.json", 1)


@posix
def test_a_tokenizer_or_a_configuration_larger_than_any_is_not_read(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(1 << 40)
    assert "MiB" in _refusal(lambda: read_json(tmp_path / "config.json"))
    assert "MiB" in _refusal(lambda: read_tokenizer(tmp_path / "tokenizer.json"))


def _gguf(path: Path, n_settings: int, body: bytes, n_tensors: int = 0) -> Path:
    counts = n_tensors.to_bytes(8, "little") + n_settings.to_bytes(8, "little")
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + counts + body)
    return path


def _text(words: bytes) -> bytes:
    return len(words).to_bytes(8, "little") + words


def test_a_gguf_file_that_promises_more_than_a_model_holds_is_refused_at_once(tmp_path: Path) -> None:
    strings = _text(b"a") + (9).to_bytes(4, "little") + (8).to_bytes(4, "little") + (1 << 60).to_bytes(8, "little")
    numbers = _text(b"a") + (9).to_bytes(4, "little") + (0).to_bytes(4, "little") + (1 << 33).to_bytes(8, "little")
    text = _text(b"a") + (8).to_bytes(4, "little") + (1 << 33).to_bytes(8, "little")
    for body in (strings, numbers, text):
        path = _gguf(tmp_path / "m.gguf", 1, body)
        with path.open("r+b") as stream:
            stream.truncate(1 << 35)  # the rest takes no disk space: empty texts by the milliard
        _refused_weights(tmp_path, path)
        assert importable_files(tmp_path, tmp_path, {}) == ()


@pytest.mark.parametrize("shape", [(1 << 62, 0), (0, 1 << 62), (1 << 40, 1 << 40), (0,), (1 << 63,)])
def test_a_tensor_without_size_or_of_any_size_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    dims = len(shape).to_bytes(4, "little") + b"".join(size.to_bytes(8, "little") for size in reversed(shape))
    setting = _text(b"general.architecture") + (8).to_bytes(4, "little") + _text(b"qwen3")
    tensor = _text(b"token_embd.weight" + b"x" * 5_000) + dims + bytes(12)
    path = _gguf(tmp_path / "m.gguf", 1, setting + tensor + bytes(64), 1)
    assert "has the shape" in _refused_weights(tmp_path, path)


def _network(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return one layer of Qwen3 by the makers' names, some tensors in another shape."""
    matrix, head = np.ones((256, 256), np.float32), np.ones(64, np.float32)
    parts: dict[str, Any] = dict.fromkeys(QWEN3_PARTS.values(), matrix)
    parts |= {QWEN3_PARTS[name]: np.ones(256, np.float32) for name in ("in_norm", "post_norm")}
    parts |= {QWEN3_PARTS["q_norm"]: head, QWEN3_PARTS["k_norm"]: head, **changes}
    named = {f"model.layers.0.{part}.weight": value for part, value in parts.items()}
    return {"model.embed_tokens.weight": matrix, "model.norm.weight": np.ones(256, np.float32), **named}


def _settle(folder: Path, **changes: object) -> None:
    settings = {"model_type": "qwen3", "num_hidden_layers": 1, "tie_word_embeddings": True, **changes}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.json").write_text("{}")


def _folder(place: Path, tensors: Mapping[str, Any], kind: str = "F32", **settings: Any) -> Path:
    write_safetensors(place, _network({QWEN3_PARTS[name]: value for name, value in tensors.items()}), kind)
    _settle(place, **settings)
    return place


MISFITS = {"q": (256, 100), "k": (256, 33), "up": (100, 256), "down": (256,), "in_norm": (5,), "q_norm": (0,)}


@pytest.mark.parametrize(("name", "shape"), [*MISFITS.items(), ("v", (1, 256))])
def test_tensors_that_do_not_fit_together_are_refused(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    _refused_weights(tmp_path, _folder(tmp_path / "in", {name: np.ones(shape, np.float32)}))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize(("value", "part"), [(np.nan, "q"), (np.inf, "q"), (-np.inf, "q"), (np.nan, "post_norm")])
def test_weights_that_are_no_numbers_are_refused_by_name(tmp_path: Path, kind: str, value: float, part: str) -> None:
    broken = np.ones((256, 256) if part == "q" else 256, np.float32)
    broken.flat[77] = value
    message = _refused_weights(tmp_path, _folder(tmp_path / "in", {part: broken}, kind))
    assert QWEN3_PARTS[part] in message and "not numbers" in message


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_1", "Q4_K", "Q6_K"])
def test_scales_that_are_no_numbers_are_refused(tmp_path: Path, kind: str) -> None:
    write_qwen3(tmp_path / "m.gguf", kind)
    raw = bytearray((tmp_path / "m.gguf").read_bytes())
    size = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20, "Q5_1": 24, "Q4_K": 144, "Q6_K": 210}[kind]
    # The scale of the last block: two bytes at its start, of Q6_K at its end.
    end = len(raw.rstrip(b"\0")) if kind == "Q6_K" else len(raw)
    at = end - 2 if kind == "Q6_K" else end - size
    raw[at : at + 2] = b"\x00\x7e"
    (tmp_path / "m.gguf").write_bytes(raw)
    assert "not numbers" in _refused_weights(tmp_path, tmp_path / "m.gguf")


@pytest.mark.parametrize(
    "changes",
    [
        {"rms_norm_eps": 0},
        {"rms_norm_eps": "x"},
        {"rope_theta": 1e300},
        {"rope_theta": -5},
        {"num_hidden_layers": 1e999},
        {"num_hidden_layers": []},
        {"rope_parameters": 5},
        {"architectures": 7},
        {"id2label": [1]},
    ],
    ids=str,
)
def test_settings_that_no_network_has_are_one_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    _refused_weights(tmp_path, _folder(tmp_path / "in", {}, **changes), "rerank")


def test_a_header_of_safetensors_that_is_deep_or_lies_is_one_line(tmp_path: Path) -> None:
    entries: list[Any] = [{"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for shape in ([-1, 0], [], [0])]
    entries += [{"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}, {"dtype": [], "shape": 5}, 5]
    headers = [json.dumps({"x" * 9_000: entry}).encode() for entry in entries]
    (tmp_path / "in").mkdir()
    _settle(tmp_path / "in")
    for header in [*headers, DEEP, b"[]", b"\0"]:
        raw = len(header).to_bytes(8, "little") + header + bytes(64)
        (tmp_path / "in" / "model.safetensors").write_bytes(raw)
        _refused_weights(tmp_path, tmp_path / "in")


def test_a_row_of_yes_beyond_the_table_is_refused(tmp_path: Path) -> None:
    _folder(tmp_path / "in", {})
    (tmp_path / "in" / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"yes": 9_999_999, "no": 1}}}))
    assert "'yes'" in _refused_weights(tmp_path, tmp_path / "in", "rerank")
    assert HIDDEN == 256


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer.ggml.token_type": 5},
        {"tokenizer.ggml.merges": [1, 2]},
        {"tokenizer.ggml.pre": [1]},
        {"tokenizer.ggml.eos_token_id": "x"},
        {"general.alignment": "x"},
        {"split.count": "x"},
        {"qwen3.pooling_type": [1]},
        {"qwen3.block_count": -1},
        {"qwen3.rope.freq_base": float("nan")},
    ],
    ids=str,
)
def test_a_setting_of_another_type_is_one_line(tmp_path: Path, settings: dict[str, object]) -> None:
    write_qwen3(tmp_path / "m.gguf", "Q8_0", settings=settings)
    _refused_weights(tmp_path, tmp_path / "m.gguf")
    importable_files(tmp_path, tmp_path, {})


def test_names_of_models_that_some_file_systems_take_for_one_are_not_both_taken(tmp_path: Path) -> None:
    write_qwen3(tmp_path / "m.gguf", "Q8_0")
    import_weights(tmp_path / "m.gguf", tmp_path / "models")
    with pytest.raises(UsageError, match="another model"):
        import_weights(tmp_path / "m.gguf", tmp_path / "models", name="M")


def test_a_graph_of_more_parts_than_any_has_is_refused_before_they_are_read(tmp_path: Path) -> None:
    with (tmp_path / "model.onnx").open("wb") as stream:
        stream.write(b"\x08\x01" * 2_000_001)
    with pytest.raises(ModelError, match="more parts"):
        read_model(tmp_path / "model.onnx", Model)
