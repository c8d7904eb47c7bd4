"""The models that qmd knows, drawn for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.inference.models.folders import ModelState, folder_size
from qmd.plugins.fastembed.catalogue import FastembedModel, Kind
from qmd.render.columns import Elided, folded_home, heading, mark, next_steps, shown, state, tabulate
from qmd.render.drawing import Screen, draw
from qmd.render.text import human_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qmd.render.terminal import Styled

_PURPOSES = {"embed": "vectors", "rerank": "reranking", "expand": "expansion"}
_KINDS: Mapping[Kind, tuple[str, str]] = {
    "embedder": ("Vectors", "models.embed"),
    "cross-encoder": ("Reranking: cross-encoders", "models.rerank"),
    "late interaction": ("Reranking: late interaction", "models.rerank"),
}
"""What a kind is for, and the setting that names one."""
_BESIDE_A_NAME = 42
"""Columns that the others of a table of available models take."""


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


def draw_available(screen: Screen, models: Sequence[tuple[FastembedModel, bool]]) -> Styled:
    """`models list --available`: fastembed's models by kind, each with whether it is here."""
    parts: list[RenderableType] = []
    for kind, (purpose, setting) in _KINDS.items():
        rows = [_available(screen, model, is_here) for model, is_here in models if model.kind == kind]
        heads = ("", "Model", "Size", "Dims", "Languages", "Licence")
        parts += [heading(purpose, setting), tabulate(heads, rows, right=("Size", "Dims"), fold=("Model",)), ""]
    steps = [
        ("qmd models pull fastembed:MODEL", "get one"),
        ("QMD_EMBED_MODEL=fastembed:MODEL", "use it for vectors"),
        ("QMD_RERANK_MODEL=fastembed:MODEL", "use it for reranking"),
    ]
    return draw(screen, *parts[:-1], *next_steps(steps))


def _available(screen: Screen, model: FastembedModel, is_here: bool) -> Sequence[RenderableType]:
    from rich.text import Text

    name, record = model.own_name, model.record
    if len(name) > screen.width - _BESIDE_A_NAME:
        # Cut where it may be cut, instead of where the column ends.
        name = name.replace("/", "/\n", 1)
    languages = "many" if "*" in record.languages else ", ".join(record.languages)
    size = human_size(model.size_bytes)
    dims = "" if record.dim is None else str(record.dim)
    return mark("good") if is_here else "", Text(name, "title"), size, dims, languages, shown(record.licence)


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
