"""Model archives: export to a folder or a tar file, and import from one.

An archive is not trusted. Its manifest is read first and lists the files to unpack; its record supplies facts, never a
folder; the files of a model of the catalogue must match the pinned ones. Files are written only into a temporary folder
until all of them are complete and checked.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from qmd.errors import ModelError, NotFoundError, UsageError
from qmd.files import make_private_folder
from qmd.foreign import file_below, fold_name, path_below, reading, short
from qmd.inference.models.catalogue import MODELS
from qmd.inference.models.folders import (
    MANIFEST_NAME,
    Manifest,
    check_space,
    map_os_errors,
    model_path,
    read_manifest,
    staged,
    write_manifest,
)
from qmd.inference.models.imported import OWNER, read_imported, write_imported
from qmd.inference.models.prepared import PREPARED_FOLDER
from qmd.inference.models.stored_types import external_files, sibling
from qmd.inference.records import ModelFile, ModelRecord
from qmd.plugins.models.inventory import check_file, expected_files, install_files, measure_files, provider_records

_MOST_MEMBERS = 1_000
_MOST_RATIO, _SMALL_BYTES = 10, 16 << 20
"""Most bytes unpacked: so many times the archive's size, or this many. Weights shrink by a tenth."""
_MOST_AT_ONCE = 1 << 20
_GZIP = b"\x1f\x8b"


def export_model(record: ModelRecord, models_dir: Path, target: Path) -> Path:
    """Copy a model to `target`: a tar file when its name ends in `.tar`, `.tar.gz` or `.tgz`, else a folder.

    Prepared forms are skipped: they belong to this machine.

    Raises:
        NotFoundError: If the model is not on this machine.
        UsageError: If `target` exists.
        ModelError: If it cannot be written.
    """
    folder = model_path(record, models_dir)
    if target.exists():
        raise UsageError(f"'{target}' exists already", "choose another name")
    manifest = read_manifest(folder) or measure_files(
        record, None, folder, [item.path for item in expected_files(record, folder, None)]
    )
    with map_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as staging:
            write_manifest(Path(staging), manifest)
            # First, so that an import knows the contents before it unpacks them.
            sources = {MANIFEST_NAME: Path(staging, MANIFEST_NAME)}
            sources |= {item.path: folder / item.path for item in manifest.files}
            partly = Path(staging, "partial")
            if target.name.endswith((".tar", ".tar.gz", ".tgz")):
                # Weights hardly shrink, so the least effort is best.
                least: dict[str, Any] = {} if target.suffix == ".tar" else {"mode": "w:gz", "compresslevel": 1}
                with tarfile.open(partly, **{"mode": "w", **least}) as archive:
                    for name, source in sources.items():
                        archive.add(source.resolve(), f"{record.folder}/{name}", recursive=False)
            else:
                for name, source in sources.items():
                    (partly / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, partly / name)
            partly.rename(target)
    return target


def import_model(source: Path, models_dir: Path, record: ModelRecord | None = None) -> ModelRecord:
    """Import a model from an exported tar file or folder, or from a plain download of its repository.

    Existing files stay untouched until the new files are complete and checked.

    Without `record` the manifest or the folder's name identifies the model.

    Raises:
        NotFoundError: If `source` does not exist.
        UsageError: If nothing identifies the model.
        BusyModelError: If another process imports an archive, or works on the same model.
        ModelError: If it is damaged, differs from the pinned model, or cannot be written.
    """
    if not source.is_dir() and not source.is_file():
        raise NotFoundError(f"'{source}' is no file and no folder", "name what 'qmd models export' wrote")
    with map_os_errors(models_dir), reading(source.name), contextlib.ExitStack() as stack:
        make_private_folder(models_dir)
        is_archive = source.is_file()
        folder = _unpack(source, stack.enter_context(staged(models_dir, "archive"))) if is_archive else source
        manifest = read_manifest(folder)
        made_elsewhere = None if record else read_imported(folder)
        record = record or (made_elsewhere.record if made_elsewhere else _identify_model(folder, source, manifest))
        found = _files_of(record, folder, manifest, source)
        place = stack.enter_context(staged(models_dir, record.folder))
        check_space(place, 0 if is_archive else sum(path.stat().st_size for path in found.values()))
        for item, path in found.items():
            (place / item.path).parent.mkdir(parents=True, exist_ok=True)
            (path.rename if is_archive else partial(shutil.copyfile, path))(place / item.path)
            if check_file(place / item.path, item) == "damaged":
                raise ModelError(
                    f"'{item.path}' in '{source}' is damaged, or of another version than the pinned one",
                    f"download revision '{record.revision}' of '{record.repository}', or export it again elsewhere",
                )
        if made_elsewhere is not None:
            write_imported(place, made_elsewhere)
        complete = measure_files(record, manifest.commit if manifest else None, place, [item.path for item in found])
        install_files(place, models_dir / record.folder, complete)
    return record


def _files_of(record: ModelRecord, folder: Path, manifest: Manifest | None, source: Path) -> dict[ModelFile, Path]:
    """Return the model's own files in a folder: for a model of the catalogue those of its record and graphs."""
    graphs = [item.weights.path for item in record.formats]

    def is_own(path: str) -> bool:
        if record.repository.startswith(f"{OWNER}/"):
            # Forms are made here; a file in their place would run as one.
            return fold_name(PurePosixPath(path).parts[0]) not in (PREPARED_FOLDER, MANIFEST_NAME)
        siblings = (sibling(graph, name) for graph in graphs for name in external_files(folder / graph))
        return path in [item.path for item in record.files] + graphs or path in siblings

    wanted = [item for item in expected_files(record, folder, manifest) if is_own(item.path)]
    if not {item.path for item in wanted} & set(graphs):
        raise ModelError(f"'{source}' contains no weights of '{record.name}'", "see: qmd models list")
    return {item: file_below(folder, item.path, source.name) for item in wanted}


def _identify_model(folder: Path, source: Path, manifest: Manifest | None) -> ModelRecord:
    """Return the model, of the catalogue or a plug-in, that a manifest or the name of the folder or archive means."""
    names = {manifest.repository.lower()} if manifest else set()
    names |= {path.name.lower().split(".tar")[0].removesuffix(".tgz") for path in (folder, source)}
    for record in MODELS:
        if names & {record.repository.lower(), record.folder.lower(), record.name.lower()}:
            return record
    known: list[ModelRecord] = []
    with contextlib.suppress(ModelError):
        known = provider_records()
    listed = {file.path for file in manifest.files} if manifest else set()
    by_name = [one for one in known if one.folder.lower() in names]
    by_file = [one for one in known if one.repository.lower() in names and one.formats[0].weights.path in listed]
    if by_name or len(by_file) == 1:
        return (by_name or by_file)[0]
    raise UsageError(f"cannot tell which model '{source}' is", "name it: qmd models import FILE --name NAME")


class _Stream(io.BufferedReader):
    """An archive's bytes, read in small pieces: a header of gigabytes would fill the memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _MOST_AT_ONCE:
            raise tarfile.ReadError("it has a header that is too large")
        return super().read(size)


@contextlib.contextmanager
def _open_archive(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with archive.open("rb") as raw, gzip.GzipFile(fileobj=raw) as unzipped:
            stream = _Stream(unzipped if raw.peek(2)[:2] == _GZIP else raw)
            with tarfile.open(fileobj=stream, mode="r:") as opened:
                yield opened
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as exc:
        raise ModelError(f"'{archive}' is not a whole tar file", "export it again: qmd models export") from exc


def _unpack(archive: Path, staging: Path) -> Path:
    """Unpack a tar file of plain files, up to its declared contents; return the model's folder.

    Not by `extractall`: the filter that makes it safe is missing from the Python 3.11.2 of Debian 12.
    """
    left = _MOST_RATIO * archive.stat().st_size + _SMALL_BYTES
    folder, seen = staging, {""}
    with _open_archive(archive) as opened:
        for number, member in enumerate(opened):
            left -= member.size
            if number >= _MOST_MEMBERS or left < 0:
                raise ModelError(f"'{archive}' contains more than its model can", "ask its maker")
            if member.isdir():
                continue
            target = path_below(staging, member.name, archive.name)
            source = opened.extractfile(member) if member.isreg() and not member.issparse() else None
            if source is None or fold_name(str(target)) in seen:
                raise ModelError(f"'{archive}' contains '{short(member.name)}', which no model has", "ask its maker")
            seen.add(fold_name(str(target)))
            check_space(staging, member.size)
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
            if target.name == MANIFEST_NAME and (manifest := read_manifest(target.parent)):
                folder, left = target.parent, sum(item.size_bytes or 0 for item in manifest.files)
    entries = [*staging.iterdir()] * (folder == staging)
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder
