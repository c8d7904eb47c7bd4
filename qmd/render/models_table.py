"""The models that qmd knows, drawn for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.inference.models.folders import ModelState, folder_size
from qmd.render.columns import Elided, folded_home, next_steps, shown, state, tabulate
from qmd.render.drawing import Screen, draw
from qmd.render.text import human_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qmd.render.terminal import Styled

_PURPOSES = {"embed": "vectors", "rerank": "reranking", "expand": "expansion"}


def draw_models(
    screen: Screen, models: Sequence[ModelState], home: Path, further: Sequence[tuple[str, str]] = ()
) -> Styled:
    """`models list`: what each is for, whether it is here, its size and place; and how to get the others.

    Args:
        further: Commands that bring models of other programs, each with a reason.
    """
    rows = [(_PURPOSES[one.record.role], shown(one.record.name, "title"), *_here(one, home)) for one in models]
    table = tabulate(("For", "Model", "State", "Size", "Folder"), rows, right=("Size",), fold=("Folder",))
    steps = [
        (f"qmd models pull {one.record.name}", f"get it ({_languages(one)})") for one in models if not one.is_present
    ]
    return draw(screen, table, *next_steps([*steps, *further]))


def _here(one: ModelState, home: Path) -> tuple[RenderableType, RenderableType, RenderableType]:
    if not one.is_present:
        return state("faint", "not here"), "", ""
    forms = [form.name for form in one.prepared if form.fault is None]
    idle = [form.name for form in one.prepared if form.fault is not None]
    words = "built in" if one.record.tier == "built-in" else "here"
    words += f", prepared: {', '.join(forms)}" if forms else ""
    words += f", not used: {', '.join(idle)}" if idle else ""
    place = Elided(folded_home(one.folder, home), one.folder.as_uri())
    style = "warning" if any(form.is_mendable for form in one.prepared) else "good"
    return state(style, words), human_size(folder_size(one.folder)), place


def _languages(one: ModelState) -> str:
    return "all languages" if "*" in one.record.languages else f"languages: {', '.join(one.record.languages)}"
