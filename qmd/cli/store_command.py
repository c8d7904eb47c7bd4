"""`store copy`: copy an index to another place or engine."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.output import out, say, warn
from qmd.plugins import STORES, all_of


def copy(
    invocation: Invocation,
    source: Annotated[
        str,
        Argument(
            metavar="FROM",
            help=f"A name, {', '.join(one.form for one in all_of(STORES))} or a .sqlite file.",
            autocompletion=completion.indexes,
        ),
    ],
    target: Annotated[
        str, Argument(metavar="TO", help="The new index, in the same form.", autocompletion=completion.indexes)
    ],
) -> int:
    from qmd.app.copying import copy_store
    from qmd.app.opening import locate_store

    places = [locate_store(one, invocation.cwd, invocation.environ) for one in (source, target)]
    with invocation.progress("Texts") as line:
        stage = "Texts"

        def show(what: str, done: int, total: int) -> None:
            nonlocal stage
            if what != stage:
                stage = what
                line.begin(what)
            line.update(done, total)

        report = copy_store(places[0], places[1], invocation.environ, show)
    for warning in report.warnings:
        warn(warning)
    out(
        f"✓ Copied {report.documents} documents with {report.vectors} vectors of {report.models}"
        f" model{'' if report.models == 1 else 's'} to {places[1].place}\n"
    )
    if places[1].keeps_configuration:
        say(f"next: qmd status --index {target}")
    return 0
