"""Model folders on this machine: their manifests, whether they are whole, moving them between machines, removing them.

A folder fetched or imported here holds `qmd-model.json`, written last: repository, commit, and size and sha256 of each
file. It is what `verify` compares with.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from msgspec import Struct

from qmd.errors import BusyModelError, ModelError, NotFoundError, UsageError
from qmd.files import exclusive_lock, make_private_folder, write_atomically
from qmd.inference.models.catalogue import MODELS, ModelFile, ModelRecord
from qmd.inference.models.fastembed_catalogue import fastembed_models, fetched_fastembed
from qmd.inference.models.held_types import beside, external_files
from qmd.inference.models.imported import imported_models, read_imported
from qmd.inference.models.prepared import PREPARED_FOLDER, PreparedForm, prepared_forms, read_file_list
from qmd.inference.models.weights import locate_model

MANIFEST_NAME = "qmd-model.json"
_SPARE_BYTES = 64 << 20
"""Left free on the disk besides what is written."""

FileStatus = Literal["ok", "missing", "damaged", "unknown"]
"""`unknown`: present, but neither the catalogue nor a manifest says what it should hold."""


class Manifest(Struct, frozen=True):
    """Where a model folder came from and what it holds."""

    repository: str
    commit: str | None
    files: tuple[ModelFile, ...]


class FileCheck(Struct, frozen=True):
    """The verdict on one file."""

    path: str
    status: FileStatus


class ModelState(Struct, frozen=True):
    """A model of the catalogue, or an imported one, on this machine."""

    record: ModelRecord
    folder: Path
    is_present: bool
    formats: tuple[str, ...]
    """Formats whose weights are there."""
    prepared: tuple[PreparedForm, ...]
    """Forms that were made here, or refused."""


def list_models(models_dir: Path) -> tuple[ModelState, ...]:
    """Every model of the catalogue, present or not, those of fastembed that were fetched, and the imported ones."""
    states: list[ModelState] = []
    imported = (model.record for model in imported_models(models_dir))
    for record in (*MODELS, *fetched_fastembed(models_dir), *imported):
        try:
            located = locate_model(record, models_dir)
        except ModelError:
            # The built-in model is missing.
            located = None
        folder = located or models_dir / record.folder
        formats = tuple(item.name for item in record.formats if (folder / item.weights.path).is_file())
        states.append(ModelState(record, folder, located is not None, formats, prepared_forms(record, folder)))
    return tuple(states)


def model_path(record: ModelRecord, models_dir: Path) -> Path:
    """The folder of a model that is on this machine.

    Raises:
        NotFoundError: It is not.
    """
    folder = locate_model(record, models_dir)
    if folder is None:
        raise NotFoundError(f"model '{record.name}' is not on this machine", f"get it: qmd models pull {record.name}")
    return folder


def verify_model(record: ModelRecord, models_dir: Path) -> tuple[FileCheck, ...]:
    """Compare every file, prepared forms included, with its recorded sha256 or size. Reads the files whole.

    Raises:
        NotFoundError: If the model is not on this machine.
    """
    folder = model_path(record, models_dir)
    manifest = read_manifest(folder)
    expected = {file.path: file for file in _expected_files(record, folder, manifest)}
    for form in prepared_forms(record, folder):
        expected |= {f"{PREPARED_FOLDER}/{form.name}/{file.path}": file for file in form.files}
    return tuple(FileCheck(path, _check(folder / path, file)) for path, file in sorted(expected.items()))


def remove_model(record: ModelRecord, models_dir: Path) -> int:
    """Delete a model's folder, prepared forms included; returns the bytes freed.

    Raises:
        UsageError: If the model is built in.
        NotFoundError: If it is not on this machine.
        ModelError: If the folder cannot be deleted.
    """
    if record.tier == "built-in":
        raise UsageError(f"model '{record.name}' is part of qmd and cannot be removed")
    folder = models_dir / record.folder
    if not folder.is_dir():
        raise NotFoundError(f"model '{record.name}' is not on this machine", "see: qmd models list")
    size = folder_size(folder)
    # Renamed first: an interrupted deletion must not leave half a model under its name.
    with mapped_os_errors(folder):
        if folder.is_symlink():
            folder.unlink()
            return 0
        doomed = Path(tempfile.mkdtemp(prefix=".removed-", dir=models_dir))
        folder.rename(doomed / folder.name)
        shutil.rmtree(doomed)
    return size


def export_model(record: ModelRecord, models_dir: Path, target: Path) -> Path:
    """Copy a model to `target`: a tar file when its name ends in `.tar`, `.tar.gz` or `.tgz`, else a folder.

    Prepared forms stay behind: they belong to this machine.

    Raises:
        NotFoundError: If the model is not on this machine.
        UsageError: If `target` exists.
        ModelError: If it cannot be written.
    """
    folder = model_path(record, models_dir)
    if target.exists():
        raise UsageError(f"'{target}' exists already", "choose another name")
    manifest = read_manifest(folder) or _make_manifest(record, None, folder, _held_paths(folder))
    with mapped_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as staging:
            write_manifest(Path(staging), manifest)
            sources = {item.path: folder / item.path for item in manifest.files}
            sources[MANIFEST_NAME] = Path(staging, MANIFEST_NAME)
            partial = Path(staging, "partial")
            if target.name.endswith((".tar", ".tar.gz", ".tgz")):
                # Weights hardly shrink: the least effort is the best choice.
                options: dict[str, Any] = (
                    {"mode": "w"} if target.suffix == ".tar" else {"mode": "w:gz", "compresslevel": 1}
                )
                with tarfile.open(partial, **options) as archive:
                    for name, source in sources.items():
                        archive.add(source.resolve(), f"{record.folder}/{name}", recursive=False)
            else:
                for name, source in sources.items():
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, partial / name)
            partial.rename(target)
    return target


def import_model(source: Path, models_dir: Path, record: ModelRecord | None = None) -> ModelRecord:
    """Take a model from an exported tar file or folder, or from a plain download of its repository.

    Nothing that was there is touched before the new files are whole and checked.

    Without `record` the manifest or the folder's name says which model it is.

    Raises:
        NotFoundError: If `source` does not exist.
        UsageError: If it cannot be told which model it is.
        ModelError: If it is damaged, or cannot be written.
    """
    if not source.exists():
        raise NotFoundError(f"'{source}' does not exist")
    with mapped_os_errors(models_dir):
        make_private_folder(models_dir)
        with tempfile.TemporaryDirectory(prefix=".import-", dir=models_dir) as staging:
            folder = _unpack(source, Path(staging)) if source.is_file() else source
            manifest = read_manifest(folder)
            record = record or _identify(folder, source, manifest)
            wanted = _expected_files(record, folder, manifest)
            if not {item.path for item in wanted} & {item.weights.path for item in record.formats}:
                raise ModelError(f"'{source}' holds no weights of '{record.name}'", "see: qmd models list")
            place = Path(staging) / "ready"
            for item in wanted:
                checked = _inside(folder, item.path)
                (place / item.path).parent.mkdir(parents=True, exist_ok=True)
                if folder is source:
                    shutil.copyfile(checked, place / item.path)
                else:
                    checked.rename(place / item.path)
                if _check(place / item.path, item) == "damaged":
                    raise _wrong_bytes(item.path, source, record, manifest)
            commit = manifest.commit if manifest else None
            made = _make_manifest(record, commit, place, [item.path for item in wanted])
            install_files(place, models_dir / record.folder, made)
    return record


def _wrong_bytes(path: str, source: Path, record: ModelRecord, manifest: Manifest | None) -> ModelError:
    if manifest is not None:
        return ModelError(f"'{path}' in '{source}' is damaged", "export or download it again")
    return ModelError(
        f"'{path}' in '{source}' is damaged, or of another version than the one that is pinned",
        f"download revision '{record.revision}' of '{record.repository}', or: qmd models export on another machine",
    )


def install_files(staging: Path, folder: Path, manifest: Manifest) -> None:
    """Move checked files of `manifest` from `staging` to `folder`, one atomic step each, the manifest last.

    Both must lie on one file system. A reader sees each file either old or new, never half.
    """
    for item in manifest.files:
        (folder / item.path).parent.mkdir(parents=True, exist_ok=True)
        if (staging / item.path).exists():
            (staging / item.path).replace(folder / item.path)
    write_manifest(folder, manifest)


def _make_manifest(record: ModelRecord, commit: str | None, folder: Path, paths: Iterable[str]) -> Manifest:
    """The manifest of files that lie in `folder`. Reads them whole."""
    return Manifest(record.repository, commit, tuple(measure_file(folder, path) for path in sorted(paths)))


def measure_file(folder: Path, path: str) -> ModelFile:
    """A file of a folder with its size and sha256."""
    return ModelFile(path, (folder / path).stat().st_size, sha256_of(folder / path))


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, None where there is none.

    Raises:
        ModelError: It is damaged.
    """
    try:
        found = json.loads((folder / MANIFEST_NAME).read_text("utf-8"))
        return Manifest(str(found["repository"]), found.get("commit"), read_file_list(found["files"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise ModelError(f"'{folder / MANIFEST_NAME}' is damaged", "fetch the model again: qmd models pull") from exc


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest in one step."""
    files = file_list(manifest.files)
    text = json.dumps({"repository": manifest.repository, "commit": manifest.commit, "files": files}, indent=1)
    write_atomically(folder / MANIFEST_NAME, text)


def file_list(files: Iterable[ModelFile]) -> list[dict[str, object]]:
    """Files as every manifest lists them; `read_file_list` reads them back."""
    return [{"path": item.path, "size_bytes": item.size_bytes, "sha256": item.sha256} for item in files]


def sha256_of(path: Path) -> str:
    """sha256 hex of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_size(folder: Path) -> int:
    """Bytes of all files under a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@contextlib.contextmanager
def mapped_os_errors(path: Path) -> Iterator[None]:
    """Turn a full disk, missing rights and their like into one `ModelError` line."""
    try:
        yield
    except (OSError, tarfile.TarError, EOFError) as exc:
        reason = getattr(exc, "strerror", None) or " ".join(str(exc).split()) or type(exc).__name__
        raise ModelError(f"cannot use '{path}': {reason}", "check its rights and the free space") from exc


@contextlib.contextmanager
def locked(path: Path, otherwise: str) -> Iterator[None]:
    """Hold a lock for the block.

    Raises:
        BusyModelError: If another process has it; `otherwise` says what it does.
    """
    with exclusive_lock(path) as is_ours:
        if not is_ours:
            raise BusyModelError(otherwise, "wait until it has ended")
        yield


def check_space(folder: Path, needed: int) -> None:
    """Refuse before the first byte when the disk cannot hold `needed` bytes more.

    Raises:
        ModelError: It cannot.
    """
    free = shutil.disk_usage(folder).free
    if needed + _SPARE_BYTES > free:
        raise ModelError(
            f"not enough space in '{folder}': needs {(needed >> 20) + 1} MiB with {_SPARE_BYTES >> 20} MiB to spare,"
            f" {free >> 20} MiB free",
            "free some space, or move the models folder",
        )


def _expected_files(record: ModelRecord, folder: Path, manifest: Manifest | None) -> Sequence[ModelFile]:
    """What a folder should hold: what its manifest says, else what is there of the catalogue's files.

    Without a manifest nobody knows which formats and optional files were fetched, nor from which version: weights and
    tokenizer must be those that are pinned, while small files of settings differ from one version to the next.
    """
    if manifest is not None:
        return manifest.files
    weights = [item.weights for item in record.formats if (folder / item.weights.path).is_file()]
    tokenizer = [item for item in record.files if item.path == "tokenizer.json"]
    others = [ModelFile(item.path) for item in record.files if item not in tokenizer and (folder / item.path).is_file()]
    named = [beside(item.path, name) for item in weights for name in external_files(folder / item.path)]
    return [*tokenizer, *others, *weights, *map(ModelFile, dict.fromkeys(named))]


def _check(path: Path, expected: ModelFile) -> FileStatus:
    if not path.is_file():
        return "missing"
    if expected.size_bytes is not None and path.stat().st_size != expected.size_bytes:
        return "damaged"
    if expected.sha256 is not None:
        return "ok" if sha256_of(path) == expected.sha256 else "damaged"
    return "unknown" if expected.size_bytes is None else "ok"


def _held_paths(folder: Path) -> list[str]:
    """Files of a folder by relative path, without prepared forms and hidden files."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    keep = (path for path in paths if path.parts[0] != PREPARED_FOLDER and not path.name.startswith("."))
    return sorted(path.as_posix() for path in keep if path.name != MANIFEST_NAME)


def _identify(folder: Path, source: Path, manifest: Manifest | None) -> ModelRecord:
    made_elsewhere = read_imported(folder)
    if made_elsewhere is not None:
        return made_elsewhere.record
    names = {manifest.repository.lower()} if manifest else set()
    names |= {path.name.lower().split(".tar")[0].removesuffix(".tgz") for path in (folder, source)}
    for record in MODELS:
        if names & {record.repository.lower(), record.folder.lower(), record.name.lower()}:
            return record
    held = {file.path for file in manifest.files} if manifest else set()
    with contextlib.suppress(ModelError):
        known = [model.record for model in fastembed_models()]
        by_name = [record for record in known if record.folder.lower() in names]
        by_file = [one for one in known if one.repository.lower() in names and one.formats[0].weights.path in held]
        if by_name or len(by_file) == 1:
            return (by_name or by_file)[0]
    raise UsageError(f"cannot tell which model '{source}' is", "name it: qmd models import FILE --name NAME")


def _inside(folder: Path, path: str) -> Path:
    """The file of a manifest entry, which must lie inside the folder."""
    pure, found = PurePosixPath(path), folder / path
    if pure.is_absolute() or ".." in pure.parts or not found.is_file():
        raise ModelError(f"'{path}' is missing from '{folder.name}'", "export or download it again")
    return found


def _unpack(archive: Path, staging: Path) -> Path:
    """Unpack a tar file, which may hold plain files alone; the folder that holds them.

    Not by `extractall`: the filter that makes it safe is missing from the Python 3.11.2 of Debian 12.
    """
    inner = staging / "unpacked"
    inner.mkdir()
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isdir():
                    continue
                target = inner / member.name
                source = opened.extractfile(member) if member.isreg() else None
                if source is None or not target.resolve().is_relative_to(inner.resolve()):
                    raise ModelError(f"'{archive}' holds '{member.name}', which no model has", "ask whoever made it")
                target.parent.mkdir(parents=True, exist_ok=True)
                with source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    except tarfile.ReadError as exc:
        raise ModelError(f"'{archive}' is not a whole tar file", "export it again: qmd models export") from exc
    entries = list(inner.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else inner
