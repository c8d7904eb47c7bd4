"""Completion of values in the shell.

Values come from the configuration and the index. A failure means no values, and prints nothing on the user's line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from typer import Context

from qmd.cli.commands import COMPLETION_REQUEST
from qmd.cli.invocation import Invocation, working_folder
from qmd.config.paths import locate

if TYPE_CHECKING:
    from qmd.app.index import Index

_MAX_VALUES = 500
"""Maximum number of values; a shell asks before it lists so many."""


def one_of(*names: str) -> Callable[[], list[str]]:
    return lambda: list(names)


def indexes(incomplete: str) -> list[str]:
    names = {
        file.stem.removesuffix(".qmd") for file in locate(None, working_folder(), os.environ).cache.glob("*.sqlite")
    }
    return _matching(names, incomplete)


def collections(ctx: Context, incomplete: str) -> list[str]:
    with _open_index(ctx) as index:
        return _matching((one.name for one in index.collections()), incomplete)


def documents(ctx: Context, incomplete: str) -> list[str]:
    """Complete documents as `collection/path`, `qmd://` addresses or, after `#`, docids."""
    with _open_index(ctx) as index:
        if incomplete.startswith("#"):
            return _matching((document.docid for document in index.documents()), incomplete)
        scheme = "qmd://" if incomplete.startswith("qmd://") else ""
        return _matching((f"{scheme}{path}" for path in _paths(index, incomplete.removeprefix(scheme))), incomplete)


def folders(ctx: Context, incomplete: str) -> list[str]:
    with _open_index(ctx) as index:
        names = {one.name for one in index.indexed_collections()}
        for path in _paths(index, incomplete):
            parts = path.split("/")
            names.update("/".join(parts[:count]) for count in range(2, len(parts)))
        return _matching(names, incomplete)


def models(incomplete: str) -> list[str]:
    from qmd.inference.models.catalogue import MODELS

    return _matching((record.name for record in MODELS), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that begin with `incomplete`, without those that a shell would execute.

    A cloned project can contain a file named `$(…)`. `qmd.cli.shell` quotes for bash; fish quotes by itself.
    """
    quotes = os.environ.get(COMPLETION_REQUEST) in ("complete_bash", "complete_fish")
    is_safe = str.isprintable if quotes else re.compile(r"[\w ./:#@+=,%-]*").fullmatch
    return sorted(name for name in names if name.startswith(incomplete) and is_safe(name))[:_MAX_VALUES]


def _paths(index: Index, incomplete: str) -> Iterator[str]:
    """Yield `collection/path` of all documents, or of one collection if its name is complete."""
    name, slash, _ = incomplete.partition("/")
    for document in index.documents(name if slash else None):
        yield f"{document.collection}/{document.path}"


def _open_index(ctx: Context) -> Index:
    invocation = Invocation("", os.environ, working_folder())
    return invocation.open(invocation.locate(ctx.params.get("index")))
