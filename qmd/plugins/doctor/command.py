"""`doctor`: whether the installation, the index and the models are well, and what to do where they are not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from typer import Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index, NoGpu
from qmd.cli.output import out
from qmd.errors import QmdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from qmd.app.index import Index as OpenIndex
    from qmd.config.paths import Locations
    from qmd.inference.base import Embedder
    from qmd.inference.records import Role
    from qmd.plugins.doctor.in_force import InForce
    from qmd.plugins.doctor.inspection import EngineReport
    from qmd.store.base import IndexReader

_MEBIBYTE = 1 << 20
_ROLES: Sequence[Role] = ("embed", "rerank", "expand")


class Check(Struct, frozen=True):
    """One thing examined: what was found, or what is wrong and what to do."""

    name: str
    is_well: bool
    detail: str
    advice: str | None = None


class Diagnosis(Struct, frozen=True):
    """Everything that was found."""

    locations: Locations
    checks: Sequence[Check]
    engines: Sequence[EngineReport]
    variables: Sequence[InForce]
    settings: Sequence[InForce]

    @property
    def runtime(self) -> str:
        """What runs qmd: `Python 3.11.7 on linux`."""
        return f"Python {python_version()} on {sys.platform}"


def python_version() -> str:
    """That of the interpreter, `3.11.7`."""
    return ".".join(map(str, sys.version_info[:3]))


def doctor(
    invocation: Invocation,
    json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Check the installation, the index and the models."""
    locations = invocation.locate(index)
    with invocation.open(locations, allow_gpu=not no_gpu) as opened:
        checks, reports = _examine(invocation, locations, opened)
    found = Diagnosis(locations, checks, reports, *_in_force(invocation, locations))
    if json:
        out(_as_json(found, _environment(invocation.environ)))
    elif invocation.screen:
        from qmd.plugins.doctor.screen import draw_diagnosis

        invocation.page(draw_diagnosis(invocation.screen, found))
    else:
        out("".join(f"{line}\n" for line in _plain_lines(found, _environment(invocation.environ))))
    return 0


def _plain_lines(found: Diagnosis, environment: Mapping[str, str]) -> Iterator[str]:
    """The report for programs."""
    yield from ("QMD Doctor", "", f"Index: {found.locations.place}", f"Runtime: {found.runtime}", "")
    for check in found.checks:
        advice = f"; {check.advice}" if check.advice else ""
        yield f"{'✓' if check.is_well else '⚠'} {check.name}: {check.detail}{advice}"
    for report in found.engines:
        yield from _engine_lines(report)
    if environment:
        yield f"⚠ environment: {', '.join(f'{name}={value}' for name, value in environment.items())}"


def _examine(invocation: Invocation, locations: Locations, index: OpenIndex) -> tuple[list[Check], list[EngineReport]]:
    """Everything that is looked at, in the order shown."""
    from qmd.plugins.doctor.inspection import inspect_engine
    from qmd.store.sqlite.connection import driver_version

    checks = [
        _check("SQLite", driver_version),
        _check("configuration", lambda: _configuration(locations, index)),
        _check("index", lambda: _index(index)),
        _check("permissions", lambda: _permissions(locations)),
        _check("telemetry of ONNX Runtime", lambda: _telemetry(locations, invocation.environ)),
        _check("CUDA", lambda: _cuda(index)),
    ]
    try:
        settings = index.engine_settings()
        reports = [inspect_engine(settings, role) for role in _ROLES]
    except QmdError as exc:
        return [*checks, Check("models", False, exc.message, exc.hint)], []
    return [*checks, _check("vectors", lambda: _vectors(index))], reports


def _check(name: str, examine: Callable[[], str]) -> Check:
    try:
        return Check(name, True, examine())
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
    """Whether others can read what qmd keeps; of a folder, the files right in it.

    Raises:
        QmdError: They can.
    """
    import os
    import shlex

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
    """Whether CUDA works, and the memory of the GPU before models are loaded, of which each may take a share."""
    from qmd.inference.runtime.gpu_memory import memory_at_start
    from qmd.inference.runtime.sessions import cuda_verdict

    settings = index.engine_settings()
    device = settings.gpu_use("embed").device
    verdict = cuda_verdict(device)
    if verdict is not None:
        return f"not used: {verdict}"
    memory = memory_at_start(device)
    if memory is None:
        return "works (a test session ran on it)"
    used = f"{memory.used_bytes / _MEBIBYTE:.0f} of {memory.total_bytes / _MEBIBYTE:.0f} MiB in use"
    limits = ((role, settings.gpu_use(role).limit_bytes()) for role in _ROLES)
    shares = ", ".join(f"{role} {limit / _MEBIBYTE:.0f}" for role, limit in limits if limit is not None)
    return f"works (a test session ran on it); GPU {device} has {used}; models may take {shares} MiB"


# --- vectors --------------------------------------------------------------------------------------


def _vectors(index: OpenIndex) -> str:
    if not index.exists():
        return "no index yet"
    with index.reader() as reader, index.engines(frozenset({"embed"})) as engines:
        if engines.embedder is None:
            return "not checked: there is no embedding model"
        return _compare_vectors(reader, engines.embedder)


def _compare_vectors(reader: IndexReader, embedder: Embedder) -> str:
    """Counts for the present model, and a sample embedded again.

    Raises:
        QmdError: The vectors are another model's, or are not what the model computes now.
    """
    from qmd.indexing.vector_sample import sample_vectors

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
    if sample is None:
        return f"{now.vectors} vectors, fingerprint {embedder.fingerprint}"
    distance = f"{sample.n_chunks} chunks embedded again differ by at most {sample.largest_distance:.5f}"
    if not sample.agrees:
        raise QmdError(
            f"{distance}: the stored vectors differ from what the model computes now", "run: qmd embed --force"
        )
    return f"{now.vectors} vectors, fingerprint {embedder.fingerprint}; {distance}"


# --- engines --------------------------------------------------------------------------------------


def _engine_lines(report: EngineReport) -> list[str]:
    from qmd.cli.embedding import describe

    if report.description is None:
        if not report.notes:
            return [f"✓ {report.role} model: none, queries run without it; get one: qmd models pull"]
        return [f"⚠ {report.role} model: {'; '.join(report.notes)}"]
    is_well = report.answer_s is not None and not report.notes
    lines = [f"{'✓' if is_well else '⚠'} {report.role} model: {describe(report.description)}"]
    if report.asked is not None:
        lines.append(f"    provider: asked {report.asked}, got {report.description.provider} ({report.reason})")
    if report.nodes:
        counts = ", ".join(f"{count} on {provider}" for provider, count in sorted(report.nodes.items()))
        lines.append(f"    nodes: {counts}; {report.nodes_elsewhere} off the preferred provider")
    answer = "" if report.answer_s is None else f", first answer {1000 * report.answer_s:.0f} ms"
    memory = "" if report.memory_bytes is None else f", memory {report.memory_bytes / _MEBIBYTE:.0f} MiB"
    lines.append(f"    load {report.load_s:.2f} s{answer}{memory}")
    lines += [f"    {line}" for line in report.more]
    if report.gpu_step is not None:
        lines.append(f"    this machine has a GPU, and the file for it is not here; get it: {report.gpu_step}")
    if report.sampling:
        lines.append(f"    sampling: {', '.join(f'{name} {value}' for name, value in report.sampling.items())}")
    if report.form is not None:
        lines.append(f"    form: {report.form}")
    if report.step is not None:
        lines.append(f"    faster on this CPU after: {report.step}")
    return [*lines, *(f"    {line}" for line in report.handling), *(f"    note: {note}" for note in report.notes)]


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that change what qmd does; keys are not shown."""
    names = sorted(name for name in environ if name.startswith("QMD_") or name in ("INDEX_PATH", "HF_ENDPOINT"))
    return {name: "(set)" if name.endswith(("_KEY", "_TOKEN")) else environ[name] for name in names}


def _in_force(invocation: Invocation, locations: Locations) -> tuple[Sequence[InForce], Sequence[InForce]]:
    """The variables and the settings that are not at their defaults; of a file that cannot be read, no setting."""
    from qmd.config.settings import load_config
    from qmd.config.trust import trusted_part
    from qmd.plugins.doctor.in_force import settings_in_force, variables_in_force

    try:
        written = load_config(locations)
    except QmdError:
        # The check of the configuration says why.
        return variables_in_force(invocation.environ), ()
    trusted = trusted_part(written, locations, invocation.environ)
    return variables_in_force(invocation.environ, trusted), settings_in_force(written, invocation.environ, trusted)


def _as_json(found: Diagnosis, environment: Mapping[str, str]) -> str:
    import json

    content = {
        "index": found.locations.place,
        "python": python_version(),
        "platform": sys.platform,
        "checks": [
            {"name": check.name, "ok": check.is_well, "detail": check.detail, "advice": check.advice}
            for check in found.checks
        ],
        "engines": [_engine_row(report) for report in found.engines],
        "environment": environment,
        "variables": [_in_force_row(one, "environment") for one in found.variables],
        "settings": [_in_force_row(one, str(found.locations.config_file)) for one in found.settings],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _in_force_row(one: InForce, origin: str) -> dict[str, object]:
    return {
        "name": one.name,
        "value": one.value,
        "origin": origin,
        "effect": one.effect,
        "overruled_by": one.overruled_by,
    }


def _engine_row(report: EngineReport) -> dict[str, object]:
    held = report.description
    return {
        "role": report.role,
        "model": held.model if held else None,
        "format": held.format if held else None,
        "tier": held.tier if held else None,
        "provider_asked": report.asked,
        "provider": held.provider if held else None,
        "reason": report.reason,
        "nodes": dict(report.nodes),
        "nodes_elsewhere": report.nodes_elsewhere,
        "load_s": round(report.load_s, 3),
        "answer_s": None if report.answer_s is None else round(report.answer_s, 3),
        "memory_bytes": report.memory_bytes,
        "context_tokens": report.facts.context,
        "layers": report.facts.layers,
        "vocabulary": report.facts.vocabulary,
        "kv_bytes_per_token": report.facts.kv_bytes_per_token,
        "kv_bytes": report.facts.kv_bytes,
        "end_tokens": list(report.facts.end_tokens),
        "operators_on_cpu": dict(report.left_behind),
        "bulk": report.bulk,
        "gpu_advice": report.gpu_step,
        "form": report.form,
        "handling": list(report.handling),
        "sampling": dict(report.sampling),
        "notes": list(report.notes),
    }
