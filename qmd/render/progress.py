"""Progress line: `Vectors  ━━━━━━━╸──────  43 %  12.1 of 28.0 MB  210 kB/s  1 min 15 s left`."""

from __future__ import annotations

from typing import Literal

from qmd.escapes import one_line
from qmd.progress import Progress, duration_text
from qmd.render.drawing import Screen, draw
from qmd.render.terminal import Styled

Unit = Literal["bytes", "items"]
"""Characters are shown as bytes, since most of them are one byte."""

_WARM_UP_S = 1.0
"""Time without a rate and an estimate, whose first values are unreliable."""

_GAP = 2
_BAR = (4, 30)
"""Narrowest and widest bar, in columns."""

_LEFT_WIDTH = len("9 min 55 s left")
_RATE_WIDTH = len("999 kB/s")


def progress_line(label: str, progress: Progress, unit: Unit, screen: Screen) -> Styled:
    """Draw as much of the state of a job as fits; each part has a fixed position."""
    from rich.cells import cell_len, set_cell_size
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    # Leave columns for the `^C` of a terminal, after which a full line could not be erased.
    width = screen.width - len("^C") - 1
    label = one_line(label)
    if cell_len(label) > width // 3:
        label = f"{set_cell_size(label, width // 3 - 1)}…"
    is_measured = progress.left_s is not None and progress.elapsed_s >= _WARM_UP_S
    left = f"{duration_text(progress.left_s or 0)} left" if is_measured and progress.done < progress.total else ""
    rate = f"{_rate(progress.rate or 0, unit):>{_RATE_WIDTH}}" if is_measured else ""
    amount = _amount(progress, unit)
    percent = f"{progress.percent:>3} %"
    # (style, text, width), the least important first.
    spare = [("faint", rate, _RATE_WIDTH), ("", amount, len(amount)), ("", left, _LEFT_WIDTH)]
    room = width - cell_len(label) - len(percent) - 2 * _GAP - _BAR[0]
    while spare and sum(_GAP + size for _, _, size in spare) > room:
        spare.pop(0)
    bar = min(_BAR[1], _BAR[0] + room - sum(_GAP + size for _, _, size in spare))
    details = [spare[1], spare[0], spare[2]] if len(spare) == 3 else spare

    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for style, _, size in (("", "", cell_len(label)), ("", "", bar), ("bold", "", len(percent)), *details):
        grid.add_column(style=style, width=max(size, 1), no_wrap=True)
    drawn_bar = ProgressBar(
        max(progress.total, 1),
        progress.done,
        width=max(bar, 1),
        style="dim",
        complete_style="cyan",
        finished_style="cyan",
    )
    grid.add_row(label, drawn_bar, percent, *(text for _, text, _ in details))
    return Styled(draw(screen, grid).removesuffix("\n"))


def _amount(progress: Progress, unit: Unit) -> str:
    """Return `12.1 of 28.0 MB` or `512 of 1,186`."""
    if unit == "items":
        total = f"{progress.total:,}"
        return f"{progress.done:>{len(total)},} of {total}"
    size, name, digits = (1e6, "MB", 1) if progress.total >= 1e6 else (1e3, "kB", int(progress.total < 1e4))
    total = f"{progress.total / size:,.{digits}f}"
    return f"{progress.done / size:>{len(total)},.{digits}f} of {total} {name}"


def _rate(rate: float, unit: Unit) -> str:
    if unit == "items":
        return f"{rate:,.0f}/s"
    return f"{rate / 1e6:.1f} MB/s" if rate >= 1e6 else f"{rate / 1e3:.{0 if rate >= 1e4 else 1}f} kB/s"
