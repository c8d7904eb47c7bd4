"""Models on their way between machines: exported to a folder or a tar file, and taken from one.

What comes in is a stranger's. Its manifest is read first and says what is unpacked; its record gives facts, never a
folder; the files of a model of the catalogue must be those that the catalogue pins. Nothing is written but into a
folder that goes with the import, until all of it is whole and checked.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

from qmd.errors import ModelError, NotFoundError, UsageError
from qmd.files import make_private_folder
from qmd.foreign import checked_parts, file_below, folded, path_below, reading, short
from qmd.inference.models.catalogue import MODELS, ModelRecord
from qmd.inference.models.fastembed_catalogue import fastembed_models
from qmd.inference.models.folders import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    Manifest,
    check_file,
    check_space,
    expected_files,
    install_files,
    mapped_os_errors,
    measured,
    model_path,
    pinned_files,
    read_manifest,
    staged,
    write_manifest,
)
from qmd.inference.models.held_types import beside, external_files
from qmd.inference.models.imported import OWNER, ImportedModel, read_imported, write_imported
from qmd.inference.models.prepared import PREPARED_FOLDER

_MOST_MEMBERS = 1_000
_MOST_RATIO, _SMALL_BYTES = 10, 16 << 20
"""An archive may hold so many times its own size, or this much: weights shrink by a tenth."""
_MOST_AT_ONCE = 1 << 20
_GZIP = b"\x1f\x8b"


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
    manifest = read_manifest(folder) or measured(record, None, folder, _held_paths(folder))
    with mapped_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as staging:
            write_manifest(Path(staging), manifest)
            # First, so that whoever unpacks it knows what is to come.
            sources = {MANIFEST_NAME: Path(staging, MANIFEST_NAME)}
            sources |= {item.path: folder / item.path for item in manifest.files}
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
        BusyModelError: If another process takes one from an archive, or works on the same model.
        ModelError: If it is damaged, another than the one that is pinned, or cannot be written.
    """
    if not source.exists():
        raise NotFoundError(f"'{source}' does not exist")
    if not source.is_dir() and not source.is_file():
        raise ModelError(f"'{source}' is neither a file nor a folder", "name what 'qmd models export' wrote")
    with mapped_os_errors(models_dir), reading(source.name), contextlib.ExitStack() as stack:
        make_private_folder(models_dir)
        folder = source
        if source.is_file():
            folder = _unpack(source, stack.enter_context(staged(models_dir, "archive")))
        manifest = read_manifest(folder)
        made_elsewhere = None if record else read_imported(folder)
        record = record or (made_elsewhere.record if made_elsewhere else _identify(folder, source, manifest))
        staging = stack.enter_context(staged(models_dir, record.folder))
        _take(folder, source, manifest, record, made_elsewhere, staging, models_dir / record.folder)
    return record


def _take(
    folder: Path,
    source: Path,
    manifest: Manifest | None,
    record: ModelRecord,
    made_elsewhere: ImportedModel | None,
    staging: Path,
    target: Path,
) -> None:
    """Check the files of a model in a folder, and put them in place."""
    wanted = [item for item in expected_files(record, folder, manifest) if _belongs(item.path, record, folder)]
    if not {item.path for item in wanted} & {item.weights.path for item in record.formats}:
        raise ModelError(f"'{source}' holds no weights of '{record.name}'", "see: qmd models list")
    found = {item: file_below(folder, item.path, source.name) for item in wanted}
    check_space(staging, sum(path.stat().st_size for path in found.values()) if folder is source else 0)
    for item, path in found.items():
        (staging / item.path).parent.mkdir(parents=True, exist_ok=True)
        if folder is source:
            shutil.copyfile(path, staging / item.path)
        else:
            path.rename(staging / item.path)
        if check_file(staging / item.path, item) == "damaged":
            raise _wrong_bytes(item.path, source, record)
    if made_elsewhere is not None:
        write_imported(staging, made_elsewhere)
    made = measured(record, manifest.commit if manifest else None, staging, [item.path for item in wanted])
    held = None
    with contextlib.suppress(ModelError):  # a damaged one pins nothing
        held = None if made_elsewhere else read_manifest(target)
    fetched = {item.path: item.sha256 for item in held.files} if held else {}
    for item in made.files:
        # Where the catalogue pins nothing, the first pull did.
        if item.path not in pinned_files(record) and fetched.get(item.path, item.sha256) != item.sha256:
            raise ModelError(
                f"'{item.path}' in '{source}' is another than the one that was fetched here",
                f"to take it all the same: qmd models remove {record.name}, then import it again",
            )
    install_files(staging, target, made)


def _belongs(path: str, record: ModelRecord, folder: Path) -> bool:
    """Whether a file is the model's own: of a model of the catalogue what it names, and what its graphs do."""
    if record.repository.startswith(f"{OWNER}/"):
        # Forms are made here, and what lies in their place would be run as one.
        return folded(PurePosixPath(path).parts[0]) not in (PREPARED_FOLDER, MANIFEST_NAME)
    graphs = [item.weights.path for item in record.formats]
    named = {*(item.path for item in record.files), *graphs}
    return path in named or path in (beside(graph, name) for graph in graphs for name in external_files(folder / graph))


def _wrong_bytes(path: str, source: Path, record: ModelRecord) -> ModelError:
    if path not in pinned_files(record):
        return ModelError(f"'{path}' in '{source}' is damaged", "export or download it again")
    return ModelError(
        f"'{path}' in '{source}' is damaged, or of another version than the one that is pinned",
        f"download revision '{record.revision}' of '{record.repository}', or: qmd models export on another machine",
    )


def _held_paths(folder: Path) -> list[str]:
    """Files of a folder by relative path, without prepared forms and hidden files."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    keep = (path for path in paths if path.parts[0] != PREPARED_FOLDER and not path.name.startswith("."))
    return sorted(path.as_posix() for path in keep if path.name != MANIFEST_NAME)


def _identify(folder: Path, source: Path, manifest: Manifest | None) -> ModelRecord:
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


class _Stream(io.BufferedReader):
    """An archive's bytes, a few at a time: a header of gigabytes would be held in memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _MOST_AT_ONCE:
            raise tarfile.ReadError("it has a header that is too large")
        return super().read(size)


def _unpack(archive: Path, staging: Path) -> Path:
    """Unpack the model that a tar file holds, and nothing else of it; the folder that holds it.

    Not by `extractall`: the filter that makes it safe is missing from the Python 3.11.2 of Debian 12.
    """
    with archive.open("rb") as raw, gzip.GzipFile(fileobj=raw) as unzipped:
        packed = unzipped if raw.peek(2)[:2] == _GZIP else raw
        try:
            with tarfile.open(fileobj=_Stream(packed), mode="r:") as opened:
                members = _members(opened, archive)
                folder = _unpack_manifest(opened, members, archive, staging)
                check_space(staging, sum(member.size for member in members.values()))
                for name, member in members.items():
                    _unpack_member(opened, member, path_below(staging, name, archive.name))
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as exc:
            raise ModelError(f"'{archive}' is not a whole tar file", "export it again: qmd models export") from exc
    entries = list(staging.iterdir())
    return folder or (entries[0] if len(entries) == 1 and entries[0].is_dir() else staging)


def _members(opened: tarfile.TarFile, archive: Path) -> dict[str, tarfile.TarInfo]:
    """The files of an archive by name.

    Raises:
        ModelError: It holds something else than plain files in folders, two of one name, or more than it may.
    """
    found: dict[str, tarfile.TarInfo] = {}
    seen: set[str] = set()
    most, total = _MOST_RATIO * archive.stat().st_size + _SMALL_BYTES, 0
    for number, member in enumerate(opened):
        total += member.size
        if number >= _MOST_MEMBERS or total > most:
            raise ModelError(f"'{archive}' holds more than a model of its size can", "ask whoever made it")
        if member.isdir():
            continue
        if not member.isreg() or member.issparse() or folded(member.name) in seen:
            raise ModelError(f"'{archive}' holds '{short(member.name)}', which no model has", "ask whoever made it")
        seen.add(folded(member.name))
        found["/".join(checked_parts(member.name, archive.name))] = member
    return found


def _unpack_manifest(
    opened: tarfile.TarFile, members: dict[str, tarfile.TarInfo], archive: Path, staging: Path
) -> Path | None:
    """Unpack the manifest, and leave of `members` what it lists; the folder it lies in, None where there is none.

    Raises:
        ModelError: It is damaged, or a file has another size than it says.
    """
    place = next((name for name in members if PurePosixPath(name).name == MANIFEST_NAME), None)
    if place is None:
        return None
    if members[place].size > MAX_MANIFEST_BYTES:
        raise ModelError(f"'{archive}' holds a manifest of {members[place].size} bytes", "ask whoever made it")
    target = path_below(staging, place, archive.name)
    _unpack_member(opened, members.pop(place), target)
    manifest = read_manifest(target.parent)
    listed = {str(PurePosixPath(place).parent / item.path): item for item in manifest.files} if manifest else {}
    for name, member in list(members.items()):
        if name not in listed:
            del members[name]
        elif member.size != listed[name].size_bytes:
            raise ModelError(f"'{listed[name].path}' in '{archive}' is damaged", "export or download it again")
    return target.parent


def _unpack_member(opened: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source = opened.extractfile(member)
    assert source is not None  # a plain file
    with source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy)
