"""`models list --available`: the models of fastembed."""

from __future__ import annotations

import json
from pathlib import Path

from qmd.cli.invocation import Invocation
from qmd.cli.output import out
from qmd.errors import EXIT_OK
from qmd.inference.models.weights import locate_model
from qmd.plugins.fastembed.catalogue import fastembed_models
from qmd.render.text import human_size


def list_available(invocation: Invocation, models_dir: Path, *, as_json: bool) -> int:
    """Show each with what it is for, its size, dimensions, languages and licence, and whether it is here."""
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
        from qmd.render.models_table import draw_available

        invocation.page(draw_available(invocation.screen, [(model, folder is not None) for model, folder in found]))
        return EXIT_OK
    width = max(len(model.record.name) for model, _ in found)
    for model, folder in found:
        record, here = model.record, f"  {folder}" if folder else ""
        facts = f"{human_size(model.size_bytes):>8}  {record.dim or '-':>4}  {','.join(record.languages) or '-':<5}"
        out(f"{model.kind:<16} {record.name:<{width}}  {facts}  {record.licence}{here}\n")
    return EXIT_OK
