"""Commands of qmd, its plug-ins and other packages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise

from qmd import plugins
from qmd.errors import UsageError
from qmd.plugins import Command

COMPLETION_REQUEST = "_QMD_COMPLETE"
"""Variable of a completion request by a shell; typer derives it from the program's name."""

# fmt: off
_OWN: tuple[Command, ...] = (
    Command("index", "qmd.cli.indexing:index", "[options] [path…]",
        "Index folders or files. With no path, update everything."),
    Command("search", "qmd.cli.search:find", "[options] <query>", "Search by words (BM25); no models."),
    Command("vsearch", "qmd.cli.search:find", "[options] <query>", "Search by meaning (vectors)."),
    Command("query", "qmd.cli.search:find", "[options] <query>",
        "Search by words and meaning, and rerank: best results."),
    Command("get", "qmd.cli.documents:get",
        "<filepath>[:from[:count]] [--from <line>] [-l <lines>] [--no-line-numbers] [--full-path]",
        "Show a document, some of its lines, or the target of a [[link]]."),
    Command("multi-get", "qmd.cli.documents:multi_get",
        "<pattern> [-l <lines>] [--max-bytes <bytes>] [--no-line-numbers] [--full-path] [--format {formats}]",
        "Show several documents: a glob, or a comma-separated list."),
    Command("links", "qmd.cli.notes:links", "<note> [--json]", "List the links from and to a note."),
    Command("related", "qmd.cli.notes:related", "<note> [-n <count>] [-c <collection>] [--json]",
        "List notes that are similar to a note, by meaning and links."),
    Command("ls", "qmd.cli.documents:list_files", "[collection[/prefix]]", "List collections or their files."),
    Command("status", "qmd.cli.collections:status", "[--problems] [--json]", "Show the state of the index."),
    Command("collection add", "qmd.cli.collections:add", "<path> [--name <name>] [--glob <glob>] [--no-ignore]",
        "Add a folder as a collection and index its words."),
    Command("collection list", "qmd.cli.collections:list_collections", "[--json]", "List the collections."),
    Command("collection show", "qmd.cli.collections:show", "<name>", "Show one collection."),
    Command("collection set", "qmd.cli.collections:change", "<name> [options]", "Change its folder, files or name."),
    Command("collection rename", "qmd.cli.collections:rename", "<old> <new>", "Rename a collection."),
    Command("collection remove", "qmd.cli.collections:remove", "<name>", "Remove a collection; its files stay."),
    Command("collection include", "qmd.cli.collections:include", "<name>",
        "Include it in searches that name no collection."),
    Command("collection exclude", "qmd.cli.collections:exclude", "<name>",
        "Exclude it from searches that do not name it."),
    Command("collection update-cmd", "qmd.cli.collections:update_command", "<name> [command]",
        "Set or clear the command to run before each update."),
    Command("collection metadata", "qmd.cli.collections:metadata", "[name] [field] [--json]",
        "List fields to filter by."),
    Command("context add", "qmd.cli.collections:add_context", '[path] "text" [-c <collection>]',
        "Describe a folder; the text is shown with every result from it."),
    Command("context list", "qmd.cli.collections:list_contexts", "", "List the contexts."),
    Command("context rm", "qmd.cli.collections:remove_context", "<path>", "Remove a context."),
    Command("context check", "qmd.cli.collections:check_contexts", "",
        "List collections and folders without a context."),
    Command("update", "qmd.cli.indexing:update", "[-c <collection>]", "Index the words of new and changed files."),
    Command("embed", "qmd.cli.indexing:embed", "[-f] [-c <collection>]", "Compute missing vectors."),
    Command("cleanup", "qmd.cli.indexing:cleanup", "[--dry-run]",
        "Remove unused data and make the index file smaller."),
    Command("store copy", "qmd.cli.store_command:copy", "<from> <to>",
        "Copy an index with its vectors to another place."),
    Command("init", "qmd.cli.project:init", "", "Create an index for this folder only, in ./.qmd."),
    Command("trust", "qmd.cli.project:trust", "[list|revoke]",
        "Allow this project's .qmd to run commands and choose models."),
    Command("completion", "qmd.cli.shell:print_script", "bash|zsh|fish|powershell",
        "Print the completion script for a shell."),
)
# fmt: on


def _ordered(rows: Sequence[Command]) -> Iterator[Command]:
    """Yield the commands of qmd, each followed by the rows that name it, then the other rows."""
    waiting: dict[str, list[Command]] = {}
    before = {row.name: above.name for above, row in pairwise(plugins.COMMANDS)}
    for row in rows:
        waiting.setdefault(row.after or before.get(row.name, ""), []).append(row)

    def with_followers(command: Command) -> Iterator[Command]:
        yield command
        for follower in waiting.pop(command.name, ()):
            yield from with_followers(follower)

    for command in _OWN:
        yield from with_followers(command)
    yield from (row for after in list(waiting) for row in waiting.pop(after, ()))


COMMANDS = tuple(_ordered(plugins.COMMANDS))

ALIASES: Mapping[str, str] = {
    "vector-search": "vsearch",
    "deep-search": "query",
    "list": "ls",
    "collections": "collection list",
    "contexts": "context list",
    "collection info": "collection show",
    "collection mv": "collection rename",
    "collection rm": "collection remove",
    "collection set-update": "collection update-cmd",
    "context remove": "context rm",
}

_MODEL_OPTIONS = ("--rerank", "--no-rerank", "-C", "--candidate-limit")
_CHUNKING = "--chunk-strategy"

IDLE_OPTIONS: Mapping[str, Collection[str]] = {
    "search": (*_MODEL_OPTIONS, "--expand", "--no-expand", "--intent", "--budget", "--no-gpu", _CHUNKING),
    "vsearch": (*_MODEL_OPTIONS, _CHUNKING),
    "query": (_CHUNKING,),
}
"""Options without effect that a command accepts because programs pass them; its help does not list them."""

WORKERS = (
    r"index|update|embed|watch|cleanup|init|install|pull|store copy|skill install|models (pull|prepare|remove|export)"
    r"|models import|collection (add|rename|remove|include|exclude|update-cmd)|context (add|rm)"
)
"""Commands whose output reports their work, and no result."""

NAMES: Collection[str] = (*(command.name for command in COMMANDS), *ALIASES)


@cache
def foreign_commands() -> Mapping[str, Command]:
    """Return the commands of other packages by name; needed for `--help` and unknown words only."""
    from qmd.cli.output import warn

    found: dict[str, Command] = {}
    for module in plugins.foreign():
        for row in getattr(module, "COMMANDS", ()):
            if not isinstance(row, Command) or row.name.partition(" ")[0] in _FIRST_WORDS:
                warn(f"skipped a command of the plug-in '{module.__name__}': {row!r}")
            else:
                found[row.name] = row
    return found


_FIRST_WORDS = {"help", *(name.partition(" ")[0] for name in NAMES)}


def all_commands() -> list[Command]:
    return list(_ordered((*plugins.COMMANDS, *foreign_commands().values())))


def find_spec(name: str) -> Command:
    """Return the command with this name or alias, which must exist."""
    wanted = ALIASES.get(name, name)
    own = next((command for command in COMMANDS if command.name == wanted), None)
    return own or foreign_commands()[wanted]


def group_of(name: str) -> list[Command]:
    return [command for command in COMMANDS if command.name.startswith(f"{name} ")]


def usage_of(command: Command) -> str:
    """Return the usage line of a command, without `qmd`."""
    usage = f"{command.name} {command.words}".rstrip()
    if "{formats}" in usage:
        from qmd.render.formats import DOCUMENT_FORMATS

        # `cli` is the default and not worth typing.
        usage = usage.replace("{formats}", "|".join(name for name in DOCUMENT_FORMATS if name != "cli"))
    return usage


def wrong_usage(command: Command, reason: str, hint: str | None = None) -> UsageError:
    """Return the error with the usage as its second line; without a hint, an example becomes it."""
    return UsageError(reason, hint, details=[f"Usage: qmd {usage_of(command)}"])
