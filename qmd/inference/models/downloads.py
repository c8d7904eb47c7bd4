"""Pulls a model: only what is missing, resumable, checked against sha256, and put in place when all of it is whole."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from qmd.environment import is_on
from qmd.errors import BusyError, ModelError, UsageError
from qmd.files import exclusive_lock, make_private_folder
from qmd.inference.models.catalogue import ModelFile, ModelRecord
from qmd.inference.models.folders import (
    HeldFile,
    Manifest,
    install_files,
    mapped_os_errors,
    read_manifest,
    sha256_of,
)
from qmd.inference.models.hub import Hub, HubFile, HuggingFaceHub, fetch
from qmd.quick_dataclasses import dataclass

_STAGING = ".staging"
_SPARE_BYTES = 64 << 20
"""Left free on the disk besides the model."""

Progress = Callable[[str, int, int | None], None]
"""(file, bytes so far, bytes in all where known)."""


@dataclass(frozen=True, slots=True)
class PullReport:
    """What a pull did."""

    folder: Path
    fetched: tuple[str, ...]
    kept: tuple[str, ...]
    """Files that were there already, whole and of this commit."""
    fetched_bytes: int
    commit: str | None


@dataclass(frozen=True, slots=True)
class _Planned:
    """A file to fetch, with what the hub says of it."""

    path: str
    remote: HubFile
    expected_sha256: str | None


def pull_model(
    record: ModelRecord,
    models_dir: Path,
    *,
    formats: Sequence[str] | None = None,
    env: Mapping[str, str],
    on_progress: Progress | None = None,
    hub: Hub | None = None,
) -> PullReport:
    """Fetch a model's common files and the weights of some formats.

    An interrupted pull is continued by the next one. Files in use stay as they are until every new one is whole.

    Args:
        record: The model.
        models_dir: The models folder.
        formats: Names of the formats to fetch; None takes the one for a CPU.
        env: `QMD_OFFLINE`, `HF_ENDPOINT`.
        on_progress: Told of every megabyte.
        hub: Where files come from; None takes the Hugging Face hub or its mirror.

    Raises:
        UsageError: If the model is built in, or has no such format.
        BusyError: If another process fetches it.
        ModelError: If offline, if the hub, the connection, the disk or a checksum fails.
    """
    if record.tier == "built-in":
        raise UsageError(f"model '{record.name}' is part of qmd and needs no download")
    if is_on(env.get("QMD_OFFLINE")):
        raise ModelError(
            f"model '{record.name}' is not fetched: QMD_OFFLINE is set", "bring it by file: qmd models import FILE"
        )
    wanted = _wanted_files(record, formats)
    hub = hub or HuggingFaceHub(env.get("HF_ENDPOINT"))
    folder, staging = models_dir / record.folder, models_dir / _STAGING / record.folder
    with mapped_os_errors(models_dir), _lock(models_dir / _STAGING, record):
        held = {item.path: item for item in _manifest_files(folder)}
        planned, kept, commit = _plan(hub, record, wanted, folder, held)
        make_private_folder(staging)
        _check_space(models_dir, staging, planned)
        fetched = [_fetch_checked(item, staging, on_progress) for item in planned]
        files = {**held, **{item.path: item for item in fetched}}
        manifest = Manifest(record.repository, commit, tuple(files[path] for path in sorted(files)))
        install_files(staging, folder, manifest)
        shutil.rmtree(staging, ignore_errors=True)
    return PullReport(
        folder, tuple(item.path for item in fetched), kept, sum(item.size_bytes for item in fetched), commit
    )


def formats_to_pull(record: ModelRecord, *, has_cuda: bool) -> tuple[str, ...]:
    """The format that a machine needs; embedding stays on the CPU, where INT8 is fastest."""
    return (record.format_for("cuda" if has_cuda and record.role != "embed" else "cpu").name,)


@contextlib.contextmanager
def _lock(staging: Path, record: ModelRecord) -> Iterator[None]:
    """Two pulls of one model would write the same partial files."""
    with exclusive_lock(staging / f"{record.folder}.lock") as is_ours:
        if not is_ours:
            raise BusyError(f"model '{record.name}' is being fetched by another process")
        yield


def _wanted_files(record: ModelRecord, formats: Sequence[str] | None) -> list[tuple[ModelFile, bool]]:
    """Files with whether the model cannot do without them."""
    names = [item.name for item in record.formats]
    chosen = list(formats) if formats is not None else [record.format_for("cpu").name]
    for name in chosen:
        if name not in names:
            raise UsageError(f"model '{record.name}' has no format '{name}'", f"choose from: {', '.join(names)}")
    weights = [(item.weights, True) for item in record.formats if item.name in chosen]
    # Large models keep their tensors in a file beside the graph.
    data = [(ModelFile(f"{item.path}_data"), False) for item, _ in weights]
    common = [(item, item.path == "tokenizer.json") for item in record.files]
    return [*common, *weights, *data]


def _plan(
    hub: Hub,
    record: ModelRecord,
    wanted: Sequence[tuple[ModelFile, bool]],
    folder: Path,
    held: Mapping[str, HeldFile],
) -> tuple[list[_Planned], tuple[str, ...], str | None]:
    """What to fetch, what to keep, and the commit: the first file's, so that all are of one version."""
    planned: list[_Planned] = []
    kept: list[str] = []
    revision, commit = record.revision, None
    for file, is_required in wanted:
        remote = hub.describe(record.repository, file.path, revision)
        if remote is None:
            if is_required:
                raise ModelError(f"'{record.repository}' has no file '{file.path}'", "the model may have moved")
            continue
        if commit is None and remote.commit:
            revision = commit = remote.commit
        expected = file.sha256 or remote.sha256
        if _is_held(folder / file.path, held.get(file.path), remote, expected):
            kept.append(file.path)
        else:
            planned.append(_Planned(file.path, remote, expected))
    return planned, tuple(kept), commit


def _is_held(path: Path, item: HeldFile | None, remote: HubFile, expected_sha256: str | None) -> bool:
    """True when the manifest's entry matches the hub's, and the file its size. Small files are always fetched anew."""
    if item is None or expected_sha256 is None or item.sha256 != expected_sha256:
        return False
    return path.is_file() and path.stat().st_size == item.size_bytes


def _check_space(models_dir: Path, staging: Path, planned: Sequence[_Planned]) -> None:
    """Refuse before the first byte when the disk cannot hold what is missing."""
    needed = 0
    for item in planned:
        partial = _partial_path(staging, item)
        there = partial.stat().st_size if partial.exists() else 0
        needed += max(0, (item.remote.size_bytes or 0) - there)
    free = shutil.disk_usage(models_dir).free
    if needed + _SPARE_BYTES > free:
        raise ModelError(
            f"not enough space in '{models_dir}': {needed >> 20} MiB needed, {free >> 20} MiB free",
            "free some space, or move the models folder",
        )


def _partial_path(staging: Path, item: _Planned) -> Path:
    """The partial file, named after the version it belongs to, so that two versions are never mixed."""
    version = (item.expected_sha256 or item.remote.commit or "unknown")[:12]
    path = staging / item.path
    return path.with_name(f"{path.name}.{version}.partial")


def _fetch_checked(item: _Planned, staging: Path, on_progress: Progress | None) -> HeldFile:
    final, partial = staging / item.path, _partial_path(staging, item)
    partial.parent.mkdir(parents=True, exist_ok=True)
    if final.exists() and item.expected_sha256 is not None:
        # A pull that ended between files: what was finished goes through the check again.
        final.replace(partial)
    report = None if on_progress is None else (lambda done: on_progress(item.path, done, item.remote.size_bytes))
    # Without a known size a partial file cannot be told from a whole one.
    if item.remote.size_bytes is None:
        partial.unlink(missing_ok=True)
    fetch(item.remote, partial, on_bytes=report)
    digest = sha256_of(partial)
    if item.expected_sha256 is not None and digest != item.expected_sha256:
        partial.unlink()
        raise ModelError(
            f"'{item.path}' is not what was expected: sha256 {digest[:12]}… instead of {item.expected_sha256[:12]}…",
            "try again: qmd models pull; if it happens again, the mirror may be faulty",
        )
    size = partial.stat().st_size
    partial.replace(final)
    return HeldFile(item.path, size, digest)


def _manifest_files(folder: Path) -> tuple[HeldFile, ...]:
    try:
        manifest = read_manifest(folder)
    except ModelError:
        # A damaged manifest is mended by fetching again.
        return ()
    return manifest.files if manifest else ()
