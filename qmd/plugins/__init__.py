"""What qmd can do beyond its core: tables from a name to what does it, each module imported when its name is used.

The core asks here and imports no plug-in. Rows of another package come from the entry-point group `qmd.plugins`: each
entry point names a module that has one or more of these tables, and is read only for a name that no row here knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

GROUP = "qmd.plugins"


class Command(NamedTuple):
    """A command: `place` is `module:function`, `words` what follows its name, `after` what `--help` lists before it."""

    name: str
    place: str
    words: str
    help: str
    after: str


PLACES: Mapping[str, str] = {
    "lance": "qmd.plugins.lance.places:resolve_folder",
    "s3": "qmd.plugins.lance.places:resolve_bucket",
}
"""Scheme of an index's address -> the function that makes it absolute, of (text, cwd, home)."""

STORES: Mapping[str, str] = {"lance": "qmd.plugins.lance.opening", "s3": "qmd.plugins.lance.opening"}
"""Scheme of an index's address -> the module whose `open_reader` and `open_writer` take it."""

COMMANDS: tuple[Command, ...] = (
    Command(
        "browse",
        "qmd.plugins.browse.command:browse",
        "[options] [query]",
        "Search as you type and read what is found, on a full screen.",
        "query",
    ),
    Command(
        "doctor", "qmd.plugins.doctor.command:doctor", "[--json]", "Check the installation and the index.", "status"
    ),
    Command(
        "bench",
        "qmd.plugins.bench.command:bench",
        "<fixture.json> [--names [N]] [--json] [-c <collection>]",
        "Measure how well and how fast it searches.",
        "doctor",
    ),
    Command(
        "serve",
        "qmd.plugins.page.command:serve",
        "[--port <n>] [--open] [--watch]",
        "Search on a page in the browser; nothing leaves this machine.",
        "trust",
    ),
    Command(
        "mcp",
        "qmd.plugins.mcp.command:mcp",
        "[stop] [--http [--host <name>] [--port <n>] [--daemon] [--watch]] [--print-config <client>]",
        "Serve editors and agents over MCP.",
        "serve",
    ),
    Command(
        "watch",
        "qmd.plugins.watch.command:watch",
        "[-c <collection>] [--interval <s>] [--no-embed]",
        "Keep the index up to date while files change.",
        "mcp",
    ),
    Command(
        "models prepare",
        "qmd.plugins.forms.command:prepare",
        "[name…] [--form <form>]",
        "Convert downloaded models into faster forms for the CPU.",
        "models pull",
    ),
    Command(
        "models import",
        "qmd.plugins.forms.import_command:import_",
        "<file|folder|ollama:name> [--name <name>] [--role <role>]",
        "Add a model that lies on this machine: a GGUF file, ollama:NAME, an archive.",
        "models export",
    ),
)

HOOKS: Mapping[str, str] = {
    "search --interactive": "qmd.plugins.browse.command:pick",
    "models list --available": "qmd.plugins.fastembed.available:list_available",
    "models list: importable": "qmd.plugins.forms.import_command:importable_models",
    "models pull: prepare": "qmd.plugins.forms.command:prepare_fetched",
    "GGUF address: file": "qmd.plugins.forms.elsewhere:cached_file_of",
    "server: routes of the page": "qmd.plugins.page.page:page_routes",
}
"""What a command of the core or of another plug-in leaves to a plug-in."""


def hook(name: str) -> Any:
    """The function of one of `HOOKS`."""
    return load(HOOKS[name])


def load(place: str) -> Any:
    """What `module:name` says, or the module alone."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


def find(table: Mapping[str, Any], name: str) -> Any:
    """The row of `name` in one of the tables here or in that of another package; None where nobody has one."""
    if name in table:
        return table[name]
    title = next(key for key, value in globals().items() if value is table)
    return next((rows[name] for rows in (getattr(one, title, {}) for one in foreign()) if name in rows), None)


@cache
def foreign() -> tuple[Any, ...]:
    """The modules of rows that other packages bring; to ask who brings any costs 50 ms."""
    from importlib.metadata import entry_points

    return tuple(one.load() for one in entry_points(group=GROUP))
