"""Tools for agents. A new tool is a row of `TOOLS`: its arguments, and the function that answers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from qmd.analysis.tokens import count_tokens
from qmd.app.budget import fit_documents, fit_hits
from qmd.app.index import Index
from qmd.app.records import DEFAULT_MAX_BYTES, LEAST_TOKENS, DocumentText, DocumentTexts
from qmd.errors import UsageError
from qmd.escapes import address_line
from qmd.plugins import hooks
from qmd.plugins.mcp import presentation
from qmd.plugins.mcp.arguments import MAX_LIMIT, ToolArgument
from qmd.plugins.mcp.presentation import (
    PASSAGE_CHARS,
    TextForm,
    ToolAnswer,
    document_parts,
    file_of,
    skipped_text,
)
from qmd.plugins.mcp.rows import DETAILS, answer_object, results_text
from qmd.records import SearchResponse
from qmd.render.links import links_object, related_rows, render_links
from qmd.retrieval.request import Mode, SearchRequest
from qmd.retrieval.trace import Listener

Values = Mapping[str, Any]
"""Checked value of every argument."""


class Tool(Struct, frozen=True):
    name: str
    title: str
    description: str
    arguments: tuple[ToolArgument, ...]
    """Source of both the schema and the checks."""
    answer: Callable[[Index, Values, Listener], ToolAnswer]
    """Runs in a thread and reports the stages of a search to the listener."""


_LIMIT = ToolArgument("limit", "integer", "", default=10, minimum=1, maximum=MAX_LIMIT)
_MIN_SCORE = ToolArgument("minScore", "number", "Drop results below; 0.2 cuts noise.", default=0, minimum=0, maximum=1)
_COLLECTIONS = ToolArgument("collections", "strings", "Only these (see status).")
_FILE = ToolArgument("file", "string", "Path, name, address or #docid.", True)
_MAX_LINES = ToolArgument("maxLines", "integer", "", minimum=1)
_LINE_NUMBERS = ToolArgument("lineNumbers", "boolean", "", default=True)
_MAX_TOKENS = ToolArgument("maxTokens", "integer", "", minimum=LEAST_TOKENS)
QUERY_ARGUMENTS = (
    ToolArgument("query", "string", "Plain question or keywords; not with 'searches'."),
    ToolArgument(
        "searches",
        "searches",
        'Sub-queries, most important first: lex (keywords, "phrases", -exclusions), vec (a plain question), '
        "hyde (made-up answer).",
    ),
    _LIMIT,
    _MIN_SCORE,
    ToolArgument("candidateLimit", "integer", "Most to rerank.", minimum=1, maximum=MAX_LIMIT),
    _COLLECTIONS,
    ToolArgument("intent", "string", "What the answer is for."),
    ToolArgument("sort", "string", "relevance, date (newest first) or -date."),
    ToolArgument("filter", "filter", "By front matter: status:draft n>=3 -has:due, or JSON."),
    ToolArgument(
        "detail", "string", "paths: one line a note, for lists; full: whole notes.", default=DETAILS[0], choices=DETAILS
    ),
    ToolArgument("rerank", "boolean", "Default: where it matters."),
    _MAX_TOKENS,
    ToolArgument("cursor", "string", "From an answer that had more."),
    ToolArgument("seen", "strings", "Docids or addresses to skip."),
)
_READ_TOKENS = replace(_MAX_TOKENS, default=10_000)
GET_ARGUMENTS = (
    replace(
        _FILE, description="Path, name, [[Note]], qmd:// address or #docid; may end in :LINE, :LINE:COUNT or #Heading."
    ),
    ToolArgument("fromLine", "integer", "", minimum=1),
    _MAX_LINES,
    _LINE_NUMBERS,
    ToolArgument("outline", "boolean", "Only the headings, with their lines.", default=False),
    _READ_TOKENS,
)
MULTI_GET_ARGUMENTS = (
    ToolArgument("pattern", "names", "Glob ('journals/2025-*.md'), or paths and #docids with commas.", True),
    replace(_MAX_LINES, description="Of each."),
    ToolArgument("maxBytes", "integer", "Name larger ones only.", default=DEFAULT_MAX_BYTES, minimum=1),
    _LINE_NUMBERS,
    _READ_TOKENS,
)
PACK_ARGUMENTS = (
    ToolArgument("query", "string", "", True),
    *(one for one in QUERY_ARGUMENTS if one.name in ("collections", "intent")),
    replace(_MAX_TOKENS, default=4000),
)
ADD_ARGUMENTS = (
    ToolArgument("text", "string", "Markdown to keep.", True),
    ToolArgument("title", "string", "Names the file."),
    ToolArgument("tags", "strings", ""),
    ToolArgument("to", "string", "COLLECTION[/FOLDER], or COLLECTION/NOTE.md to append to."),
    ToolArgument("daily", "boolean", "Append to today's note.", default=False),
    ToolArgument("source", "string", "Who or what it is from."),
    ToolArgument("force", "boolean", "Even if a note is nearly the same.", default=False),
)
LEGACY_ARGUMENTS = (ToolArgument("query", "string", "Query text.", True), _LIMIT, _MIN_SCORE, _COLLECTIONS)


def search_request(asked: Values) -> SearchRequest:
    """Return the search request for the arguments of `query`.

    Raises:
        UsageError: If neither or both of a text and sub-queries are given.
    """
    text, searches = asked["query"], asked["searches"]
    if asked["filter"] and not searches:
        text = text or ""
    if text is None and not searches:
        raise UsageError("provide either 'query' (plain text) or 'searches' (typed sub-queries)")
    if text is not None and searches:
        raise UsageError("'query' and 'searches' are mutually exclusive; provide only one")
    return SearchRequest(
        text=text,
        searches=searches or (),
        limit=asked["limit"],
        min_relevance=asked["minScore"],
        candidate_limit=asked["candidateLimit"],
        collections=asked["collections"] or (),
        intent=asked["intent"] or None,
        rerank=asked["rerank"],
        sort=asked["sort"],
        filter=asked["filter"],
        snippet_chars=PASSAGE_CHARS,
        full_body=asked["detail"] == "full",
        cursor=asked["cursor"] or None,
        seen=asked["seen"] or (),
    )


def _query(index: Index, asked: Values, listener: Listener) -> ToolAnswer:
    return _search(index, search_request(asked), listener, asked["maxTokens"], asked["detail"])


def _query_of_version_one(mode: Mode, index: Index, asked: Values, listener: Listener) -> ToolAnswer:
    request = SearchRequest(
        text=asked["query"],
        mode=mode,
        limit=asked["limit"],
        min_relevance=asked["minScore"],
        collections=asked["collections"] or (),
        snippet_chars=PASSAGE_CHARS,
    )
    return _search(index, request, listener)


def _search(
    index: Index, request: SearchRequest, listener: Listener, most: int | None = None, detail: str = DETAILS[0]
) -> ToolAnswer:
    def show(found: SearchResponse) -> tuple[str, dict[str, Any]]:
        return results_text(found, request.label, detail), answer_object(found, detail=detail)

    # Some clients show their model the text, some the object: both must fit the limit.
    text, content = show(fit(index.search(request, listener), most, show))
    return ToolAnswer((text,), content)


def fit(
    response: SearchResponse, most: int | None, show: Callable[[SearchResponse], Sequence[object]]
) -> SearchResponse:
    """Cut a response so that each form in which it is shown fits into `most` tokens."""
    if most is None:
        return response

    def measure(found: SearchResponse) -> int:
        forms = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in show(found))
        return max(map(count_tokens, forms))

    return fit_hits(response, most, measure)


def _get(index: Index, asked: Values, listener: Listener) -> ToolAnswer:
    fetched = index.get(asked["file"], from_line=asked["fromLine"], max_lines=asked["maxLines"])
    is_outline = asked["outline"] and fetched.text
    found = DocumentTexts((presentation.outlined(fetched) if is_outline else fetched,))
    parts = _shown_documents(found, asked, "outline" if is_outline else _text_form(asked))
    return ToolAnswer((*parts, *(f"Warning: {warning}" for warning in fetched.warnings)))


def _multi_get(index: Index, asked: Values, listener: Listener) -> ToolAnswer:
    found = index.multi_get(asked["pattern"], max_bytes=asked["maxBytes"], max_lines=asked["maxLines"])
    return ToolAnswer(_shown_documents(found, asked, _text_form(asked)))


def _text_form(asked: Values) -> TextForm:
    return "numbered" if asked["lineNumbers"] else "exact"


def _shown_documents(found: DocumentTexts, asked: Values, form: TextForm) -> tuple[str, ...]:
    """Return documents as one block, as some clients show their model only the first; exact texts as their own."""

    def show(found: DocumentTexts) -> list[str]:
        parts = ["\n".join(("Errors:", *found.problems))] if found.problems else []
        for one in found.entries:
            parts += document_parts(one, form) if isinstance(one, DocumentText) else [skipped_text(one)]
        return parts

    most, more = asked["maxTokens"], 'get with file="{}:{}"'
    parts = show(fit_documents(found, most, lambda found: "\n\n".join(show(found)), more))
    return tuple(parts) if form == "exact" else ("\n\n".join(parts),)


def _pack(index: Index, asked: Values, listener: Listener) -> ToolAnswer:
    wished = {"collections": asked["collections"], "intent": asked["intent"]}
    return ToolAnswer((index.pack(asked["query"], listener, tokens=asked["maxTokens"], **wished),))


def _status(index: Index, asked: Values, listener: Listener) -> ToolAnswer:
    status = index.status()
    return ToolAnswer((presentation.status_text(status),), presentation.structured_status(status))


def _links(index: Index, asked: Values, listener: Listener) -> ToolAnswer:
    found = index.links(asked["file"])
    said = (f"Warning: {warning}" for warning in found.warnings)
    return ToolAnswer((render_links(found, file_of), *said), links_object(found, file_of))


def _related(index: Index, asked: Values, listener: Listener) -> ToolAnswer:
    found = index.related(asked["file"], limit=asked["limit"], collections=asked["collections"])
    warnings = {"warnings": list(found.warnings)} if found.warnings else {}
    return ToolAnswer((presentation.related_text(found),), {"results": related_rows(found.notes, file_of), **warnings})


def _add(index: Index, asked: Values, listener: Listener) -> ToolAnswer:
    added = hooks.add_for_agent(index, asked)
    said = (f"Warning: {warning}" for warning in added.warnings)
    return ToolAnswer((f"{added.status} {address_line(added.file)}", *said), to_builtins(added))


TOOLS = (
    Tool("query", "", "Search the user's notes: files, lines and what they say.", QUERY_ARGUMENTS, _query),
    Tool("get", "Get Document", "Read a document, a part or its outline.", GET_ARGUMENTS, _get),
    Tool("multi_get", "Multi-Get Documents", "Read several documents.", MULTI_GET_ARGUMENTS, _multi_get),
    Tool("status", "Index Status", "Show what is indexed, and which vectors are missing.", (), _status),
    Tool("pack", "", "Answer from several notes at once: cited quotations.", PACK_ARGUMENTS, _pack),
    Tool("links", "", "List the links from and to a note.", (_FILE,), _links),
    Tool("related", "Related Notes", "List similar notes.", (_FILE, _LIMIT, _COLLECTIONS), _related),
)

ADD = Tool("add", "Add Note", "Write a note, or append to one; overwrites nothing.", ADD_ARGUMENTS, _add)
"""Tool that writes; listed only if agents may write."""

_VERSION_ONE: Mapping[str, Mode] = {"search": "lexical", "vector_search": "dense", "deep_search": "hybrid"}

LEGACY_TOOLS = tuple(
    Tool(name, "", "", LEGACY_ARGUMENTS, partial(_query_of_version_one, mode)) for name, mode in _VERSION_ONE.items()
)
"""Tools of version 1, which are answered but not listed."""
