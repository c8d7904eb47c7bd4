"""`doctor`: whether the installation, the index and the models are well, and what to do where they are not."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index, NoGpu
from qmd.cli.output import out
from qmd.plugins.doctor.checks import MEBIBYTE, Diagnosis, diagnose

if TYPE_CHECKING:
    from qmd.plugins.doctor.in_force import InForce
    from qmd.plugins.doctor.inspection import EngineReport


def doctor(
    invocation: Invocation,
    json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Check the installation, the index and the models."""
    locations = invocation.locate(index)
    with invocation.open(locations, allow_gpu=not no_gpu) as opened:
        found = diagnose(locations, opened, invocation.environ)
    if json:
        out(_as_json(found))
    elif invocation.screen:
        from qmd.plugins.doctor.screen import draw_diagnosis

        invocation.page(draw_diagnosis(invocation.screen, found))
    else:
        out("".join(f"{line}\n" for line in _plain_lines(found)))
    return 0


def _plain_lines(found: Diagnosis) -> Iterator[str]:
    """The report for programs."""
    yield from ("QMD Doctor", "", f"Index: {found.locations.place}", f"Runtime: {found.runtime}", "")
    for check in found.checks:
        advice = f"; {check.advice}" if check.advice else ""
        yield f"{'✓' if check.is_well else '⚠'} {check.name}: {check.detail}{advice}"
    for report in found.engines:
        yield from _engine_lines(report)
    if found.environment:
        yield f"⚠ environment: {', '.join(f'{name}={value}' for name, value in found.environment.items())}"


def _engine_lines(report: EngineReport) -> Iterator[str]:
    from qmd.render.text import describe_engine

    if report.description is None:
        if report.notes:
            yield f"⚠ {report.role} model: {'; '.join(report.notes)}"
        else:
            yield f"✓ {report.role} model: none, queries run without it; get one: qmd models pull"
        return
    is_well = report.answer_s is not None and not report.notes
    yield f"{'✓' if is_well else '⚠'} {report.role} model: {describe_engine(report.description)}"
    yield from (f"    {line}" for line in _told_of(report, report.description.provider) if line)


def _told_of(report: EngineReport, got: str) -> Sequence[str | None]:
    """What is said of an engine below its name, line by line; empty for what there is nothing to say of."""
    provider = f"asked {report.asked}, got {got} ({report.reason})"
    counts = ", ".join(f"{count} on {place}" for place, count in sorted(report.nodes.items()))
    answer = "" if report.answer_s is None else f", first answer {1000 * report.answer_s:.0f} ms"
    memory = "" if report.memory_bytes is None else f", memory {report.memory_bytes / MEBIBYTE:.0f} MiB"
    sampling = ", ".join(f"{name} {value}" for name, value in report.sampling.items())
    return (
        report.asked and f"provider: {provider}",
        counts and f"nodes: {counts}; {report.nodes_elsewhere} off the preferred provider",
        f"load {report.load_s:.2f} s{answer}{memory}",
        *report.more,
        report.gpu_step and f"this machine has a GPU, and the file for it is not here; get it: {report.gpu_step}",
        sampling and f"sampling: {sampling}",
        report.form and f"form: {report.form}",
        report.step and f"faster on this CPU after: {report.step}",
        *report.handling,
        *(f"note: {note}" for note in report.notes),
    )


def _as_json(found: Diagnosis) -> str:
    content = {
        "index": found.locations.place,
        "python": found.python_version,
        "platform": sys.platform,
        "checks": [
            {"name": check.name, "ok": check.is_well, "detail": check.detail, "advice": check.advice}
            for check in found.checks
        ],
        "engines": [_engine_row(report) for report in found.engines],
        "environment": found.environment,
        "variables": [_in_force_row(one, "environment") for one in found.variables],
        "settings": [_in_force_row(one, str(found.locations.config_file)) for one in found.settings],
    }
    return json_text.dumps(content, indent=2, ensure_ascii=False) + "\n"


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
