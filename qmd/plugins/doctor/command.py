"""`doctor`: check the installation, the index and the models, and show a remedy for each problem."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Iterator
from platform import python_version
from typing import TYPE_CHECKING, Annotated

from msgspec import to_builtins
from typer import Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index, NoGpu
from qmd.cli.output import out
from qmd.escapes import message_line
from qmd.plugins import hooks
from qmd.plugins.doctor.checks import Diagnosis, diagnose

if TYPE_CHECKING:
    from qmd.plugins.doctor.inspection import EngineReport


def doctor(
    invocation: Invocation,
    json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Check the installation, the index and the models."""
    locations = invocation.locate(index)
    with invocation.progress("Checking"), invocation.open(locations, allow_gpu=not no_gpu) as opened:
        found = diagnose(locations, opened, invocation.environ)
    if json:
        out(_as_json(found))
    elif invocation.screen:
        from qmd.plugins.doctor.screen import draw_diagnosis

        invocation.page(draw_diagnosis(invocation.screen, found))
    else:
        out("".join(f"{message_line(line)}\n" for line in _plain_lines(found)))
    return 0


def _plain_lines(found: Diagnosis) -> Iterator[str]:
    yield from ("QMD Doctor", "", f"Index: {found.locations.place}", f"Runtime: {found.runtime}", "")
    for check in found.checks:
        advice = f"; {check.advice}" if check.advice else ""
        yield f"{'✓' if check.is_well else '⚠'} {check.name}: {check.detail}{advice}"
    for report in found.engines:
        yield from _engine_lines(report)
    if found.environment:
        yield f"⚠ environment: {', '.join(f'{name}={value}' for name, value in found.environment.items())}"
    yield from (f"⚠ {one.name}: {one.effect}" for one in hooks.unknown_variables(found.environment))


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
    counts = ", ".join(f"{count} on {place}" for place, count in sorted(report.nodes.items()))
    details = (
        report.asked and f"provider: asked {report.asked}, got {report.description.provider} ({report.reason})",
        counts and f"nodes: {counts}; {report.nodes_elsewhere} off the preferred provider",
        *report.more,
        report.gpu_step and f"this machine has a GPU, but no file of the model for it; get it: {report.gpu_step}",
        report.step and f"faster on this CPU after: {report.step}",
    )
    yield from (f"    {line}" for line in details if line)


def _as_json(found: Diagnosis) -> str:
    content = {
        "index": found.locations.place,
        "python": python_version(),
        "platform": sys.platform,
        "checks": to_builtins(found.checks),
        "engines": [_engine_row(report) for report in found.engines],
        "environment": found.environment,
        "variables": [{"origin": "environment", **to_builtins(one)} for one in found.variables],
        "settings": [{"origin": str(found.locations.config_file), **to_builtins(one)} for one in found.settings],
    }
    return json_text.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _engine_row(report: EngineReport) -> dict[str, object]:
    row = to_builtins(report)
    described, facts = row.pop("description") or {}, row.pop("facts")
    named = {name: described.get(name) for name in ("model", "format", "tier", "provider")}
    return {**named, **row, "nodes_elsewhere": report.nodes_elsewhere, **facts}
