"""`context …`: notes on paths that results show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.collections import mirror_to_index
from qmd.cli.options import Index
from qmd.cli.session import Session, current_config, out
from qmd.config.paths import expand_home
from qmd.config.settings import load_config
from qmd.errors import NotFoundError, UsageError
from qmd.names import to_text
from qmd.workspace.collections import require_collection

if TYPE_CHECKING:
    from qmd.config.settings import Config

OneCollection = Annotated[
    str | None,
    Option(
        "-c",
        "--collection",
        metavar="NAME",
        help="The path is inside this collection.",
        autocompletion=completion.collections,
    ),
]


def add(
    session: Session,
    words: Annotated[list[str] | None, Argument(metavar='[PATH] "TEXT"', help="Path and note.")] = None,
    collection: OneCollection = None,
    index: Index = None,
) -> int:
    """Attach a note to a path."""
    from qmd.config.edits import set_context, set_global_context

    if not words:
        raise session.missing_argument()
    path, text = (words[0], " ".join(words[1:])) if len(words) > 1 else (".", words[0])
    if not text.strip():
        raise UsageError("the note is empty", "qmd context add /path 'what is there'")
    locations = session.locate(index)
    config = load_config(locations)
    if path == "/" and collection is None:
        mirror_to_index(locations, set_global_context(locations, text))
        out(f"✓ Set global context\nContext: {text}\n")
        return 0
    name, prefix = _place(session, config, path, collection)
    mirror_to_index(locations, set_context(locations, name, prefix, text))
    out(f"✓ Added context for: {_shown(name, prefix)}\nContext: {text}\n")
    return 0


def remove(
    session: Session,
    path: Annotated[str | None, Argument(help="Path of the note; '/' is the global one.")] = None,
    collection: OneCollection = None,
    index: Index = None,
) -> int:
    """Remove a note."""
    from qmd.config.edits import remove_context, set_global_context

    if not path:
        raise session.missing_argument()
    locations = session.locate(index)
    if path == "/" and collection is None:
        mirror_to_index(locations, set_global_context(locations, None))
        out("✓ Removed global context\n")
        return 0
    name, prefix = _place(session, load_config(locations), path, collection)
    mirror_to_index(locations, remove_context(locations, name, prefix))
    out(f"✓ Removed context for: {_shown(name, prefix)}\n")
    return 0


def list_contexts(session: Session, index: Index = None) -> int:
    """List the notes."""
    from qmd.render.listings import render_contexts

    config = current_config(session.locate(index))
    out(render_contexts(config.collections, config.global_context))
    return 0


def check(session: Session, index: Index = None) -> int:
    """List what has no note."""
    from qmd.records import Scope
    from qmd.store import open_reader

    locations = session.locate(index)
    config = current_config(locations)
    bare = [one.name for one in config.collections if not one.context]
    lines = [f"qmd://{name}/ has no context" for name in bare]
    if locations.database.exists():
        with open_reader(locations.database) as reader:
            for one in config.collections:
                folders = {d.path.partition("/")[0] for d in reader.iter_documents(Scope((one.name,))) if "/" in d.path}
                noted = {key.strip("/").partition("/")[0] for key in one.context}
                lines += [f"qmd://{one.name}/{folder}/ has no context of its own" for folder in sorted(folders - noted)]
    if lines:
        lines.append('\nAdd one: qmd context add qmd://<collection>/<folder> "what is there"')
    else:
        lines.append("✓ Every collection and top-level folder has a context")
    out("\n".join(lines) + "\n")
    return 0


def _place(session: Session, config: Config, path: str, collection: str | None) -> tuple[str, str]:
    """(collection, prefix) that a `qmd://` address, a path inside `-c`, or a path on disk means."""
    if collection is not None:
        require_collection(config, collection)
        return collection, path.strip("/") if path != "." else ""
    virtual = re.match(r"(?:qmd:/*|//)(?P<rest>[^/].*)\Z", path, re.DOTALL)
    if virtual:
        rest = virtual["rest"]
        for one in sorted(config.collections, key=lambda known: -len(known.name)):
            if rest == one.name or rest.startswith(f"{one.name}/"):
                return one.name, rest[len(one.name) + 1 :].strip("/")
        require_collection(config, rest.partition("/")[0])
    absolute = (session.cwd / expand_home(path)).resolve()
    for one in sorted(config.collections, key=lambda known: -len(str(known.path))):
        if absolute.is_relative_to(one.path.resolve()):
            prefix = to_text(absolute.relative_to(one.path.resolve()).as_posix())
            return one.name, "" if prefix == "." else prefix
    raise NotFoundError(
        f"Path is not in any indexed collection: {Path(path)}", "Run 'qmd status' to see indexed collections"
    )


def _shown(name: str, prefix: str) -> str:
    return f"qmd://{name}/{prefix}" if prefix else f"qmd://{name}/ (collection root)"
