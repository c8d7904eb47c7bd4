"""`pack`: an answer from several notes, for a model to read."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from qmd.cli.invocation import Invocation
from qmd.cli.options import Collections, Index, Intent, Json, NoGpu, Tokens
from qmd.cli.output import out


def pack(
    invocation: Invocation,
    question: Annotated[list[str], Argument(help="The question, or typed lines (lex:, vec:, hyde:, intent:).")],
    tokens: Tokens = 4000,
    collection: Collections = None,
    intent: Intent = None,
    json: Json = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Answer from several notes: quotations, each under its address, up to a number of tokens."""
    form = "json" if json else "md"
    with invocation.open(invocation.locate(index), allow_gpu=not no_gpu) as opened, invocation.progress("Searching"):
        pack = opened.pack(" ".join(question), tokens=tokens or 4000, form=form, collections=collection, intent=intent)
    out(pack)
    return 0
