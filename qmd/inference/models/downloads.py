"""Pulls a model: only what is missing, resumable, checked against sha256, and put in place when all of it is whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from qmd.environment import is_on
from qmd.errors import ModelError, UsageError
from qmd.files import make_private_folder
from qmd.inference.models.catalogue import ModelFile, ModelRecord
from qmd.inference.models.folders import (
    Manifest,
    check_space,
    install_files,
    locked,
    mapped_os_errors,
    read_manifest,
    sha256_of,
)
from qmd.inference.models.hub import HubFile, describe_file, fetch
from qmd.inference.models.weights import size_of

_STAGING = ".staging"

Progress = Callable[[str, int, int | None], None]
"""(file, bytes so far, bytes in all where known)."""


class PullReport(Struct, frozen=True):
    """What a pull did."""

    folder: Path
    fetched: tuple[str, ...]
    fetched_bytes: int


def pull_model(
    record: ModelRecord,
    models_dir: Path,
    *,
    formats: Sequence[str] | None = None,
    form_share: float = 0.0,
    env: Mapping[str, str],
    on_progress: Progress | None = None,
) -> PullReport:
    """Fetch a model's common files and the weights of some formats.

    An interrupted pull is continued by the next one. Files in use stay as they are until every new one is whole.

    Args:
        formats: Names of the formats to fetch; None takes the one for a CPU.
        form_share: Room for a form that is made of the weights afterwards, as a share of them.
        env: `QMD_OFFLINE`, `HF_ENDPOINT`.
        on_progress: Told of every megabyte.

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
    folder, staging = models_dir / record.folder, models_dir / _STAGING / record.folder
    lock = models_dir / _STAGING / f"{record.folder}.lock"
    # Two pulls of one model would write the same partial files.
    with mapped_os_errors(models_dir), locked(lock, f"model '{record.name}' is being fetched by another process"):
        held: dict[str, ModelFile] = {}
        # A damaged manifest is mended by fetching again.
        with suppress(ModelError):
            known = read_manifest(folder)
            held = {item.path: item for item in known.files} if known else {}
        planned, commit = _plan(record, wanted, folder, held, env.get("HF_ENDPOINT"))
        make_private_folder(staging)
        missing = [(item.size_bytes or 0) - size_of(_partial_path(staging, item)) for item in planned]
        weights = {item.weights.path for item in record.formats}
        form_bytes = int(form_share * sum(item.size_bytes or 0 for item in planned if item.path in weights))
        _check_room(record, models_dir, sum(max(0, size) for size in missing), form_bytes)
        fetched = [_fetch_checked(item, staging, on_progress) for item in planned]
        files = {**held, **{item.path: item for item in fetched}}
        manifest = Manifest(record.repository, commit, tuple(files[path] for path in sorted(files)))
        install_files(staging, folder, manifest)
        shutil.rmtree(staging, ignore_errors=True)
    return PullReport(folder, tuple(item.path for item in fetched), sum(item.size_bytes or 0 for item in fetched))


def formats_to_pull(record: ModelRecord, *, has_cuda: bool) -> tuple[str, ...]:
    """The format that a machine needs; embedding stays on the CPU, where INT8 is fastest."""
    return (record.format_for("cuda" if has_cuda and record.role != "embed" else "cpu").name,)


def _wanted_files(record: ModelRecord, formats: Sequence[str] | None) -> list[tuple[ModelFile, bool]]:
    """Files with whether the model cannot do without them."""
    names = [item.name for item in record.formats]
    chosen = formats if formats is not None else [record.format_for("cpu").name]
    for name in chosen:
        if name not in names:
            raise UsageError(f"model '{record.name}' has no format '{name}'", f"choose from: {', '.join(names)}")
    weights = [(item.weights, True) for item in record.formats if item.name in chosen]
    # Large models keep their tensors in a file beside the graph.
    data = [(ModelFile(f"{item.path}_data"), False) for item, _ in weights]
    common = [(item, item.path == "tokenizer.json") for item in record.files]
    return [*common, *weights, *data]


def _plan(
    record: ModelRecord,
    wanted: Sequence[tuple[ModelFile, bool]],
    folder: Path,
    held: Mapping[str, ModelFile],
    endpoint: str | None,
) -> tuple[list[HubFile], str | None]:
    """What is missing, and the commit: the first file's, so that all are of one version."""
    planned: list[HubFile] = []
    revision, commit = record.revision, None
    for file, is_required in wanted:
        remote = describe_file(record.repository, file.path, revision, endpoint)
        if remote is None:
            if is_required:
                raise ModelError(f"'{record.repository}' has no file '{file.path}'", "the model may have moved")
            continue
        if commit is None and remote.commit:
            revision = commit = remote.commit
        expected = file.sha256 or remote.sha256
        known = held.get(file.path)
        # Small files, whose checksum the hub does not tell, are always fetched anew.
        is_held = known is not None and expected is not None and known.sha256 == expected
        if not is_held or known is None or size_of(folder / file.path) != known.size_bytes:
            planned.append(replace(remote, sha256=expected))
    return planned, commit


def _check_room(record: ModelRecord, models_dir: Path, missing: int, form_bytes: int) -> None:
    """Refuse what the disk cannot hold, with the way to do without the form where that is enough."""
    check_space(models_dir, missing)
    try:
        check_space(models_dir, missing + form_bytes)
    except ModelError as exc:
        raise ModelError(
            f"{exc.message}; {form_bytes >> 20} MiB of it are for the form that is fastest on this CPU",
            f"free some space, or leave that out: qmd models pull {record.name} --no-prepare",
        ) from exc


def _partial_path(staging: Path, item: HubFile) -> Path:
    """The partial file, named after the version it belongs to, so that two versions are never mixed."""
    version = (item.sha256 or item.commit or "unknown")[:12]
    path = staging / item.path
    return path.with_name(f"{path.name}.{version}.partial")


def _fetch_checked(item: HubFile, staging: Path, on_progress: Progress | None) -> ModelFile:
    final, partial = staging / item.path, _partial_path(staging, item)
    partial.parent.mkdir(parents=True, exist_ok=True)
    if final.exists() and item.sha256 is not None:
        # A pull that ended between files: what was finished goes through the check again.
        final.replace(partial)
    report = None if on_progress is None else (lambda done: on_progress(item.path, done, item.size_bytes))
    # Without a known size a partial file cannot be told from a whole one.
    if item.size_bytes is None:
        partial.unlink(missing_ok=True)
    fetch(item, partial, on_bytes=report)
    digest = sha256_of(partial)
    if item.sha256 is not None and digest != item.sha256:
        partial.unlink()
        raise ModelError(
            f"'{item.path}' is not what was expected: sha256 {digest[:12]}… instead of {item.sha256[:12]}…",
            "try again: qmd models pull; if it happens again, the mirror may be faulty",
        )
    size = partial.stat().st_size
    partial.replace(final)
    return ModelFile(item.path, size, digest)
