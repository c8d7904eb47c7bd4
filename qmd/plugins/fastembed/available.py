"""`models list --available`: the models of fastembed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.cli.invocation import Invocation
from qmd.cli.output import out
from qmd.errors import EXIT_OK
from qmd.inference.models.weights import locate_model
from qmd.plugins.fastembed.catalogue import FastembedModel, Kind, fastembed_models
from qmd.render.columns import facts, heading, mark, shown, tabulate
from qmd.render.drawing import Screen, draw
from qmd.render.text import human_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qmd.render.terminal import Styled

_KINDS: Mapping[Kind, tuple[str, str]] = {
    "embedder": ("Vectors", "models.embed"),
    "cross-encoder": ("Reranking: cross-encoders", "models.rerank"),
    "late interaction": ("Reranking: late interaction", "models.rerank"),
}
"""Kind → heading, and the setting that selects a model of that kind."""
_OTHER_COLUMNS = 42
"""Columns of the table after the name."""


def list_available_models(invocation: Invocation, models_dir: Path, *, as_json: bool) -> int:
    """Show each model with its purpose, size, dimensions, languages and licence, and whether it is here."""
    found = [(model, locate_model(model.record, models_dir)) for model in fastembed_models()]
    if as_json:
        rows = [
            {
                "name": model.record.name,
                "role": model.record.role,
                "kind": model.kind,
                "repository": model.record.repository,
                "licence": model.record.licence,
                "languages": list(model.record.languages),
                "size_bytes": model.size_bytes,
                "dimensions": model.record.dim,
                "description": model.description,
                "present": folder is not None,
                "path": str(folder) if folder else None,
            }
            for model, folder in found
        ]
        out(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
        return EXIT_OK
    if invocation.screen:
        invocation.page(draw_available(invocation.screen, [(model, folder is not None) for model, folder in found]))
        return EXIT_OK
    width = max(len(model.record.name) for model, _ in found)
    for model, folder in found:
        record, here = model.record, f"  {folder}" if folder else ""
        facts = f"{human_size(model.size_bytes):>8}  {record.dim or '-':>4}  {','.join(record.languages) or '-':<5}"
        out(f"{model.kind:<16} {record.name:<{width}}  {facts}  {record.licence}{here}\n")
    return EXIT_OK


def draw_available(screen: Screen, models: Sequence[tuple[FastembedModel, bool]]) -> Styled:
    """Draw `models list --available`: fastembed's models by kind, each with whether it is here."""
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
    return draw(screen, *parts, facts((command, shown(purpose, "faint")) for command, purpose in steps))


def _available(screen: Screen, model: FastembedModel, is_here: bool) -> Sequence[RenderableType]:
    from rich.text import Text

    name, record = model.own_name, model.record
    if len(name) > screen.width - _OTHER_COLUMNS:
        # Cut at a blank, instead of at the column's end.
        name = name.replace("/", "/\n", 1)
    languages = "many" if "*" in record.languages else ", ".join(record.languages)
    size = human_size(model.size_bytes)
    dims = "" if record.dim is None else str(record.dim)
    return mark("good") if is_here else "", Text(name, "title"), size, dims, languages, shown(record.licence)
