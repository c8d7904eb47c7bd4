"""What `qmd` alone prints: what it is, what the index holds, and how to go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import qmd
from qmd.cli.examples import FIRST_EXAMPLES
from qmd.errors import QmdError

if TYPE_CHECKING:
    from qmd.config.paths import Locations

_PAGE = """\
qmd {version}: search your own markdown, on this machine

Usage: qmd <command> [options]

Index: {state}
       {database}

Commands:
  qmd index ~/notes        make a folder searchable; again, to refresh it
  qmd query "how do I …"   ask: the best answers first; also: qmd "how do I …"
  qmd open 1               open the first hit in your editor (qmd get: print it)

Examples:
  {examples}

All commands: qmd --help    One command: qmd help query
"""


def first_page(locations: Locations, environ: Mapping[str, str]) -> str:
    """The page for the index that a command would use here; at most 25 lines of 80 columns, but for a long path."""
    return _PAGE.format(
        version=qmd.__version__,
        state=_state(locations, environ),
        database=locations.place,
        examples="\n  ".join(FIRST_EXAMPLES),
    )


def _state(locations: Locations, environ: Mapping[str, str]) -> str:
    from qmd.app.configuration import FileConfiguration
    from qmd.app.index import Index
    from qmd.app.notices import Notices
    from qmd.clock import utc_now
    from qmd.render.text import relative_time

    try:
        # Nobody is asked for trust, and nothing is warned of, who only wants to know what this is.
        with Index(locations, FileConfiguration(locations, environ, Notices()), environ) as index:
            counts = index.status()
    except QmdError as error:
        return f"cannot be read, {error.message} (see: qmd doctor)"
    if not counts.documents:
        return "nothing indexed yet"
    noun = "document" if counts.documents == 1 else "documents"
    vectors = "all with vectors"
    if counts.embedding is not None:
        vectors = f"vectors being computed ({counts.embedding.percent} %)"
    elif counts.pending_documents:
        vectors = f"{counts.pending_documents} without vectors (qmd embed)"
    return f"{counts.documents} {noun}, {vectors}, updated {relative_time(counts.updated_at, utc_now())}"
