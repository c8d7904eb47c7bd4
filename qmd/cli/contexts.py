"""`context …`: notes on paths that results show."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import Index
from qmd.cli.output import out
from qmd.errors import UsageError

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
    invocation: Invocation,
    words: Annotated[list[str] | None, Argument(metavar='[PATH] "TEXT"', help="Path and text.")] = None,
    collection: OneCollection = None,
    index: Index = None,
) -> int:
    """Attach a note to a path."""
    if not words:
        raise invocation.missing_argument()
    path, text = (words[0], " ".join(words[1:])) if len(words) > 1 else (".", words[0])
    if not text.strip():
        raise UsageError("the text of the context is empty", "qmd context add /path 'what is there'")
    with invocation.open(invocation.locate(index)) as opened:
        if path == "/" and collection is None:
            opened.set_global_context(text)
            out(f"✓ Set global context\nContext: {text}\n")
            return 0
        name, prefix = opened.find_place(path, collection)
        opened.add_context(name, prefix, text)
    out(f"✓ Added context for: {_shown(name, prefix)}\nContext: {text}\n")
    return 0


def remove(
    invocation: Invocation,
    path: Annotated[str | None, Argument(help="Path of the context; '/' is the global one.")] = None,
    collection: OneCollection = None,
    index: Index = None,
) -> int:
    """Remove a note."""
    if not path:
        raise invocation.missing_argument()
    with invocation.open(invocation.locate(index)) as opened:
        if path == "/" and collection is None:
            opened.set_global_context(None)
            out("✓ Removed global context\n")
            return 0
        name, prefix = opened.find_place(path, collection)
        opened.remove_context(name, prefix)
    out(f"✓ Removed context for: {_shown(name, prefix)}\n")
    return 0


def list_contexts(invocation: Invocation, index: Index = None) -> int:
    """List the notes."""
    from qmd.render.listings import render_contexts

    with invocation.open(invocation.locate(index)) as opened:
        notes = opened.contexts()
    invocation.page(render_contexts(notes))
    return 0


def check(invocation: Invocation, index: Index = None) -> int:
    """List what has no note."""
    with invocation.open(invocation.locate(index)) as opened:
        places = opened.places_without_context()
    lines = [
        f"qmd://{name}/{folder}/ has no context of its own" if folder else f"qmd://{name}/ has no context"
        for name, folder in places
    ]
    if lines:
        lines.append('\nAdd one: qmd context add qmd://<collection>/<folder> "what is there"')
    else:
        lines.append("✓ Every collection and top-level folder has a context")
    out("\n".join(lines) + "\n")
    return 0


def _shown(name: str, prefix: str) -> str:
    return f"qmd://{name}/{prefix}" if prefix else f"qmd://{name}/ (collection root)"
