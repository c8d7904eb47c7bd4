"""Screen of `doctor`: groups of checks, effective settings with their origin, and a command for every problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.file_names import folded_home
from qmd.plugins.doctor.checks import Check, Diagnosis
from qmd.render.columns import ElidedText, count, heading, in_index, indented, mark, shown, state, tabulate
from qmd.render.drawing import Screen, draw
from qmd.render.text import describe_engine

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from qmd.plugins.doctor.effective_settings import EffectiveSetting
    from qmd.plugins.doctor.inspection import EngineReport
    from qmd.render.terminal import Styled

_GROUPS = {
    "Index": ("index", "vectors", "configuration", "permissions"),
    "Models": ("models", "CUDA", "telemetry of ONNX Runtime"),
    "Program": ("SQLite",),
}
_NEEDED = ("index", "configuration", "SQLite", "models")
"""Checks that are required; a problem of the others makes qmd only slower, or less capable."""

_SHORT = {"telemetry of ONNX Runtime": "telemetry", "embed": "vectors", "rerank": "reranking", "expand": "expansion"}
_OF_THE_INDEX = ("qmd index", "qmd embed", "qmd embed --force")
"""Commands that must name the examined index."""


class _Row(Struct, frozen=True):
    style: str
    name: str
    detail: str
    more: Sequence[str] = ()
    """Faint lines below the row."""
    step: str | None = None
    """Command that helps."""


def draw_diagnosis(screen: Screen, found: Diagnosis) -> Styled:
    """Draw all findings; problems come last, next to the prompt."""
    from qmd import __version__

    locations = found.locations
    groups = {
        name: [_check_row(check, locations.home) for one in names for check in found.checks if check.name == one]
        for name, names in _GROUPS.items()
    }
    groups["Models"] = [*map(_engine_row, found.engines), *groups["Models"]]
    width = max(len(row.name) for rows in groups.values() for row in rows)
    parts: list[RenderableType] = [heading("qmd doctor", f"qmd {__version__}, {found.runtime}")]
    for name, rows in groups.items():
        place = (locations.address or folded_home(locations.database, locations.home)) if name == "Index" else ""
        lines = [(mark(row.style), shown(row.name), _detail(row, locations.index_name)) for row in rows]
        table = tabulate(("", " ", "  "), lines, fold=("  ",))
        table.columns[1].min_width = width
        parts += ["", heading(name, place), indented(table)]
    parts += _in_force("Environment", "variables that are set", found.variables)
    parts += _in_force("Settings", folded_home(locations.config_file, locations.home), found.settings)
    problems = [row.name for rows in groups.values() for row in rows if row.style in ("warning", "bad")]
    verdict = state("good", "Everything is well.")
    if problems:
        verdict = state("warning", f"{count(len(problems), 'problem')}: {', '.join(problems)}")
    return draw(screen, *parts, "", verdict)


def _check_row(check: Check, home: Path) -> _Row:
    name = _SHORT.get(check.name, check.name)
    detail = check.detail.replace(f"{home}/", "~/")
    if check.is_well:
        return _Row("faint" if detail.startswith("not ") else "good", name, detail, step=check.advice)
    return _Row("bad" if check.name in _NEEDED else "warning", name, detail, step=check.advice)


def _engine_row(report: EngineReport) -> _Row:
    name, engine = _SHORT[report.role], report.description
    if engine is None and not report.notes:
        return _Row("faint", name, "no model: queries run without it", step="get one: qmd models pull")
    if engine is None:
        return _Row("warning", name, "; ".join(report.notes))
    more = [*report.more]
    step = f"make it faster on this CPU: {report.step}" if report.step else None
    if report.asked is not None and report.asked != engine.provider:
        more.insert(1, f"made for {report.asked}, runs on {engine.provider}: {report.reason}")
    if report.gpu_step is not None:
        step = f"get its file for this GPU: {report.gpu_step}"
    is_well = report.answer_s is not None and not report.notes
    return _Row("good" if is_well else "warning", name, describe_engine(engine), more, step)


def _detail(row: _Row, index_name: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    lines = [shown(row.detail), *(shown(line, "faint") for line in row.more)]
    if row.step:
        purpose, _, command = row.step.rpartition(": ")
        command = in_index(command, index_name) if command in _OF_THE_INDEX else command
        lines.append(Text.assemble("→ ", shown(f"{purpose}: " if purpose else ""), shown(command, "command")))
    return Group(*lines)


def _in_force(title: str, more: str, found: Sequence[EffectiveSetting]) -> list[RenderableType]:
    """Return the rows of set variables or settings: value and effect, or the reason for no effect."""
    if not found:
        return []
    rows = [
        (
            shown(one.name),
            ElidedText(one.value, is_path=False),
            shown(f"not used: {one.overruled_by}", "warning") if one.overruled_by else shown(one.effect, "faint"),
        )
        for one in found
    ]
    return ["", heading(title, more), indented(tabulate(("", " ", "  "), rows, fold=(" ", "  ")))]
