"""`pack`: an answer from several notes, for a model to read."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from qmd.app.records import LEAST_TOKENS
from qmd.cli.invocation import Invocation
from qmd.cli.options import Collections, Index, Intent, Json, NoGpu, QueryWords
from qmd.cli.output import out

Tokens = Annotated[
    int, Option("--tokens", metavar="N", min=LEAST_TOKENS, help="Most tokens (o200k) of the whole answer.")
]


def pack(
    invocation: Invocation,
    question: QueryWords = None,
    tokens: Tokens = 4000,
    collection: Collections = None,
    intent: Intent = None,
    json: Json = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Answer from several notes: quotations, each under its address, up to a number of tokens."""
    asked = " ".join(question or ())
    if not asked:
        raise invocation.missing_argument()
    with invocation.open(invocation.locate(index), allow_gpu=not no_gpu) as opened:
        out(opened.pack(asked, tokens=tokens, form="json" if json else "md", collections=collection, intent=intent))
    return 0
