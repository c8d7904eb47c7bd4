"""Checks of `doctor` and their results, independent of their presentation."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import QmdError

if TYPE_CHECKING:
    from qmd.app.index import Index as OpenIndex
    from qmd.config.paths import Locations
    from qmd.inference.base import Embedder
    from qmd.inference.records import Role
    from qmd.plugins.doctor.effective_settings import EffectiveSetting
    from qmd.plugins.doctor.inspection import EngineReport
    from qmd.store.base import IndexReader

MEBIBYTE = 1 << 20
_ROLES: Sequence[Role] = ("embed", "rerank", "expand")


class Check(Struct, frozen=True, rename={"is_well": "ok"}):
    """One check: its finding, or a problem and its remedy."""

    name: str
    is_well: bool
    detail: str
    advice: str | None = None


class Diagnosis(Struct, frozen=True):
    """All findings."""

    locations: Locations
    checks: Sequence[Check]
    engines: Sequence[EngineReport]
    variables: Sequence[EffectiveSetting]
    settings: Sequence[EffectiveSetting]

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of qmd by name; without keys, tokens and passwords."""
        own = {one.name: one.value for one in self.variables if one.name.startswith(("QMD_", "INDEX_", "HF_ENDPOINT"))}
        return dict(sorted(own.items()))

    @property
    def runtime(self) -> str:
        """Platform of qmd: `Python 3.11.7 on linux`."""
        return f"Python {python_version()} on {sys.platform}"


def diagnose(locations: Locations, index: OpenIndex, environ: Mapping[str, str]) -> Diagnosis:
    """Run all checks, in the order shown."""
    from qmd.plugins.doctor.effective_settings import mark_idle

    checks, reports = _examine(locations, index, environ)
    variables, settings = (mark_idle(found, reports) for found in _in_force(locations, environ))
    return Diagnosis(locations, checks, reports, variables, settings)


def _examine(
    locations: Locations, index: OpenIndex, environ: Mapping[str, str]
) -> tuple[list[Check], list[EngineReport]]:
    from qmd.plugins.doctor.inspection import inspect_engine
    from qmd.store.sqlite.connection import driver_version

    checks = [
        _check("SQLite", driver_version),
        _check("configuration", lambda: _configuration(locations, index)),
        _check("index", lambda: _index(index)),
        _check("permissions", lambda: _permissions(locations)),
        _check("telemetry of ONNX Runtime", lambda: _telemetry(locations, environ)),
        _check("CUDA", lambda: _cuda(index), _unused_cuda_remedy),
    ]
    try:
        settings = index.engine_settings()
        reports = [inspect_engine(settings, role) for role in _ROLES]
    except QmdError as exc:
        return _without_duplicates([*checks, Check("models", False, exc.message, exc.hint)]), []
    return [*checks, _check("vectors", lambda: _vectors(index))], reports


def _without_duplicates(checks: Sequence[Check]) -> list[Check]:
    """Return the checks; one with the fault of an earlier check refers to that check."""
    first = {check.detail: check.name for check in reversed(checks)}
    return [
        one
        if first[one.detail] == one.name
        else replace(one, detail=f"not examined: see {first[one.detail]}", advice=None)
        for one in checks
    ]


def _check(name: str, examine: Callable[[], str], advise: Callable[[], str | None] = lambda: None) -> Check:
    try:
        return Check(name, True, examine(), advise())
    except QmdError as exc:
        return Check(name, False, exc.message, exc.hint)


def _configuration(locations: Locations, index: OpenIndex) -> str:
    n_collections = len(index.collections())
    return f"{locations.config_file}, {n_collections} collection{'' if n_collections == 1 else 's'}"


def _index(index: OpenIndex) -> str:
    problems = index.check()
    if problems:
        raise QmdError("; ".join(problems), "rebuild it from your files: qmd index")
    return f"sound, {index.status().documents} documents"


def _permissions(locations: Locations) -> str:
    """Return the text for sound permissions; in a folder, only the files directly in it are checked.

    Raises:
        QmdError: Other users can read files of qmd.
    """
    from qmd.files import is_open_to_others

    folders = [folder for folder in locations.own_folders if folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)]
    beside = [locations.database.with_name(locations.database.name + suffix) for suffix in ("", "-wal", "-shm")]
    within = [path for folder in folders for path in sorted(folder.iterdir())]
    kept = [*folders, locations.config_file, *beside, *(path for path in within if path.is_file())]
    readable = [str(path) for path in dict.fromkeys(kept) if is_open_to_others(path)]
    if readable:
        raise QmdError(f"others on this machine can read {_quoted(readable)}", f"run: chmod go= {shlex.join(readable)}")
    return "only you can read the index and the configuration"


def _telemetry(locations: Locations, environ: Mapping[str, str]) -> str:
    from qmd.plugins.doctor.telemetry import remove_traces

    removed = remove_traces(locations.home, environ)
    return f"off; deleted the files that it had left on this machine: {_quoted(removed)}" if removed else "off"


def _quoted(items: Sequence[object]) -> str:
    return ", ".join(f"'{item}'" for item in items)


def _cuda(index: OpenIndex) -> str:
    """Return the state of CUDA, and the memory of the GPU before models are loaded, with the share of each.

    Raises:
        QmdError: The packages with and without CUDA are both installed, or CUDA cannot use an installed driver.
    """
    from qmd.distributions import overwritten
    from qmd.inference.runtime.gpu_memory import memory_at_start
    from qmd.inference.runtime.sessions import cuda_verdict
    from qmd.installation import find_installation

    if twins := overwritten():
        remedy = f"remove them, then install qmd again: {find_installation().program} uninstall -y {' '.join(twins)}"
        raise QmdError(f"{' and '.join(twins[:2])} are both installed and overwrite each other's files", remedy)
    settings = index.engine_settings()
    if not settings.gpu_allowed:
        return "not used: GPU use is switched off"
    device = settings.gpu_use("embed").device
    hindrance = cuda_verdict(device)
    if hindrance is not None:
        if hindrance.remedy is not None:
            raise QmdError(f"not used: {hindrance.reason}", hindrance.remedy)
        return f"not used: {hindrance.reason}"
    memory = memory_at_start(device)
    if memory is None:
        return "works (a test session ran on it)"
    taken = memory.total_bytes - memory.free_bytes
    used = f"{taken / MEBIBYTE:.0f} of {memory.total_bytes / MEBIBYTE:.0f} MiB in use"
    limits = ((role, settings.gpu_use(role).limit_bytes()) for role in _ROLES)
    shares = ", ".join(f"{role} {limit / MEBIBYTE:.0f}" for role, limit in limits if limit is not None)
    return f"works (a test session ran on it); GPU {device} has {used}; models may take {shares} MiB"


def _unused_cuda_remedy() -> str | None:
    """Return the command that frees the space of the CUDA operators, if no driver could run them."""
    from importlib.util import find_spec

    from qmd.inference.runtime.gpu_memory import load_driver
    from qmd.installation import install_command

    found = find_spec("onnxruntime")
    folder = Path(found.origin).parent if found and found.origin else Path()
    sizes = [file.stat().st_size for file in folder.glob("capi/*onnxruntime_providers_cuda.*")]
    return f"{sizes[0] / 1e6:.0f} MB can be freed: {install_command(None)}" if sizes and load_driver() is None else None


def _vectors(index: OpenIndex) -> str:
    if not index.exists():
        return "no index yet"
    with index.reader() as reader, index.engines(frozenset({"embed"})) as engines:
        if engines.embedder is None:
            return "not checked: there is no embedding model"
        return _compare_vectors(reader, engines.embedder)


def _compare_vectors(reader: IndexReader, embedder: Embedder) -> str:
    """Return counts for the present model, and the distance of a sample that is embedded again.

    Raises:
        QmdError: The vectors are another model's, or differ from the model's present ones.
    """
    from qmd.inference.records import CosineScale
    from qmd.plugins.doctor.vector_sample import sample_vectors

    now, last = reader.status(embedder.fingerprint), reader.status(None)
    if not now.vectors and last.vectors:
        raise QmdError(
            f"{last.vectors} vectors belong to another model (fingerprint {last.fingerprint}), none to the current one",
            "run: qmd embed",
        )
    if now.pending_documents:
        advice = "run: qmd embed" if now.embedding is None else f"they are being computed ({now.embedding.state})"
        raise QmdError(f"{now.pending_documents} of {now.documents} documents have none", advice)
    sample = sample_vectors(reader, embedder)
    scale = embedder.scale or CosineScale.of(reader.facts(), embedder.fingerprint)
    found = f"{now.vectors} vectors, fingerprint {embedder.fingerprint}, scale {scale.best:.3f} to {scale.third:.3f}"
    if sample is None:
        return found
    distance = f"{sample.n_chunks} chunks embedded again differ by at most {sample.largest_distance:.5f}"
    if not sample.agrees:
        raise QmdError(
            f"{distance}: the stored vectors differ from what the model computes now", "run: qmd embed --force"
        )
    return f"{found}; {distance}"


def _in_force(
    locations: Locations, environ: Mapping[str, str]
) -> tuple[Sequence[EffectiveSetting], Sequence[EffectiveSetting]]:
    """Return the variables and the settings that are not at their defaults; no settings of an unreadable file."""
    from qmd.config.settings import load_config
    from qmd.config.trust import gated_items, trusted_part, trusts_contexts
    from qmd.plugins.doctor.effective_settings import effective_settings, effective_variables

    try:
        written = load_config(locations)
    except QmdError:
        # The check of the configuration reports the reason.
        return effective_variables(environ), ()
    trusted = trusted_part(written, locations, environ)
    if not trusts_contexts(gated_items(written, locations).contexts, locations, environ):
        trusted = replace(trusted, global_context=None)
    return effective_variables(environ, trusted), effective_settings(written, environ, trusted)
