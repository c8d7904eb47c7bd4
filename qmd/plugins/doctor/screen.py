"""`doctor` for a person: groups of checks, what is set and by whom, and the next command for every problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.plugins.doctor.checks import Check, Diagnosis
from qmd.render.columns import ElidedText, count, folded_home, heading, in_index, indented, mark, shown, state, tabulate
from qmd.render.drawing import Screen, draw
from qmd.render.text import describe_engine

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType
    from rich.table import Table

    from qmd.plugins.doctor.effective_settings import EffectiveSetting
    from qmd.plugins.doctor.inspection import EngineReport
    from qmd.render.terminal import Styled

_GROUPS = {
    "Index": ("index", "vectors", "configuration", "permissions"),
    "Models": ("models", "CUDA", "telemetry of ONNX Runtime"),
    "Program": ("SQLite",),
}
_NEEDED = ("index", "configuration", "SQLite", "models")
"""What nothing works without; the others only make it slower, or less."""

_SHORT = {"telemetry of ONNX Runtime": "telemetry", "embed": "vectors", "rerank": "reranking", "expand": "expansion"}
_OF_THE_INDEX = ("qmd index", "qmd embed", "qmd embed --force")
"""Commands that must name the index that was examined."""


class _Row(Struct, frozen=True):
    """One thing examined."""

    style: str
    name: str
    detail: str
    more: Sequence[str] = ()
    """Faint lines below."""
    step: str | None = None
    """The command that helps."""


def draw_diagnosis(screen: Screen, found: Diagnosis) -> Styled:
    """Everything that was found; what needs doing last, where it is seen first."""
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
        parts += ["", heading(name, place), indented(_table(rows, width, locations.index_name))]
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
    name, held = _SHORT[report.role], report.description
    if held is None and not report.notes:
        return _Row("faint", name, "no model: queries run without it", step="get one: qmd models pull")
    if held is None:
        return _Row("warning", name, "; ".join(report.notes))
    more = [*report.more]
    step = f"make it faster on this CPU: {report.step}" if report.step else None
    if report.asked is not None and report.asked != held.provider:
        more.insert(1, f"made for {report.asked}, runs on {held.provider}: {report.reason}")
    if report.gpu_step is not None:
        step = f"get its file for this GPU: {report.gpu_step}"
    is_well = report.answer_s is not None and not report.notes
    return _Row("good" if is_well else "warning", name, describe_engine(held), more, step)


def _table(rows: Sequence[_Row], width: int, index_name: str) -> Table:
    table = tabulate(
        ("", " ", "  "), [(mark(row.style), shown(row.name), _told(row, index_name)) for row in rows], fold=("  ",)
    )
    table.columns[1].min_width = width
    return table


def _told(row: _Row, index_name: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    lines = [shown(row.detail), *(shown(line, "faint") for line in row.more)]
    if row.step:
        purpose, _, command = row.step.rpartition(": ")
        command = in_index(command, index_name) if command in _OF_THE_INDEX else command
        lines.append(Text.assemble("→ ", shown(f"{purpose}: " if purpose else ""), shown(command, "command")))
    return Group(*lines)


def _in_force(title: str, more: str, found: Sequence[EffectiveSetting]) -> list[RenderableType]:
    """What is set: its value and what that does, or what keeps it from doing it."""
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
