"""`search`, `vsearch` and `query`: one command in three modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.cli.options import (
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
    Json,
    Limit,
    LineNumbers,
    Markdown,
    MinScore,
    NoGpu,
    NoLineNumbers,
    QueryWords,
    Rerank,
    Xml,
    choose_format,
    cuts_declarations,
    positive_number,
)
from qmd.cli.session import Session, current_config, open_current_reader, out, say, warn
from qmd.errors import NotFoundError
from qmd.quick_dataclasses import dataclass, replace
from qmd.render.hits import Format, HitOptions, render_hits
from qmd.workspace.collections import require_collection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qmd.app.searching import SearchRequest
    from qmd.config.paths import Locations
    from qmd.records import Query, SearchResponse
    from qmd.retrieval.options import Mode
    from qmd.store import IndexReader

_DEFAULT_LIMITS: Mapping[Format, int] = {"json": 20, "files": 20}
_TERMINAL_LIMIT = 5
_MODES: Mapping[str, Mode] = {"search": "lexical", "vsearch": "dense", "query": "hybrid"}
_ALL_LEXICAL = 100_000
_ALL_DENSE = 500

_LOADING_MS = 700
"""Budget from which a process of its own can load the built-in models and still use them (about 0.5 s with imports)."""

_START_MS = 150
"""What a budget has lost before a search begins: starting Python, reading the configuration, opening the index."""
_STALE_DAYS = 14


@dataclass(frozen=True, slots=True)
class _Command:
    """The command line, checked: what is asked for, and how the answer is shown."""

    search: SearchRequest
    format: Format
    full_path: bool
    line_numbers: bool
    allow_gpu: bool


def find(
    session: Session,
    query: QueryWords = None,
    n: Limit = None,
    all_results: All = False,
    min_score: MinScore = 0.0,
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
    index: Index = None,
) -> int:
    """Search, and print the results."""
    text = " ".join(query or ())
    if not text:
        raise session.missing_argument()
    cuts_declarations(chunk_strategy)  # only checked: the chunks are those of the index
    chosen = choose_format(format, {"csv": csv, "md": md, "xml": xml, "files": files, "json": json})
    from qmd.app.searching import SearchRequest
    from qmd.retrieval.options import CANDIDATES

    mode = _MODES[session.command]
    everything = _ALL_LEXICAL if mode == "lexical" else _ALL_DENSE
    default = _DEFAULT_LIMITS.get(chosen, _TERMINAL_LIMIT)
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
        explain=explain,
        full_body=full,
    )
    command = _Command(request, chosen, full_path, line_numbers and not no_line_numbers, not no_gpu)
    return _run(session, session.locate(index), command)


def _run(session: Session, locations: Locations, command: _Command) -> int:
    from qmd.app.searching import narrow_query, read_query

    query = read_query(command.search)
    with _open(locations, command) as reader:
        query, warnings = narrow_query(query, reader.collections(), command.search.collections)
        response = _answer(session, locations, command, query, reader)
        shown = _hit_options(session, locations, command, response, reader)
        if session.command != "search":
            _mention_age(reader)
    for warning in (*warnings, *response.warnings):
        warn(warning)
    if command.search.explain:
        _explain_expansion(response)
    if session.command == "query":
        _mention_built_in_models(session, locations, response)
    if command.format == "cli" and response.hits:
        _mention_verdict(response)
    out(render_hits(response, command.format, shown))
    return 0


def _mention_verdict(response: SearchResponse) -> None:
    """Percentages alone do not tell a reader that nothing was found; programs read the scores."""
    from qmd.render.text import VERDICT_NOTES

    if response.verdict in VERDICT_NOTES:
        say(VERDICT_NOTES[response.verdict])


def _answer(
    session: Session, locations: Locations, command: _Command, query: Query, reader: IndexReader
) -> SearchResponse:
    """The response of the warm worker when one runs for this index, else of this process; the two are the same."""
    from qmd.app.searching import needed_roles, search_options
    from qmd.inference.base import Engines

    options = search_options(command.search)
    if options.mode == "lexical":
        from qmd.retrieval import search

        return search(reader, Engines(None, None, None), query, options)
    from qmd.cli.engines import engine_settings, open_engines
    from qmd.server.client import ask_daemon

    settings = engine_settings(session, locations, allow_gpu=command.allow_gpu)
    roles = needed_roles(query, options)
    answer = ask_daemon(locations, query, options, settings, roles, session.environ)
    if answer is not None:
        return answer
    from qmd.retrieval import search

    if options.budget_ms is None:
        return search(reader, open_engines(settings, roles), query, options)
    if options.budget_ms < _LOADING_MS:
        note = f"budget of {options.budget_ms} ms: loading models would take longer; a running worker has them ready"
        return search(reader, Engines(None, None, None, (note,)), query, options)
    from time import monotonic

    started = monotonic()
    engines = open_engines(settings, roles)
    left_ms = options.budget_ms - _START_MS - (monotonic() - started) * 1000
    return search(reader, engines, query, replace(options, budget_ms=max(int(left_ms), 1)))


def _open(locations: Locations, command: _Command) -> IndexReader:
    """The index; when there is none, an unknown collection is still the better thing to complain about."""
    try:
        return open_current_reader(locations)
    except NotFoundError:
        for name in command.search.collections:
            require_collection(current_config(locations), name)
        raise


def _hit_options(
    session: Session, locations: Locations, command: _Command, response: SearchResponse, reader: IndexReader
) -> HitOptions:
    from qmd.cli.disk_paths import disk_paths, missing_warning

    links: Mapping[str, str] = {}
    template: str | None = None
    shown_paths: Mapping[str, str] | None = None
    documents = [hit.document for hit in response.hits]
    if command.full_path:
        shown_paths = disk_paths(documents, reader.collections(), session.cwd)
        if len(shown_paths) < len(documents):
            warn(missing_warning(len(documents) - len(shown_paths), len(documents)))
    if command.format == "cli" and session.has_colour:
        template = _editor_template(session, locations)
        links = disk_paths(documents, reader.collections(), None)
    note = "No results found."
    if command.search.min_relevance > 0:
        note = "No results found above minimum score threshold."
    return HitOptions(
        index_name=locations.index_name,
        full=command.search.full_body,
        line_numbers=command.line_numbers,
        explain=command.search.explain,
        disk_paths=shown_paths,
        editor_template=template,
        absolute_paths=links,
        empty_note=note,
    )


def _explain_expansion(response: SearchResponse) -> None:
    """Sub-queries that a model proposed, those that were refused with the reason, and where the time went."""
    for subquery in response.expansions:
        say(f"expansion: {subquery.kind}: {subquery.text}")
    for text, reason in response.dropped_expansions:
        say(f"expansion dropped: '{text}': {reason}")
    say("time: " + ", ".join(f"{one.stage} {one.elapsed_ms:.0f} ms" for one in response.timings))


def _editor_template(session: Session, locations: Locations) -> str:
    from qmd.config.settings import load_config, needs_full_config

    if session.environ.get("QMD_EDITOR_URI"):
        return session.environ["QMD_EDITOR_URI"]
    configured = None
    if needs_full_config(locations):
        from qmd.config.trust import trusted_part

        configured = trusted_part(load_config(locations), locations, session.environ).editor_uri
    return configured or "vscode://file/{path}:{line}:{col}"


def _mention_age(reader: IndexReader) -> None:
    """Say when the collections have not been looked at for two weeks: what was written since cannot be found."""
    from qmd.clock import days_since

    moment = reader.updated_at()
    days = days_since(moment) if moment else 0
    if days >= _STALE_DAYS:
        say(f"Tip: Index last updated {days} days ago. Run 'qmd update' to refresh.")


def _mention_built_in_models(session: Session, locations: Locations, response: SearchResponse) -> None:
    """Say once for each cache folder that larger models exist; a line on every query would only be noise."""
    import contextlib

    from qmd.files import create_private

    if not any("built-in" in model for model in response.models):
        return
    marker = locations.cache / "built-in-models-mentioned"
    if marker.exists():
        return
    say("built-in models answered; for larger, multilingual ones run: qmd models pull")
    with contextlib.suppress(OSError):  # a read-only cache only means that it is said again
        create_private(marker)
