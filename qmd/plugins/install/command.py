# ruff: noqa: E501 - one option a line reads as a table
"""`install`: add qmd to the settings of editors and agents."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Literal

from typer import Argument, Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index
from qmd.cli.output import confirm, is_interactive, out, say
from qmd.errors import UsageError
from qmd.escapes import message_line
from qmd.plugins.install.clients import CLIENTS, ONLY_PRINTED, entry_for, settings_file
from qmd.plugins.install.editing import carry_out, plan_change


def install(
    invocation: Invocation,
    client: Annotated[str, Argument(metavar="<client>", help=f"{', '.join(CLIENTS)}.")],
    project: Annotated[bool, Option("--project", help="In the settings of the project in this folder, not in yours.")] = False,
    hook: Annotated[Literal["prompt", "session"] | None, Option("--hook", help="A hook of Claude Code, not the server: at each prompt, or 'session' at the start.")] = None,
    history: Annotated[bool, Option("--history", help="The sessions of Claude Code or Codex as a collection, not the server.")] = False,
    remove: Annotated[bool, Option("--remove", help="Remove the entry.")] = False,
    print_only: Annotated[bool, Option("--print", help="Print the entry to paste, and change nothing.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
    index: Index = None,
) -> int:  # fmt: skip
    """Add this qmd to the settings of an editor or agent, after showing the change."""
    client = client.strip().lower()
    flags: dict[str, object] = {"--project": project, f"--hook={hook}": hook, "--history": history}
    flags |= {"--remove": remove, f"--index={index}": index}
    command = shlex.join(["qmd", "install", client, *(flag for flag, is_on in flags.items() if is_on)])
    if history:
        return _index_history(invocation, client, index or "index", command, project, remove, print_only, yes)
    index, environ = _in_every_folder(invocation, index)
    entry = entry_for(client, index, environ, hook)
    path = settings_file(entry.client, environ, invocation.cwd if project else None)
    if print_only:
        say(f"# {entry.client.title}: {path}")
        out(entry.text())
        return 0
    if client in ONLY_PRINTED:
        raise UsageError(f"qmd does not change the settings of {entry.client.title}", f"qmd install {client} --print")
    change = plan_change(path, entry.keys, entry.value, removes=remove, is_clones=project)
    if change.before == change.after:
        say(f"'{path}' {'has no entry of qmd' if remove else 'has this entry already'}")
        return 0
    out(change.difference())
    if not yes:
        if not is_interactive():
            raise UsageError(f"'{path}' is changed only with your consent", f"{command} --yes")
        if not confirm(f"Change {path}?"):
            say("nothing was changed")
            return 0
    backup = carry_out(change)
    say(f"{'removed from' if remove else 'added to'} {path}{f' (before: {backup})' if backup else ''}")
    return 0


def _index_history(
    invocation: Invocation, client: str, index: str, command: str, project: bool, removes: bool, prints: bool, yes: bool
) -> int:
    """Index the sessions of an agent, or of the project in this folder, or remove them, or only print the command."""
    from qmd.cli import collections, indexing
    from qmd.plugins.histories import histories, history_name, project_names

    folder, names = histories().get(client), project_names(invocation.cwd) if project else [""]
    if folder is None or not names or (project and client != "claude"):
        raise UsageError(f"qmd reads sessions of codex, and of claude also by project; not these of '{client}'")
    folder = (folder / names[0]).resolve()
    with invocation.open(invocation.locate(index)) as now:
        name = next((one.name for one in now.collections() if one.path.resolve() == folder), str(history_name(folder)))
    words = ["qmd", *(("collection", "remove", name) if removes else ("index", str(folder))), "--index", index]
    line = message_line(shlex.join(words))
    if prints:
        out(f"{line}\n")
        return 0
    if not yes and not confirm(f"Run {line}?"):
        raise UsageError(f"'{folder}' is indexed or removed only with your consent", f"{command} --yes")
    if removes:
        return collections.remove(invocation, name, index)
    say(f"{line}; to undo it: {command} --remove")
    return indexing.index(invocation, [folder], yes=True, index=index)


def _in_every_folder(invocation: Invocation, index: str | None) -> tuple[str | None, Mapping[str, str]]:
    """Return the index and environment that mean the same in every folder from which a client starts qmd."""
    if not index and not invocation.environ.get("INDEX_PATH"):
        return None, invocation.environ
    located = invocation.locate(index)
    address = located.address or invocation.environ.get("INDEX_PATH", "")
    return index and located.index_name, {**invocation.environ, "INDEX_PATH": address}


def print_settings(invocation: Invocation, client: str, index: str | None) -> int:
    """Print the output of `qmd mcp --print-config`."""
    return install(invocation, client, print_only=True, index=index)
