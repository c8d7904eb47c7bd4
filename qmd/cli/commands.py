"""The commands of the program, and what typer makes of the function that each of them names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from qmd import plugins

CommandFunction = Callable[..., int]
"""Takes the invocation, then what its signature declares by name; returns the exit status."""

COMPLETION_REQUEST = "_QMD_COMPLETE"
"""The variable by which a shell asks how a line may go on; typer derives it from the program's name."""


class CommandSpec(NamedTuple):
    """One command: `place` is the module below `qmd.cli` and the function in it, `words` what follows the name."""

    name: str
    place: str
    words: str
    help: str

    @property
    def usage(self) -> str:
        """What follows `qmd ` on a command line."""
        return f"{self.name} {self.words}".rstrip()

    @property
    def examples(self) -> tuple[str, ...]:
        """Two lines that show its use; kept where only its help reads them."""
        from qmd.cli.examples import EXAMPLES

        return EXAMPLES.get(self.name, ())

    def load(self) -> CommandFunction:
        """The function, its module imported."""
        module, _, name = self.place.partition(":")
        function: CommandFunction = getattr(import_module(module if "." in module else f"qmd.cli.{module}"), name)
        return function


_OWN: tuple[CommandSpec, ...] = (
    CommandSpec(
        "index", "indexing:index", "[options] [path…]", "Make folders or files searchable; without a path, refresh all."
    ),
    CommandSpec("search", "search:find", "[options] <query>", "Search by words (BM25); no models."),
    CommandSpec("vsearch", "search:find", "[options] <query>", "Search by meaning (vectors)."),
    CommandSpec("query", "search:find", "[options] <query>", "Search by words and meaning, reranked: best results."),
    CommandSpec(
        "get",
        "documents:get",
        "<filepath>[:from[:count]] [--from <line>] [-l <lines>] [--no-line-numbers] [--full-path]",
        "Show a document, some of its lines, or the target of a [[link]].",
    ),
    CommandSpec(
        "multi-get",
        "documents:multi_get",
        "<pattern> [-l <lines>] [--max-bytes <bytes>] [--no-line-numbers] [--full-path]"
        " [--format json|csv|md|xml|files]",
        "Show several documents: a glob, or a comma-separated list.",
    ),
    CommandSpec(
        "open", "opening:open_note", "<note[:line]|#docid|N> [--print]", "Open a note, or hit N of the last search."
    ),
    CommandSpec("links", "links:links", "<note> [--json]", "List the links from a note and to it."),
    CommandSpec(
        "related",
        "links:related",
        "<note> [-n <count>] [-c <collection>] [--json]",
        "List notes that are similar to a note, by meaning and links.",
    ),
    CommandSpec("ls", "documents:list_files", "[collection[/prefix]]", "List collections or their files."),
    CommandSpec("status", "status:status", "[--json]", "Show what the index holds."),
    CommandSpec(
        "collection add",
        "collections:add",
        "<path> [--name <name>] [--mask <glob>] [--no-ignore]",
        "Add a folder as a collection and index its words.",
    ),
    CommandSpec("collection list", "collections:list_collections", "[--json]", "List the collections."),
    CommandSpec("collection show", "collections:show", "<name>", "Show one collection."),
    CommandSpec("collection rename", "collections:rename", "<old> <new>", "Rename a collection."),
    CommandSpec("collection remove", "collections:remove", "<name>", "Remove a collection; its files stay."),
    CommandSpec(
        "collection include", "collections:include", "<name>", "Include it in searches that name no collection."
    ),
    CommandSpec("collection exclude", "collections:exclude", "<name>", "Leave it out of searches that do not name it."),
    CommandSpec(
        "collection update-cmd",
        "collections:update_command",
        "<name> [command]",
        "Set or clear the command that 'update' runs first.",
    ),
    CommandSpec(
        "context add",
        "contexts:add",
        '[path] "text" [-c <collection>]',
        "Describe a folder; results from it show the text.",
    ),
    CommandSpec("context list", "contexts:list_contexts", "", "List the contexts."),
    CommandSpec("context rm", "contexts:remove", "<path>", "Remove a context."),
    CommandSpec("context check", "contexts:check", "", "List collections and folders without a context."),
    CommandSpec("update", "indexing:update", "[-c <collection>]", "Index the words of new and changed files."),
    CommandSpec("embed", "indexing:embed", "[-f] [-c <collection>]", "Compute missing vectors."),
    CommandSpec("cleanup", "indexing:cleanup", "[--dry-run]", "Remove unused data and make the index file smaller."),
    CommandSpec(
        "store copy",
        "store_command:copy",
        "<from> <to>",
        "Copy an index with its vectors to another place.",
    ),
    CommandSpec("init", "project:init", "", "Create an index for this folder only, in ./.qmd."),
    CommandSpec(
        "trust", "project:trust", "[list|revoke]", "Allow this project's .qmd to run commands and choose models."
    ),
    CommandSpec("skill show", "skills:show", "", "Print the instructions for agents that use qmd."),
    CommandSpec(
        "skill install", "skills:install", "[--global] [--yes] [-f]", "Install the skill where agents look for it."
    ),
    CommandSpec("skills list", "skills:list_skills", "[--json]", "List the skills."),
    CommandSpec("skills get", "skills:get", "<name>… [--full] [--all] [--json]", "Print skills."),
    CommandSpec("skills path", "skills:path", "[name] [--json]", "Print the folders of skills."),
    CommandSpec(
        "pull", "models:pull", "[name…] [--no-prepare]", "Download the larger models (the same as 'models pull')."
    ),
    CommandSpec("models list", "models:list_models", "[--available] [--json]", "List known models."),
    CommandSpec(
        "models pull", "models:pull", "[name…] [--no-prepare]", "Download models; continues an interrupted download."
    ),
    CommandSpec("models path", "models:path", "<name>", "Print the folder of a model."),
    CommandSpec("models verify", "models:verify", "[name…]", "Check model files."),
    CommandSpec("models remove", "models:remove", "<name>", "Delete the files of a model."),
    CommandSpec("models export", "models:export", "<name> <target>", "Copy a model to a folder or archive."),
    CommandSpec(
        "completion",
        "completion:print_script",
        "bash|zsh|fish|powershell",
        "Print the completion script for a shell.",
    ),
)


def _all() -> Iterator[CommandSpec]:
    """Our own commands, each followed by those of plug-ins that help lists after it."""
    waiting = {row.after: CommandSpec(*row[:4]) for row in plugins.COMMANDS}
    for spec in _OWN:
        follower: CommandSpec | None = spec
        while follower is not None:
            yield follower
            follower = waiting.get(follower.name)


COMMANDS = tuple(_all())

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

_OF_MODELS = ("--rerank", "--no-rerank", "-C", "--candidate-limit")
_CUTTING = "--chunk-strategy"

IDLE_OPTIONS: Mapping[str, Collection[str]] = {
    "search": (*_OF_MODELS, "--expand", "--no-expand", "--intent", "--budget", "--no-gpu", _CUTTING),
    "vsearch": (*_OF_MODELS, _CUTTING),
    "query": (_CUTTING,),
}
"""Options that a command takes because programs pass them, and that change nothing there: its help does without."""

NAMES: Collection[str] = (*(spec.name for spec in COMMANDS), *ALIASES)


def find_spec(name: str) -> CommandSpec:
    """The command of that name or alias, which must be one of ours."""
    wanted = ALIASES.get(name, name)
    return next(spec for spec in COMMANDS if spec.name == wanted)


def group_of(name: str) -> list[CommandSpec]:
    """The commands whose names begin with the word `name`."""
    return [spec for spec in COMMANDS if spec.name.startswith(f"{name} ")]


def build_command(spec: CommandSpec) -> Any:
    """Typer's command for `spec`; when invoked it returns the values of the function's parameters by name."""
    from inspect import signature

    import typer

    def collect(**values: object) -> dict[str, object]:
        return values

    declared = signature(spec.load(), eval_str=True)
    # The invocation is no matter of the command line.
    collect.__signature__ = declared.replace(parameters=list(declared.parameters.values())[1:])  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    app.command(name=spec.name, help=spec.help, context_settings=settings)(collect)
    return typer.main.get_command(app)


def declared_options(command: Any) -> Iterator[tuple[str, bool]]:
    """Each spelling of an option of typer's `command`, and whether it takes a value."""
    for one in command.params:
        if one.param_type_name == "option":
            for spelling in (*one.opts, *one.secondary_opts):
                yield spelling, not one.is_flag
