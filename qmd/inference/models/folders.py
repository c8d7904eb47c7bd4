"""Model folders on this machine: their manifests, whether they are whole, removing them.

A folder fetched or imported here holds `qmd-model.json`, written last: repository, commit, and size and sha256 of each
file. It is what `verify` compares with.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from qmd.errors import BusyModelError, ModelError, NotFoundError, UsageError
from qmd.files import exclusive_lock, make_private_folder, write_atomically
from qmd.foreign import commit_of, path_below, read_json_file
from qmd.inference.base import engine_room
from qmd.inference.models.catalogue import MODELS
from qmd.inference.models.imported import OWNER, imported_models
from qmd.inference.models.prepared import PREPARED_FOLDER, PreparedForm, prepared_forms, read_file_list
from qmd.inference.models.stored_types import beside, external_files
from qmd.inference.models.weights import locate_model
from qmd.inference.records import ModelFile, ModelRecord
from qmd.plugins import ENGINES, find

MANIFEST_NAME = "qmd-model.json"
MAX_MANIFEST_BYTES = 1 << 20
STAGING = ".staging"
_SPARE_BYTES = 64 << 20
"""Left free on the disk besides what is written."""

FileStatus = Literal["ok", "missing", "damaged", "differs", "unknown"]
"""`differs`: as its manifest says, but not what the catalogue pins. `unknown`: nobody says what it should hold."""


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
    """Every model of the catalogue, present or not, those of other rooms that were fetched, and the imported ones."""
    states: list[ModelState] = []
    imported = (model.record for model in imported_models(models_dir))
    for record in (*MODELS, *_fetched_from_rooms(models_dir), *imported):
        try:
            located = locate_model(record, models_dir)
        except ModelError:
            # The built-in model is missing.
            located = None
        folder = located or models_dir / record.folder
        formats = tuple(item.name for item in record.formats if (folder / item.weights.path).is_file())
        states.append(ModelState(record, folder, located is not None, formats, prepared_forms(record, folder)))
    return tuple(states)


def _fetched_from_rooms(models_dir: Path) -> list[ModelRecord]:
    """Models of other rooms of engines whose folders are here; none of a room whose package is missing."""
    others = {record.folder for record in MODELS}
    names = {path.name for path in models_dir.glob("*--*") if path.name not in others}
    found: list[ModelRecord] = []
    for owner in sorted({name.partition("--")[0] for name in names} - {OWNER}):
        if find(ENGINES, f"{owner}:") is not None:
            with contextlib.suppress(ModelError):
                found += [one for one in engine_room(f"{owner}:").known_records() if one.folder in names]
    return found


def room_records() -> list[ModelRecord]:
    """Every model that the rooms of engines here know by name."""
    return [record for key in ENGINES for record in engine_room(key).known_records()]


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
    expected = {file.path: file for file in expected_files(record, folder, manifest)}
    listed = {file.path: file for file in manifest.files} if manifest else {}
    for form in prepared_forms(record, folder):
        expected |= {f"{PREPARED_FOLDER}/{form.name}/{file.path}": file for file in form.files}
    checks = {path: check_file(folder / path, file) for path, file in sorted(expected.items())}
    for path, file in listed.items():
        if checks[path] == "damaged" and file != expected[path] and check_file(folder / path, file) == "ok":
            checks[path] = "differs"
    return tuple(FileCheck(path, status) for path, status in checks.items())


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


def install_files(staging: Path, folder: Path, manifest: Manifest) -> None:
    """Move checked files of `manifest` from `staging` to `folder`, one atomic step each, the manifest last.

    Both must lie on one file system. A reader sees each file either old or new, never half.
    """
    for item in manifest.files:
        target = path_below(folder, item.path, MANIFEST_NAME)
        target.parent.mkdir(parents=True, exist_ok=True)
        if (staging / item.path).exists():
            (staging / item.path).replace(target)
    write_manifest(folder, manifest)


def measured(record: ModelRecord, commit: str | None, folder: Path, paths: Iterable[str]) -> Manifest:
    """The manifest of files that lie in `folder`. Reads them whole."""
    return Manifest(record.repository, commit, tuple(measure_file(folder, path) for path in sorted(paths)))


def measure_file(folder: Path, path: str) -> ModelFile:
    """A file of a folder with its size and sha256."""
    return ModelFile(path, (folder / path).stat().st_size, sha256_of(folder / path))


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, None where there is none. It may be foreign: its paths lead down, its commit is one.

    Raises:
        ModelError: It is damaged.
    """
    try:
        found = read_json_file(folder / MANIFEST_NAME, MAX_MANIFEST_BYTES)
        return Manifest(str(found["repository"]), commit_of(found.get("commit")), read_file_list(found["files"]))
    except FileNotFoundError:
        return None
    except (AttributeError, OSError, OverflowError, ValueError, KeyError, TypeError) as exc:
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
    except OSError as exc:
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


@contextlib.contextmanager
def staged(models_dir: Path, name: str) -> Iterator[Path]:
    """An empty folder to put a model together in, under the lock of its name; it goes with the block.

    Raises:
        BusyModelError: If another process has the lock.
    """
    folder = models_dir / STAGING / f"{name}.importing"
    with locked(models_dir / STAGING / f"{name}.lock", f"'{name}' is being imported or fetched by another process"):
        # What an interrupted run left; the lock says that nobody writes it.
        shutil.rmtree(folder, ignore_errors=True)
        try:
            make_private_folder(folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


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


def pinned_files(record: ModelRecord) -> Mapping[str, ModelFile]:
    """The files whose bytes the catalogue knows, by path."""
    named = (*record.files, *(item.weights for item in record.formats))
    return {item.path: item for item in named if item.sha256 is not None}


def expected_files(record: ModelRecord, folder: Path, manifest: Manifest | None) -> list[ModelFile]:
    """What a folder should hold: what the catalogue pins of it, else its manifest, else what is there of its files.

    Without a manifest nobody knows which formats and optional files were fetched, nor from which version: weights and
    tokenizer must be those that are pinned, while small files of settings differ from one version to the next.
    """
    if manifest is not None:
        pinned = pinned_files(record)
        return [pinned.get(item.path, item) for item in manifest.files]
    weights = [item.weights for item in record.formats if (folder / item.weights.path).is_file()]
    tokenizer = [item for item in record.files if item.path == "tokenizer.json"]
    others = [ModelFile(item.path) for item in record.files if item not in tokenizer and (folder / item.path).is_file()]
    named = [beside(item.path, name) for item in weights for name in external_files(folder / item.path)]
    return [*tokenizer, *others, *weights, *map(ModelFile, dict.fromkeys(named))]


def check_file(path: Path, expected: ModelFile) -> FileStatus:
    if not path.is_file():
        return "missing"
    if expected.size_bytes is not None and path.stat().st_size != expected.size_bytes:
        return "damaged"
    if expected.sha256 is not None:
        return "ok" if sha256_of(path) == expected.sha256 else "damaged"
    return "unknown" if expected.size_bytes is None else "ok"
