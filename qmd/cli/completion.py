"""What a shell offers for a value when the user presses Tab.

The values are read from the configuration and the index as they are; whatever stands in the way of that, there is
nothing to offer, and the user's line stays undisturbed.
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

_MOST = 500
"""Values that are offered at once; a shell asks before it lists so many."""


def one_of(*names: str) -> Callable[[], list[str]]:
    """The completion of a value that is one of a few names."""
    return lambda: list(names)


def indexes(incomplete: str) -> list[str]:
    """Names of the indexes in the user's cache folder."""
    names = {
        file.stem.removesuffix(".qmd") for file in locate(None, working_folder(), os.environ).cache.glob("*.sqlite")
    }
    return _offered(names, incomplete)


def collections(ctx: Context, incomplete: str) -> list[str]:
    """Names of the configured collections."""
    with _open_index(ctx) as index:
        return _offered((one.name for one in index.collections()), incomplete)


def documents(ctx: Context, incomplete: str) -> list[str]:
    """Documents as `collection/path`, `qmd://` addresses or, behind a `#`, docids."""
    with _open_index(ctx) as index:
        if incomplete.startswith("#"):
            return _offered((document.docid for document in index.documents()), incomplete)
        scheme = "qmd://" if incomplete.startswith("qmd://") else ""
        return _offered((f"{scheme}{path}" for path in _paths(index, incomplete.removeprefix(scheme))), incomplete)


def folders(ctx: Context, incomplete: str) -> list[str]:
    """Collections, and the folders in them."""
    with _open_index(ctx) as index:
        names = {one.name for one in index.indexed_collections()}
        for path in _paths(index, incomplete):
            parts = path.split("/")
            names.update("/".join(parts[:count]) for count in range(2, len(parts)))
        return _offered(names, incomplete)


def models(incomplete: str) -> list[str]:
    """Names of the models that qmd knows."""
    from qmd.inference.models.catalogue import MODELS

    return _offered((record.name for record in MODELS), incomplete)


def _offered(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that the user may mean, without those that would be more than a word in the user's shell.

    A file of a cloned project can be called `$(…)`. For bash `qmd.cli.shell` quotes, and fish does so itself.
    """
    quotes = os.environ.get(COMPLETION_REQUEST) in ("complete_bash", "complete_fish")
    is_safe = str.isprintable if quotes else re.compile(r"[\w ./:#@+=,%-]*").fullmatch
    return sorted(name for name in names if name.startswith(incomplete) and is_safe(name))[:_MOST]


def _paths(index: Index, incomplete: str) -> Iterator[str]:
    """`collection/path` of the documents; those of one collection once its name is complete."""
    name, slash, _ = incomplete.partition("/")
    for document in index.documents(name if slash else None):
        yield f"{document.collection}/{document.path}"


def _open_index(ctx: Context) -> Index:
    invocation = Invocation("", "", os.environ, working_folder())
    return invocation.open(invocation.locate(ctx.params.get("index")))
