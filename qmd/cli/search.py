"""`search`, `vsearch` and `query`: search in three modes."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from msgspec.structs import replace
from typer import Option

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import (
    SCREEN_LIMIT,
    ChunkStrategy,
    Collections,
    Full,
    FullPath,
    Index,
    Intent,
    Limit,
    LineNumbers,
    NoGpu,
    NoLineNumbers,
    Output,
    QueryWords,
    RareOption,
    Tokens,
)
from qmd.cli.output import out, say, warn
from qmd.config.paths import expand_home
from qmd.errors import EXIT_FAILURE, UsageError
from qmd.render.formats import FORMATS, HitOptions, render_hits
from qmd.render.text import CLOSEST, budget_line, refreshed_line
from qmd.retrieval.query import NOTHING_INDEXED
from qmd.retrieval.request import SearchRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qmd.app.index import Index as OpenIndex
    from qmd.config.paths import Locations
    from qmd.records import Hit, SearchResponse
    from qmd.render.drawing import Screen
    from qmd.retrieval.request import Mode

All = Annotated[bool, Option("--all", help="Show all results.")]
MinScore = Annotated[
    float, RareOption("--min-score", metavar="X", help="Show only results that score at least X (0 to 1).")
]
SortBy = Annotated[
    str | None,
    Option(
        "--sort",
        metavar="ORDER",
        help="relevance, date (newest first) or -date.",
        autocompletion=completion.one_of("relevance", "date", "-date"),
    ),
]
Filter = Annotated[
    str | None, RareOption("--filter", metavar="EXPR", help="By front matter: 'status:draft n>=3', or JSON.")
]
Metadata = Annotated[bool, RareOption("--metadata", help="Add the front matter of each result to --json.")]
Explain = Annotated[bool, Option("--explain", help="Add why each result is where it is.")]
ExplainFull = Annotated[bool, RareOption("--explain-full", help="Also add all scores and times.")]
CandidateLimit = Annotated[
    int | None, RareOption("-C", "--candidate-limit", metavar="N", min=1, help="Rerank at most N candidates.")
]
Rerank = Annotated[
    bool | None,
    RareOption(
        "--rerank/--no-rerank",
        help="Rerank the best candidates, or never [default: the built-in model only near ties].",
    ),
]
Expand = Annotated[bool | None, RareOption("--expand/--no-expand", help="Add queries that a model proposes.")]
Interactive = Annotated[bool, Option("-i", "--interactive", help="Choose a hit on a full screen; print its address.")]
Budget = Annotated[int | None, RareOption("--budget", metavar="MS", min=1, help="Answer within MS milliseconds.")]
Cursor = Annotated[str | None, RareOption("--cursor", metavar="C", help="Continue after the previous answer.")]

_MODES: Mapping[str, Mode] = {"search": "lexical", "vsearch": "dense", "query": "hybrid"}
_COMMANDS: Mapping[str, str] = {
    **dict.fromkeys(("search", "lexical", "lex", "keyword", "fts", "bm25"), "search"),
    **dict.fromkeys(("vsearch", "dense", "vec", "vector", "semantic"), "vsearch"),
    **dict.fromkeys(("query", "hybrid", "auto", "deep"), "query"),
}
"""Mode of another program → command."""
_ALL_LEXICAL = 100_000
_ALL_DENSE = 500

_BUDGET_LIMIT = 20
"""Default number of results with a budget of tokens."""

_START_MS = 150
"""Part of a budget that passes before a search: start of Python, configuration, opening the index."""
_STALE_DAYS = 14


class SearchCommand(Struct, frozen=True):
    """Arguments and options of the search commands."""

    query: QueryWords = None
    n: Limit = None
    all_results: All = False
    min_score: MinScore = 0.0
    sort: SortBy = None
    collection: Collections = None
    filter: Filter = None
    metadata: Metadata = False
    full: Full = False
    line_numbers: LineNumbers = False
    no_line_numbers: NoLineNumbers = False
    full_path: FullPath = False
    output: Output = Output()
    explain: Explain = False
    explain_full: ExplainFull = False
    intent: Intent = None
    candidate_limit: CandidateLimit = None
    rerank: Rerank = None
    expand: Expand = None
    budget: Budget = None
    tokens: Tokens = None
    cursor: Cursor = None
    chunk_strategy: ChunkStrategy = "auto"  # only checked: the chunks are those of the index
    no_gpu: NoGpu = False
    interactive: Interactive = False
    mode: Annotated[str | None, Option("--mode", hidden=True)] = None
    index: Index = None

    @property
    def text(self) -> str:
        return " ".join(self.query or ())

    def screen(self, invocation: Invocation, format: str) -> Screen | None:
        """Return the screen to draw hits on; a budget of tokens needs the plain form."""
        return invocation.screen if format == "cli" and self.tokens is None else None

    def request(self, command: str, format: str) -> SearchRequest:
        """Return the request of a command.

        Raises:
            UsageError: A value is not valid.
        """
        if self.min_score > 1:
            warn(f"--min-score '{self.min_score:g}' is above 1, the best possible score; 50 % is 0.5")
        mode = _MODES[command]
        everything = _ALL_LEXICAL if mode == "lexical" else _ALL_DENSE
        default = SCREEN_LIMIT if self.interactive else _BUDGET_LIMIT if self.tokens else FORMATS[format].limit
        return SearchRequest(
            self.text,
            mode=mode,
            collections=tuple(self.collection or ()),
            intent=self.intent,
            limit=everything if self.all_results else self.n or default,
            min_relevance=self.min_score,
            rerank=self.rerank,
            expand=self.expand,
            candidate_limit=self.candidate_limit,
            budget_ms=self.budget,
            overhead_ms=_START_MS,
            explain=self.explain or self.explain_full,
            full_body=self.full or format == "grep",
            sort=self.sort,
            filter=self.filter,
            cursor=self.cursor,
            snippet_chars=FORMATS[format].snippet_characters,
        )


def find(invocation: Invocation, options: SearchCommand) -> int:
    if not any((options.text, options.interactive, options.filter)):
        raise invocation.missing("question")
    format = options.output.chosen([*FORMATS])
    invocation = _apply_mode(invocation, options.mode)
    request = options.request(invocation.command, format)
    locations = invocation.locate(options.index)
    screen = options.screen(invocation, format)
    with invocation.open(locations, allow_gpu=not options.no_gpu) as opened:
        if options.interactive:
            from qmd.plugins import hooks

            return hooks.pick_note(invocation, opened, request, full_path=options.full_path)
        _refuse_place(invocation, options, opened)
        # Opening the models takes a third of a second.
        with invocation.progress("Searching") if invocation.messages and request.mode != "lexical" else nullcontext():
            response = opened.search(request)
        shown = _hit_options(opened, locations, options, response.hits, format, is_drawn=screen is not None)
        if not response.is_fresh:
            _print_age_tip(invocation.command, opened)
    if screen is not None and any(one.startswith(NOTHING_INDEXED) for one in response.warnings):
        say(f"Nothing is indexed yet. Run: qmd index {'.' if locations.project_root else '~/notes'}")
        return 0
    _print_notices(response, invocation, locations, format)
    if options.explain_full:
        _print_stages(response)
    if screen is not None:
        from qmd.app.recent_hits import remember_hits
        from qmd.render.hit_screen import draw_hits

        shown = replace(shown, next_step=_next_step(invocation, options, response))
        invocation.page(draw_hits(response, shown, screen))
        # `qmd open 1` opens the first of them.
        remember_hits(locations, response.hits)
        return 0
    return _print_plain(response, format, shown, options.tokens)


def _refuse_place(invocation: Invocation, options: SearchCommand, index: OpenIndex) -> None:
    """Raise `UsageError` for a folder or file after the words, in which rg would search."""
    *words, last = options.query or [""]
    if not (words and "/" in last):
        return
    from shlex import join

    from qmd.addresses import places_on_disk

    place = invocation.cwd / expand_home(last)
    for collection, _ in places_on_disk(place, index.collections()) if os.path.exists(place) else ():  # noqa: PTH110
        asked = join([invocation.command, *words, "-c", collection.name])
        raise UsageError(f"'{last}' is a folder or file, and the query has only words", f"qmd {asked}")


def _print_notices(response: SearchResponse, invocation: Invocation, locations: Locations, format: str) -> None:
    """Print warnings and notes about an answer."""
    invocation.warn_each(locations, response.warnings)
    if response.refreshed and format == "cli":
        say(refreshed_line(response.refreshed))
    # Most people set none, and the table of variables takes 10 ms to import.
    has_variables = any(name.startswith("QMD_") for name in invocation.environ)
    if invocation.command == "query" and invocation.messages is not None and has_variables:
        from qmd.plugins import hooks

        strange = hooks.unknown_variables(invocation.environ)
        invocation.warn_each(locations, (f"{one.name} is {one.effect}" for one in strange))
    text = response.query.text
    if text.startswith("@") and not response.hits:
        from qmd.config.saved import saved_searches

        saved = ", ".join(f"@{name}" for name in saved_searches(locations.config_dir))
        warn(f"nothing is saved as '{text}'; saved: {saved or 'nothing yet'}; see: qmd save")


def _print_plain(response: SearchResponse, format: str, shown: HitOptions, tokens: int | None) -> int:
    """Print an answer for a program; return the exit code, which in the format `grep` is 1 without a line."""
    text = render_hits(response, format, shown) if tokens is None else _fit_text(response, format, shown, tokens)
    is_empty = format == "grep" and not text
    if response.hits and (format == "cli" or is_empty):
        _print_verdict(response)
    out(text)
    return EXIT_FAILURE if is_empty else 0


def _fit_text(response: SearchResponse, format: str, shown: HitOptions, tokens: int) -> str:
    """Return the text of an answer, of at most `tokens` tokens."""
    from qmd.analysis.tokens import count_tokens
    from qmd.app.budget import fit_hits

    fitted = fit_hits(response, tokens, lambda one: count_tokens(render_hits(one, format, shown)))
    if format != "cli" and fitted.budget is not None:
        say(budget_line(fitted.budget, "--cursor {}", "qmd get '{}'"))
    return render_hits(fitted, format, shown)


def _apply_mode(invocation: Invocation, mode: str | None) -> Invocation:
    """Return the invocation with the command for `--mode`, an option of other tools.

    Raises:
        UsageError: The mode is unknown.
    """
    if mode is None:
        return invocation
    command = _COMMANDS.get(mode.strip().lower())
    if command is None:
        hint = "each mode is a command: qmd search (words), qmd vsearch (meaning), qmd query (both)"
        raise UsageError(f"unknown --mode '{mode}'", hint)
    if command != invocation.command:
        warn(f"option '--mode {mode}' is read as 'qmd {command}'")
    return replace(invocation, command=command)


def _hit_options(
    index: OpenIndex, locations: Locations, options: SearchCommand, hits: Sequence[Hit], format: str, *, is_drawn: bool
) -> HitOptions:
    """Return the display options of the hits, with links if they are drawn."""
    places = [(hit.document, hit.passage.line) for hit in hits]
    # First, so that the line of a hit counts for a note that is both.
    further = [(one.document, one.line) for hit in hits if (one := hit.continues)]
    disk_paths = None
    if options.full_path or format == "grep":
        from qmd.cli.documents import openable_paths, paths_on_disk

        base = None if options.full_path else locations.cwd
        found = [document for document, _ in places]
        disk_paths = openable_paths(index, found, base) if format == "grep" else paths_on_disk(index, found)
    return HitOptions(
        index_name=locations.index_name,
        full=options.full,
        line_numbers=options.line_numbers and not options.no_line_numbers,
        explain=options.explain or options.explain_full,
        explain_full=options.explain_full,
        metadata=options.metadata,
        shows_all=options.all_results or options.explain or options.explain_full,
        disk_paths=disk_paths,
        empty_note=f"No results found{' above minimum score threshold' if options.min_score > 0 else ''}.",
        links=index.openers([*further, *places]) if is_drawn else {},
    )


def _next_step(invocation: Invocation, options: SearchCommand, response: SearchResponse) -> tuple[str, str] | None:
    """Return a command that may help without a good match, and its purpose; else None."""
    import shlex

    if response.verdict != "none":
        return None
    command = invocation.command
    index = ["--index", shlex.quote(options.index)] if options.index else []
    narrowed = ["--filter", shlex.quote(options.filter)] if options.filter else []
    asked = [shlex.quote(options.text), *narrowed, *index]
    if command == "search" and response.terms:
        return " ".join(["qmd query", *asked]), "search by meaning as well"
    if len(response.hits) > CLOSEST:
        return " ".join(["qmd", command, *asked, "--all"]), "show every hit"
    return " ".join(["qmd status", *index]), "show the state of the index"


def _print_age_tip(command: str, index: OpenIndex) -> None:
    """Print a tip if the last update was two weeks ago, since newer notes cannot be found."""
    days = (index.days_since_update() or 0) if command != "search" else 0
    if days >= _STALE_DAYS:
        say(f"Tip: Index last updated {days} days ago. Run 'qmd update' to refresh.")


def _print_verdict(response: SearchResponse) -> None:
    """Print the verdict, which percentages alone do not show."""
    from qmd.render.text import VERDICT_NOTES

    if response.verdict in VERDICT_NOTES:
        all_hits = "; every hit: --all" if response.verdict == "none" else ""
        say(VERDICT_NOTES[response.verdict] + all_hits)


def _print_stages(response: SearchResponse) -> None:
    """Print proposed and dropped sub-queries, and the time of each stage."""
    for subquery in response.expansions:
        say(f"expansion: {subquery.kind}: {subquery.text}")
    for text, reason in response.dropped_expansions:
        say(f"expansion dropped: '{text}': {reason}")
    say("time: " + ", ".join(f"{one.stage} {one.elapsed_ms:.0f} ms" for one in response.timings))
