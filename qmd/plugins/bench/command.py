"""`bench`: how well, and how fast, this index or a test collection is searched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Collections, Index, Json, NoGpu, positive_number
from qmd.errors import UsageError

_AUTO_QUERIES = 200
_ALL = 1_000_000

Target = Annotated[list[str] | None, Argument(help="A fixture, a BEIR folder, or a TREC run.")]
Auto = Annotated[bool, Option("--auto", help="Test with N headings and links of the index itself [default: 200].")]
Names = Annotated[bool, Option("--names", help="Test with the names and aliases of N notes [default: all].")]
Backends = Annotated[
    str | None, Option("--backends", metavar="LIST", help="Any of bm25, vector, hybrid, full, separated by commas.")
]
Qrels = Annotated[Path | None, Option("--qrels", metavar="FILE", help="Relevance judgements in TREC format.")]
Queries = Annotated[
    Path | None, Option("--queries", metavar="FILE", help="Queries for --qrels: JSON lines, or id and text.")
]
Most = Annotated[str | None, Option("-n", "--n", metavar="N", help="Ask at most N queries, evenly spread.")]
SaveRun = Annotated[
    Path | None, Option("--save-run", metavar="DIR", help="Write each backend's TREC run and answers to DIR.")
]
Compare = Annotated[
    Path | None, Option("--compare", metavar="RUN", help="Compare with a run, or a folder from --save-run.")
]


def bench(
    invocation: Invocation,
    target: Target = None,
    auto: Auto = False,
    names: Names = False,
    collection: Collections = None,
    backends: Backends = None,
    qrels: Qrels = None,
    queries: Queries = None,
    n: Most = None,
    save_run: SaveRun = None,
    compare: Compare = None,
    json: Json = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Measure the quality and speed of searching."""
    from qmd.plugins.bench.measuring import measure, score_run
    from qmd.plugins.bench.tasks import Request, open_task

    words = list(target or ())
    asked = words.pop(0) if (auto or names) and words and words[0].isdecimal() else None
    if len(words) > 1 or bool(words) + auto + names + bool(queries) != 1 or (queries and not qrels):
        raise invocation.missing_argument()
    request = Request(
        target=Path(words[0]) if words else None,
        auto=positive_number(asked, "--auto", _AUTO_QUERIES) if auto else None,
        names=positive_number(asked, "--names", _ALL) if names else None,
        collections=tuple(collection or ()),
        backends=_chosen_backends(backends),
        is_chosen=backends is not None,
        qrels=qrels,
        queries=queries,
        most=positive_number(n, "-n", _ALL) if n is not None else None,
        save=save_run,
        compare=compare,
        json=json,
        allow_gpu=not no_gpu,
    )
    if request.target is not None and request.target.is_file() and request.target.suffix != ".json":
        return score_run(request.target, request)
    with open_task(invocation, invocation.locate(index), request) as task:
        return measure(invocation, task, request)


def _chosen_backends(text: str | None) -> tuple[str, ...]:
    from qmd.plugins.bench.runs import BACKENDS

    names = tuple(name.strip() for name in (text or ",".join(BACKENDS)).split(",") if name.strip())
    for name in names:
        if name not in BACKENDS:
            raise UsageError(f"unknown backend '{name}'", f"known: {', '.join(BACKENDS)}")
    return names or tuple(BACKENDS)
