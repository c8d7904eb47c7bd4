"""Tables of plug-ins, whose modules are imported at their first use.

The core reads these tables or calls `hooks`, and imports no plug-in. Other packages add rows by the entry-point group
`qmd.plugins`: each entry point names a module with one or more of these tables, and is read only for names without a
row here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from qmd.plugins.kinds import KINDS as KINDS
from qmd.plugins.kinds import Kind as Kind

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

Row = TypeVar("Row")

GROUP = "qmd.plugins"


class Command(NamedTuple):
    """A command: `place` is `module:function`, `words` its arguments.

    `--help` lists it after the command `after`, or after the previous row.
    """

    name: str
    place: str
    words: str
    help: str
    after: str = ""
    examples: tuple[str, ...] = ()
    """Two examples for the folder of `qmd.cli.help.EXAMPLES`."""


class Store(NamedTuple):
    """An engine that keeps indexes at addresses.

    Attributes:
        name: Its short name, the suffix of its local files, and the extra of qmd that installs it.
        product: Name of the software to install.
        form: Example of an address.
        resolve: `module:function` of (text, cwd, home) that returns the full address of `text`, None for another
            scheme. Called for every named index, so its module must import fast.
        opening: The module that opens indexes, a `qmd.store.opening.StoreModule`.
    """

    name: str
    product: str
    form: str
    resolve: str
    opening: str

    def full_address(self, text: str, cwd: Path, home: Path) -> str | None:
        """Return the full address of `text`, by the function `resolve`."""
        return cast("Callable[[str, Path, Path], str | None]", load(self.resolve))(text, cwd, home)


_LANCE = "qmd.plugins.lance.opening"

STORES: Mapping[str, Store] = {
    "lance": Store("lance", "LanceDB", "lance:/path", "qmd.plugins.lance:resolve_folder", _LANCE),
    "s3": Store("lance", "LanceDB", "s3://bucket/prefix", "qmd.plugins.lance:resolve_bucket", _LANCE),
}
"""Scheme of an address -> engine of its indexes."""

ENGINES: Mapping[str, str] = {
    "http://": "qmd.plugins.servers:ServerProvider",
    "https://": "qmd.plugins.servers:ServerProvider",
    "fastembed:": "qmd.plugins.fastembed:FastembedProvider",
    "rerank": "qmd.plugins.qwen:QwenProvider",
    "expand": "qmd.plugins.qwen:QwenProvider",
}
"""Prefix of a model's name, or the role of a model with local files -> its `EngineProvider`."""

# fmt: off
COMMANDS: tuple[Command, ...] = (
    Command("browse", "qmd.plugins.browse.command:browse", "[options] [query]",
        "Search as you type and read notes, on a full screen.", "query", ("qmd browse", "qmd browse pricing -c notes")),
    Command("save", "qmd.plugins.browse.command:save", "[name] [query] [-c <collection>] [--remove]",
        "Save a search under a name (qmd query @name), or list saved searches.", "browse",
        ("qmd save prices 'pricing tag:work'", "qmd save")),
    Command("open", "qmd.plugins.editor.command:open_note", "<note[:line]|#docid|N> [--print]",
        "Open a note, or hit N of the last search.", "multi-get",
        ("qmd open pricing.md", "qmd open notes/daily/2026-03-01.md:5 --print")),
    Command("pack", "qmd.plugins.pack.command:pack",
        "[--tokens <n>] [--json] [-c <collection>] [--intent <text>] <question>",
        "Quote several notes for an answer, in at most N tokens.", "query",
        ("qmd pack 'how do we set prices?' --tokens 2000", "qmd pack 'what changed in March' -c notes --json")),
    Command("add", "qmd.plugins.adding.command:add", "<text|-> [--title <t>] [--to <collection>[/path]] [--daily]",
        "Save text as a note.",
        examples=("qmd add 'The boiler is serviced in May' --tags home", "qmd add 'Called the plumber' --daily")),
    Command("doctor", "qmd.plugins.doctor.command:doctor", "[--json]", "Check the installation and the index.",
        "status", ("qmd doctor", "qmd doctor --json")),
    Command("bench", "qmd.plugins.bench.command:bench", "<fixture.json> [--json] [-c <collection>]",
        "Measure the quality and speed of search.",
        examples=("qmd bench fixture.json", "qmd bench fixture.json --backends bm25 --json")),
    Command("serve", "qmd.plugins.mcp.command:serve", "[--port <n>] [--open] [--watch]",
        "Search on a page in the browser; no data leaves this machine.", "trust",
        ("qmd serve --open", "qmd serve --port 9000 --watch")),
    Command("mcp", "qmd.plugins.mcp.command:mcp",
        "[stop|status] [--http [--host <name>] [--port <n>] [--daemon] [--watch]] [--print-config <client>]",
        "Serve editors and agents over MCP.", examples=("qmd mcp --print-config claude", "qmd mcp --http --daemon")),
    Command("install", "qmd.plugins.install.command:install",
        "<client> [--project] [--hook [session]] [--history] [--remove] [--print] [--yes]",
        "Add qmd to an editor or agent.", examples=("qmd install claude --yes", "qmd install codex --print")),
    Command("hook prompt", "qmd.plugins.install.prompt_hook:answer_prompt", "",
        "Give an agent notes that answer its prompt (hook).",
        examples=("qmd hook prompt < prompt.json", "qmd hook prompt --index work < prompt.json")),
    Command("hook session", "qmd.plugins.install.session_hook:brief_session", "", "Brief an agent at its start (hook).",
        examples=("qmd hook session < session.json", "qmd hook session --index work < session.json")),
    Command("watch", "qmd.plugins.watch.command:watch", "[-c <collection>] [--interval <s>] [--no-embed]",
        "Keep the index up to date while files change.", examples=("qmd watch", "qmd watch -c notes --no-embed")),
    Command("skill show", "qmd.plugins.skills.command:show", "", "Print the instructions for agents that use qmd.",
        examples=("qmd skill show", "qmd --skill")),
    Command("skill install", "qmd.plugins.skills.command:install", "[--global] [--yes] [-f]",
        "Install the skill where agents look for it.",
        examples=("qmd skill install", "qmd skill install --global --yes")),
    Command("skills list", "qmd.plugins.skills.command:list_skills", "[--json]", "List the skills.",
        examples=("qmd skills list", "qmd skills list --json")),
    Command("skills get", "qmd.plugins.skills.command:get", "<name>… [--full] [--all] [--json]", "Print skills.",
        examples=("qmd skills get qmd", "qmd skills get --all --json")),
    Command("skills path", "qmd.plugins.skills.command:path", "[name] [--json]", "Print the folders of skills.",
        examples=("qmd skills path", "qmd skills path qmd --json")),
    Command("pull", "qmd.plugins.models.command:pull", "[name…] [--no-prepare]",
        "Download the larger models (the same as 'models pull').",
        examples=("qmd pull", "qmd pull Qwen3-Reranker-0.6B")),
    Command("models list", "qmd.plugins.models.command:list_models", "[--available] [--json]", "List known models.",
        examples=("qmd models list", "qmd models list --json")),
    Command("models pull", "qmd.plugins.models.command:pull", "[name…] [--no-prepare]",
        "Download models; continues an interrupted download.",
        examples=("qmd models pull", "qmd models pull Qwen3-0.6B")),
    Command("models prepare", "qmd.plugins.models.formats.command:prepare", "[name…] [--form <form>]",
        "Convert downloaded models to faster forms for the CPU.",
        examples=("qmd models prepare", "qmd models prepare Qwen3-0.6B --form q8")),
    Command("models path", "qmd.plugins.models.command:path", "<name>", "Print the folder of a model.",
        examples=("qmd models path all-MiniLM-L6-v2", "ls $(qmd models path all-MiniLM-L6-v2)")),
    Command("models verify", "qmd.plugins.models.command:verify", "[name…]", "Check model files.",
        examples=("qmd models verify", "qmd models verify all-MiniLM-L6-v2")),
    Command("models remove", "qmd.plugins.models.command:remove", "<name>", "Delete the files of a model.",
        examples=("qmd models remove Qwen3-Reranker-0.6B", "qmd models remove Qwen3-0.6B")),
    Command("models export", "qmd.plugins.models.command:export", "<name> <target>",
        "Copy a model to a folder or archive.", examples=("qmd models export all-MiniLM-L6-v2 minilm.tar.gz",
        "qmd models export all-MiniLM-L6-v2 ~/models/minilm")),
    Command("models import", "qmd.plugins.models.formats.command:import_",
        "<source> [--name <name>] [--role <role>] [--form <form>]",
        "Add a model from this machine: a GGUF file, ollama:NAME, an archive.",
        examples=("qmd models import minilm.tar.gz", "qmd models import ~/models/minilm --name all-MiniLM-L6-v2")),
)
# fmt: on


def load(place: str) -> object:
    """Return what `module:name` names, or the module alone; callers check its type."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


def find(table: Mapping[str, Row], name: str) -> Row | None:
    """Return the row of `name` in one of the tables here or in that of another package; None without one."""
    if name in table:
        return table[name]
    return next((rows[name] for rows in _others(table) if name in rows), None)


def _others(table: Mapping[str, Row]) -> list[Mapping[str, Row]]:
    """Return the tables of other packages that have the name of one of those here; their rows are not checked."""
    title = next(key for key, value in globals().items() if value is table)
    return [getattr(one, title, {}) for one in foreign()]


def all_of(table: Mapping[str, Row]) -> list[Row]:
    """Return the rows of one of the tables here and those of other packages, without their names."""
    return [row for rows in (table, *_others(table)) for row in rows.values()]


def store_at(address: str) -> Store:
    """Return the engine of the index at a resolved address.

    Raises:
        LookupError: The scheme is unknown.
    """
    store = find(STORES, address.partition(":")[0])
    if store is None:
        raise LookupError(f"no row of STORES keeps an index at '{address}'")
    return store


@cache
def foreign() -> tuple[ModuleType, ...]:
    """Return the modules of rows from other packages; skip one that cannot be imported, with a warning."""
    if not any(_declares_rows(folder) for folder in sys.path):
        return ()
    from importlib.metadata import entry_points

    found: list[ModuleType] = []
    for one in entry_points(group=GROUP):
        try:
            found.append(one.load())
        except (Exception, SystemExit) as exc:
            import logging

            reason = type(exc).__name__, " ".join(str(exc).split())
            logging.getLogger("qmd").warning("warning: skipped the plug-in '%s': %s: %s", one.name, *reason)
    return tuple(found)


def _declares_rows(folder: str) -> bool:
    """Return whether a package in a folder has rows; the standard library takes 50 ms for this."""
    from pathlib import Path

    try:
        files = Path(folder).glob("*-info/entry_points.txt")
        return any(f"[{GROUP}]" in file.read_text("utf-8", "replace") for file in files)
    except OSError:
        return False
