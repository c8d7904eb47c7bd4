"""`search`, `vsearch` and `query`: one command in three modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.app.disk_paths import missing_warning
from qmd.app.searching import SearchRequest
from qmd.cli.invocation import Invocation
from qmd.cli.options import (
    SCREEN_LIMIT,
    All,
    Budget,
    CandidateLimit,
    ChunkStrategy,
    Collections,
    Csv,
    Expand,
    Explain,
    Files,
    FormatName,
    Full,
    FullPath,
    Index,
    Intent,
    Interactive,
    Json,
    Limit,
    LineNumbers,
    Markdown,
    MinScore,
    NoGpu,
    NoLineNumbers,
    QueryWords,
    Rerank,
    SortBy,
    Xml,
    choose_format,
    cuts_declarations,
    positive_number,
)
from qmd.cli.output import out, say, warn
from qmd.errors import UsageError
from qmd.render.hits import Format, HitOptions, render_hits, snippet_characters
from qmd.render.text import refreshed_line
from qmd.retrieval.query import CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qmd.app.index import Index as OpenIndex
    from qmd.config.paths import Locations
    from qmd.records import SearchResponse
    from qmd.retrieval.query import Mode

_DEFAULT_LIMITS: Mapping[Format, int] = {"json": 20, "files": 20}
_TERMINAL_LIMIT = 5
_MODES: Mapping[str, Mode] = {"search": "lexical", "vsearch": "dense", "query": "hybrid"}
_ALL_LEXICAL = 100_000
_ALL_DENSE = 500

_START_MS = 150
"""What a budget has lost before a search begins: starting Python, reading the configuration, opening the index."""
_STALE_DAYS = 14


def find(
    invocation: Invocation,
    query: QueryWords = None,
    n: Limit = None,
    all_results: All = False,
    min_score: MinScore = 0.0,
    sort: SortBy = None,
    collection: Collections = None,
    full: Full = False,
    line_numbers: LineNumbers = False,
    no_line_numbers: NoLineNumbers = False,
    full_path: FullPath = False,
    format: FormatName = None,
    json: Json = False,
    csv: Csv = False,
    md: Markdown = False,
    xml: Xml = False,
    files: Files = False,
    explain: Explain = False,
    intent: Intent = None,
    candidate_limit: CandidateLimit = None,
    rerank: Rerank = True,
    expand: Expand = None,
    budget: Budget = None,
    chunk_strategy: ChunkStrategy = None,
    no_gpu: NoGpu = False,
    interactive: Interactive = False,
    index: Index = None,
) -> int:
    """Search, and print the results."""
    text = " ".join(query or ())
    if not text and not interactive:
        raise invocation.missing_argument()
    cuts_declarations(chunk_strategy)  # only checked: the chunks are those of the index
    chosen = choose_format(format, {"csv": csv, "md": md, "xml": xml, "files": files, "json": json})
    if min_score > 1:
        raise UsageError(
            f"--min-score '{min_score:g}' is not from 0 to 1",
            f"50 % is 0.5: qmd {invocation.command} … --min-score 0.5",
        )
    mode = _MODES[invocation.command]
    everything = _ALL_LEXICAL if mode == "lexical" else _ALL_DENSE
    default = SCREEN_LIMIT if interactive else _DEFAULT_LIMITS.get(chosen, _TERMINAL_LIMIT)
    request = SearchRequest(
        text,
        mode=mode,
        collections=tuple(collection or ()),
        intent=intent,
        limit=everything if all_results else positive_number(n, "-n", default),
        min_relevance=min_score,
        rerank=rerank,
        expand=expand,
        candidate_limit=positive_number(candidate_limit, "-C", CANDIDATES) if candidate_limit is not None else None,
        budget_ms=budget,
        overhead_ms=_START_MS,
        explain=explain,
        full_body=full,
        sort=sort,
        snippet_chars=snippet_characters(chosen),
    )
    locations = invocation.locate(index)
    with invocation.open(locations, allow_gpu=not no_gpu) as opened:
        if interactive:
            from qmd.plugins import hook

            status: int = hook("search --interactive")(invocation, opened, request, full_path=full_path)
            return status
        response = opened.search(request)
        shown = HitOptions(
            index_name=locations.index_name,
            full=full,
            line_numbers=line_numbers and not no_line_numbers,
            explain=explain,
            disk_paths=_paths_shown(opened, response) if full_path else None,
            empty_note="No results found above minimum score threshold." if min_score > 0 else "No results found.",
        )
        screen = invocation.screen if chosen == "cli" else None
        if screen is not None:
            shown = replace(shown, links=opened.openers([(hit.document, hit.passage.line) for hit in response.hits]))
            if response.verdict == "none":
                shown = replace(shown, next_step=_next_step(invocation.command, text, index, response))
        if invocation.command != "search" and not response.is_fresh:
            _mention_age(opened)
    for warning in response.warnings:
        warn(warning)
    if response.refreshed and chosen == "cli":
        say(refreshed_line(response.refreshed))
    if explain and screen is None:
        _explain_expansion(response)
    if invocation.command == "query":
        _mention_built_in_models(locations, response)
    if screen is not None:
        from qmd.app.disk_paths import remember_hits
        from qmd.render.hit_screen import draw_hits

        invocation.page(draw_hits(response, shown, screen))
        remember_hits(locations, response.hits)
        return 0
    if chosen == "cli" and response.hits:
        _mention_verdict(response)
    out(render_hits(response, chosen, shown))
    return 0


def _paths_shown(index: OpenIndex, response: SearchResponse) -> Mapping[str, str]:
    """Paths on disk to show instead of addresses; what has none keeps its address, and a warning says so."""
    documents = [hit.document for hit in response.hits]
    paths = index.disk_paths(documents, relative=True)
    if len(paths) < len(documents):
        warn(missing_warning(len(documents) - len(paths), len(documents)))
    return paths


def _next_step(command: str, text: str, index: str | None, response: SearchResponse) -> tuple[str, str]:
    """The command that may help where nothing matches well, and what it does."""
    import shlex

    asked = [shlex.quote(text), *(["--index", shlex.quote(index)] if index else [])]
    if command == "search" and response.terms:
        return " ".join(["qmd query", *asked]), "search by meaning as well"
    if len(response.hits) > 1:
        return " ".join(["qmd", command, *asked, "--explain"]), "show every hit"
    return " ".join(["qmd status", *asked[1:]]), "see what is indexed"


def _mention_age(index: OpenIndex) -> None:
    """Say when the collections have not been looked at for two weeks: what was written since cannot be found."""
    days = index.days_since_update() or 0
    if days >= _STALE_DAYS:
        say(f"Tip: Index last updated {days} days ago. Run 'qmd update' to refresh.")


def _mention_verdict(response: SearchResponse) -> None:
    """Percentages alone do not tell a reader that nothing was found; programs read the scores."""
    from qmd.render.text import VERDICT_NOTES

    if response.verdict in VERDICT_NOTES:
        all_hits = "; every hit: --explain" if response.verdict == "none" and len(response.hits) > 1 else ""
        say(VERDICT_NOTES[response.verdict] + all_hits)


def _explain_expansion(response: SearchResponse) -> None:
    """Sub-queries that a model proposed, those that were refused with the reason, and where the time went."""
    for subquery in response.expansions:
        say(f"expansion: {subquery.kind}: {subquery.text}")
    for text, reason in response.dropped_expansions:
        say(f"expansion dropped: '{text}': {reason}")
    say("time: " + ", ".join(f"{one.stage} {one.elapsed_ms:.0f} ms" for one in response.timings))


def _mention_built_in_models(locations: Locations, response: SearchResponse) -> None:
    """Say once for each cache folder that larger models exist; a line on every query would only be noise."""
    import contextlib

    from qmd.files import create_private

    if not any("built-in" in model for model in response.models):
        return
    marker = locations.cache / "built-in-models-mentioned"
    if marker.exists():
        return
    say("Tip: answered by built-in models. Larger, multilingual ones: qmd models pull")
    with contextlib.suppress(OSError):  # a read-only cache only means that it is said again
        create_private(marker)
