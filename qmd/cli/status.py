"""`status`: what the index holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index, Json
from qmd.cli.output import out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qmd.config.paths import Locations
    from qmd.records import Collection
    from qmd.status import IndexStatus


def status(invocation: Invocation, json: Json = False, index: Index = None) -> int:
    """Show what the index holds."""
    from qmd.clock import utc_now
    from qmd.render.listings import StatusReport, render_status, status_json

    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        counts, collections = opened.status(), opened.indexed_collections()
    report = StatusReport(counts, collections, _tips(counts, collections), _daemon_pid(locations))
    if json:
        out(status_json(report))
    elif invocation.screen:
        from qmd.render.tables import draw_status

        invocation.page(draw_status(invocation.screen, report, utc_now(), locations.home, locations.index_name))
    else:
        out(render_status(report, utc_now()))
    return 0


def _daemon_pid(locations: Locations) -> int | None:
    """The process of a running `qmd mcp --http`; its module is imported only where there is a pid file to judge."""
    if not any(locations.cache.glob("mcp*.pid")):
        return None
    from qmd.plugins import hook

    pid: int | None = hook("status: server")(locations)
    return pid


def _tips(counts: IndexStatus, collections: Sequence[Collection]) -> tuple[str, ...]:
    bare = [one.name for one in collections if not one.context]
    if not bare or not counts.documents:
        return ()
    names = ", ".join(bare[:3]) + (", …" if len(bare) > 3 else "")
    return (f'Add context to collections for better results: {names} (qmd context add qmd://NAME/ "what is there")',)
