"""Models on this machine: list, verify, install and remove their files."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from qmd.errors import ModelError, NotFoundError, UsageError
from qmd.foreign import path_below
from qmd.inference.base import engine_provider
from qmd.inference.models.builtin import MULTILINGUAL, PACKAGE
from qmd.inference.models.catalogue import MODELS
from qmd.inference.models.folders import (
    MANIFEST_NAME,
    Manifest,
    folder_size,
    map_os_errors,
    measure_file,
    model_path,
    read_manifest,
    sha256_of,
    write_manifest,
)
from qmd.inference.models.imported import OWNER, imported_models
from qmd.inference.models.prepared import PREPARED_FOLDER, PreparedForm, prepared_forms
from qmd.inference.models.stored_types import external_files, sibling
from qmd.inference.models.weights import locate_model
from qmd.inference.records import ModelFile, ModelRecord
from qmd.plugins import ENGINES, find

FileStatus = Literal["ok", "missing", "damaged", "differs", "unknown"]
"""`differs`: matches its manifest, but not the catalogue's pin. `unknown`: its contents are recorded nowhere."""


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
    """Formats whose weights are here."""
    prepared: tuple[PreparedForm, ...]
    """Forms that were made here, or refused."""


def list_models(models_dir: Path) -> tuple[ModelState, ...]:
    """Return every model of the catalogue, present or not, fetched models of other providers, and the imported ones."""
    states: list[ModelState] = []
    imported = (model.record for model in imported_models(models_dir))
    for record in (*MODELS, *_fetched_from_providers(models_dir), *imported):
        located = locate_model(record, models_dir)
        folder = located or models_dir / record.folder
        formats = tuple(item.name for item in record.formats if (folder / item.weights.path).is_file())
        states.append(ModelState(record, folder, located is not None, formats, prepared_forms(record, folder)))
    return tuple(states)


def _fetched_from_providers(models_dir: Path) -> list[ModelRecord]:
    """Return models of other providers whose folders are here; none of a provider whose package is missing."""
    others = {record.folder for record in MODELS}
    names = {path.name for path in models_dir.glob("*--*") if path.name not in others}
    found: list[ModelRecord] = []
    for owner in sorted({name.partition("--")[0] for name in names} - {OWNER}):
        if find(ENGINES, f"{owner}:") is not None:
            with contextlib.suppress(ModelError):
                found += [one for one in engine_provider(f"{owner}:").known_records() if one.folder in names]
    return found


def provider_records() -> list[ModelRecord]:
    """Return every model that the installed providers know by name."""
    return [record for key in ENGINES for record in engine_provider(key).known_records()]


def verify_model(record: ModelRecord, models_dir: Path) -> tuple[FileCheck, ...]:
    """Compare every file, prepared forms included, with its recorded sha256 or size. Reads the files whole.

    Raises:
        NotFoundError: If the model is not on this machine.
    """
    folder = model_path(record, models_dir)
    manifest = read_manifest(folder)
    if record.tier == "built-in":
        more = filter(lambda file: (folder / file.path).is_file(), filter(None, [record.pieces]))
        manifest = Manifest(record.repository, None, (*record.files, *more, *(item.weights for item in record.formats)))
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
    """Delete a model's folder, prepared forms included; return the bytes freed.

    Raises:
        UsageError: If the model is built in.
        NotFoundError: If it is not on this machine.
        ModelError: If the folder cannot be deleted.
    """
    if record.tier == "built-in":
        hint = f"pip uninstall {PACKAGE}" if record is MULTILINGUAL else None
        raise UsageError(f"model '{record.name}' is part of a package and cannot be removed", hint)
    folder = models_dir / record.folder
    if not folder.is_dir():
        raise NotFoundError(f"model '{record.name}' is not on this machine", "see: qmd models list")
    size = folder_size(folder)
    # Renamed first: an interrupted deletion must not leave half a model under its name.
    with map_os_errors(folder):
        if folder.is_symlink():
            folder.unlink()
            return 0
        doomed = Path(tempfile.mkdtemp(prefix=".removed-", dir=models_dir))
        folder.rename(doomed / folder.name)
        shutil.rmtree(doomed)
    return size


def install_files(staging: Path, folder: Path, manifest: Manifest) -> None:
    """Move checked files of `manifest` from `staging` to `folder`, one atomic step each, the manifest last.

    Both must be on one file system. A reader sees each file either old or new, never half.
    """
    for item in manifest.files:
        target = path_below(folder, item.path, MANIFEST_NAME)
        target.parent.mkdir(parents=True, exist_ok=True)
        if (staging / item.path).exists():
            (staging / item.path).replace(target)
    write_manifest(folder, manifest)


def measure_files(record: ModelRecord, commit: str | None, folder: Path, paths: Iterable[str]) -> Manifest:
    """Return the manifest of files in `folder`. Reads them whole."""
    return Manifest(record.repository, commit, tuple(measure_file(folder, path) for path in sorted(paths)))


def expected_files(record: ModelRecord, folder: Path, manifest: Manifest | None) -> list[ModelFile]:
    """Return a folder's expected files: those pinned by the catalogue, else by its manifest, else the present ones.

    Without a manifest the fetched formats, optional files and version are unknown: weights and tokenizer must be the
    pinned ones, while small files of settings differ from one version to the next.
    """
    if manifest is not None:
        known = (*record.files, *(item.weights for item in record.formats))
        pinned = {item.path: item for item in known if item.sha256 is not None}
        return [pinned.get(item.path, item) for item in manifest.files]
    weights = [item.weights for item in record.formats if (folder / item.weights.path).is_file()]
    tokenizer = [item for item in record.files if item.path == "tokenizer.json"]
    others = [ModelFile(item.path) for item in record.files if item not in tokenizer and (folder / item.path).is_file()]
    named = [sibling(item.path, name) for item in weights for name in external_files(folder / item.path)]
    return [*tokenizer, *others, *weights, *map(ModelFile, dict.fromkeys(named))]


def check_file(path: Path, expected: ModelFile) -> FileStatus:
    if not path.is_file():
        return "missing"
    if expected.size_bytes is not None and path.stat().st_size != expected.size_bytes:
        return "damaged"
    if expected.sha256 is not None:
        return "ok" if sha256_of(path) == expected.sha256 else "damaged"
    return "unknown" if expected.size_bytes is None else "ok"
