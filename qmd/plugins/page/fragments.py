"""Parts of the page as HTML: hits, a note, messages. Records in, text out."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from qmd.app.index import Index
from qmd.app.records import DocumentText, NoteLink, NoteLinks
from qmd.errors import QmdError
from qmd.escapes import LONG_CHARS, address_line, one_line, visible
from qmd.ingest.outline import Outline, kind_of, read_outline
from qmd.plugins.page.note_html import Matcher, NoteContext, mark_matches, markdown_html, plain_html, remove_comments
from qmd.records import DateFilter, Hit, LexicalTerm, SearchResponse, StoredDocument
from qmd.render.text import VERDICT_NOTES, continues_line, stretch, worth_showing
from qmd.retrieval.calibration import strength
from qmd.retrieval.matching import WeightedTerm, find_occurrences, find_spans, fold
from qmd.retrieval.query_filters import filter_text, read_filters
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import Listener

MAX_SHOWN_CHARACTERS = 100_000
"""Longest part of a note to render, around the found line: the worst markdown of that length takes seconds, and the
time grows with its square."""

_DATES = ('since:"last month"', 'since:"last year"')
_OFFERED = (("collection:", 6), ("tag:", 4), ("since:", 2))
"""Filters to offer, and at most how many, in this order."""

N_RELATED = 8
MOST_NEIGHBOURS = 40
"""Most notes in a list of links: a table of contents may link to thousands."""

N_PLACES, MOST_PLACES = 3, 200
"""Passages of a note that are listed open, and at most."""
MOST_OF_A_LINE = 160

_FILTER = r'(?<!\S)(collection|tag|since):(?:"[^"\n]+"|[^\s"]+)(?!\S)'
_NO_PROGRAM = re.compile("(?:file|javascript|data|vbscript):", re.I)


class View(Struct, frozen=True):
    """State in the address of the page: the query, the open note and its found line."""

    query: str = ""
    note: str = ""
    line: int = 0

    @property
    def address(self) -> str:
        given = {"q": self.query, "note": self.note, "line": self.line or ""}
        return "/?" + urlencode({name: value for name, value in given.items() if value})


def render_error(error: QmdError) -> str:
    hint = f" <small>{escape(error.hint)}</small>" if error.hint else ""
    return f'<p class="message" role="status">{escape(error.message)}{hint}</p>'


def render_welcome(index: Index) -> str:
    """Render the number of notes and the newest ones."""
    status = index.status()
    if not status.documents:
        return '<p class="message">Nothing is indexed yet. <small>qmd index FOLDER</small></p>'
    head = f'<p class="message">{status.documents:,} note{"" if status.documents == 1 else "s"}, the newest first</p>'
    return head + _render_hits(index, View(), index.search("sort:date", mode="lexical"))


def render_search(index: Index, view: View, stage: SearchRequest, listener: Listener) -> str:
    """Render the hits of the view's query, found in this stage; without a good match only the closest."""
    response = index.search(replace(stage, text=view.query), listener)
    notes = []
    if stage.rerank is not False:
        notes = [f'<p class="warning">{escape(warning)}</p>' for warning in response.warnings]
        if response.verdict in VERDICT_NOTES:
            notes.insert(0, f'<p class="message">{escape(VERDICT_NOTES[response.verdict].capitalize())}.</p>')
    return "".join(notes) + _render_hits(index, view, worth_showing(response))


def _render_hits(index: Index, view: View, response: SearchResponse) -> str:
    matches = partial(find_spans, terms=response.terms)
    further = [(hit.continues.document, hit.continues.line) for hit in response.hits if hit.continues]
    opens = _openers(index, [*further, *((hit.document, hit.passage.line) for hit in response.hits)])
    rows, noted = [], set[str]()

    def option(name: str, document: StoredDocument, line: int, shown: str) -> str:
        href = replace(view, note=document.uri, line=line).address
        return (
            f'<a role="option" id="{name}" tabindex="-1" href="{escape(href)}" '
            f'data-uri="{escape(document.uri)}" data-open="{escape(opens.get(document.uri, ""))}">{shown}</a>'
        )

    for number, hit in enumerate(response.hits, 1):
        words = one_line(hit.context or "", LONG_CHARS)
        context = f"<p>{escape(words)}</p>" if words and words not in noted else ""
        noted.add(words)
        relevance = _relevance(hit.relevance) if response.terms else ""
        shown = f"{_head(hit, relevance, matches)}{context}{_passage(hit, matches)}"
        rows.append(option(f"hit-{number}", hit.document, hit.passage.line, shown))
        if one := hit.continues:
            rows.append(option(f"next-{number}", one.document, one.line, f"<p>{escape(continues_line(one))}</p>"))
    hits = f'<div id="hits" role="listbox" aria-label="Results" tabindex="0">{"".join(rows)}</div>'
    return _chips(view.query, response.hits) + hits


def _head(hit: Hit, relevance: str, matches: Matcher) -> str:
    document, passage = hit.document, hit.passage
    trail = "".join(f" <i>›</i> {mark_matches(one_line(heading), matches)}" for heading in passage.heading_trail)
    return (
        f'<span class="head"><span><b>{mark_matches(_title(document), matches)}</b>{trail}</span>{relevance}</span>'
        f'<span class="where">{_location(document, f":{passage.line}")}{_date(document)}</span>'
    )


def _passage(hit: Hit, matches: Matcher) -> str:
    """Render the passage, or, if the note has no text of its own, the text of a note that mentions it."""
    context = NoteContext(matches, keeps_links=False)
    copies = "".join(f"<p>also in {escape(address_line(uri))}</p>" for uri in hit.also_in)
    text, lead = hit.passage.text, ""
    body = plain_html(visible(text), context) if hit.passage.is_code else _text(hit.document.path, text, context)
    if hit.mention is not None:
        lead = f"<p>{escape(_title(hit.mention.document))} mentions it:</p>"
        body = markdown_html(visible(hit.mention.text), context)
    return f'{lead}<div class="passage text">{body}</div>{copies}'


def _text(path: str, text: str, context: NoteContext) -> str:
    kind, text = kind_of(path), visible(text)
    if not kind.is_markdown:
        return plain_html(text, context)
    outline = read_outline(kind, text)
    return markdown_html(remove_comments(text, outline.front.body_offset, outline.fences), context)


def _relevance(relevance: float) -> str:
    word, percent = strength(relevance), f"{relevance:.0%}"
    bar = f'<svg class="bar" role="img" aria-label="{percent}"><rect width="{percent}" height="100%"/></svg>'
    return f'<span class="relevance {word}" title="{percent}">{bar}{word}</span>'


def _openers(index: Index, places: Sequence[tuple[StoredDocument, int]]) -> Mapping[str, str]:
    """Return address → link that opens the note at its line in another program; browsers open no files for a page."""
    return {uri: link for uri, link in index.openers(places).items() if not _NO_PROGRAM.match(link)}


def render_note(index: Index, view: View) -> str:
    """Render a whole note, with its links and related notes."""
    fetched, links = index.get(view.note), index.links(view.note)
    document = fetched.document
    opener = _openers(index, [(document, view.line or 1)]).get(document.uri, "")
    opens = opener and f'<a data-key="o" href="{escape(opener)}">Open in {opener.partition(":")[0].capitalize()}</a>'
    close = escape(replace(view, note="", line=0).address)
    tags = "".join(_chip(one, one) for one in (filter_text("tag", tag) for tag in document.tags))
    neighbours = (
        ("Links to", _linked_documents(links.outgoing)),
        ("Linked from", _linked_documents(links.incoming)),
        ("Related", [one.document for one in index.related(view.note, limit=N_RELATED).notes]),
    )
    return (
        f'<header><nav>{opens}<button data-key="y" data-copy="{escape(document.uri)}">Copy link</button>'
        f'<a data-key="Escape" href="{close}">Close</a></nav><p class="title">{escape(_title(document))}</p>'
        f'<p class="where">{_location(document)}{_date(document)}</p><nav class="chips">{tags}</nav></header>'
        f'<div class="text">{_body(index, view, fetched, links)}</div>'
        f"<footer>{''.join(_neighbours(view, title, ends) for title, ends in neighbours if ends)}</footer>"
    )


def _body(index: Index, view: View, fetched: DocumentText, links: NoteLinks) -> str:
    document, (n_before, text) = fetched.document, stretch(fetched.text, view.line, MAX_SHOWN_CHARACTERS)
    is_cut = len(text) < len(fetched.text)
    # Lines keep their numbers.
    text = "\n" * n_before + text
    terms = index.search(view.query, mode="lexical", limit=1).terms if view.query.strip() else ()
    context = NoteContext(
        partial(find_spans, terms=terms),
        notes={one.link.target: _note_url(view, one.document) for one in links.outgoing if one.document is not None},
        picture=partial(_picture, document),
        line=view.line,
    )
    cut = f'<p class="warning">A long note: this is the part around line {view.line or 1}.</p>'
    shown = _text(document.path, text, context)
    heading = re.match(r"\s*<h1[^>]*>(.*?)</h1>", shown)
    if heading and re.sub("</?mark>", "", heading[1]) == escape(_title(document)):
        # The header already shows it.
        shown = shown[heading.end() :]
    return _places(view, document, fetched.text, terms) + (cut + shown if is_cut else shown)


def _places(view: View, document: StoredDocument, text: str, terms: Sequence[LexicalTerm]) -> str:
    """List the sections that match the query as well as the found one, if there are several."""
    outline, lines, rows = read_outline(kind_of(document.path), text), visible(text).split("\n"), ""
    places = _matching_sections(outline, text, terms, view.line - 1)
    for section, line in places[:MOST_PLACES] if len(places) > 1 else ():
        name = one_line(outline.headings[section - 1].text) if section else _title(document)
        extract = lines[line].strip("# ")
        spans = [] if extract == name else find_spans(extract, terms)
        extract = extract[max(spans[0][0] - MOST_OF_A_LINE // 4, 0) :][:MOST_OF_A_LINE] if spans else ""
        href = escape(replace(view, line=line + 1).address)
        marked = mark_matches(extract, partial(find_spans, terms=terms))
        rows += f'<li><a href="{href}">{escape(name)}</a> <small>:{line + 1}</small> {marked}</li>'
    folds = "" if len(places) > N_PLACES else " open"
    summary = f"<summary>{len(places):,} passages</summary>"
    return rows and f'<details class="places"{folds}>{summary}<ul>{rows}</ul></details>'


def _matching_sections(outline: Outline, text: str, terms: Sequence[LexicalTerm], found: int) -> list[tuple[int, int]]:
    """Return numbers of headings, 0 before the first, each with its best matching line; lines count from 0."""
    folded = fold(text)
    # Folding keeps the number of lines, but changes their lengths.
    ends, folded_ends = ([end.start() for end in re.finditer("\n", one)] for one in (text, folded))
    starts = [bisect_left(ends, at) for at in (outline.front.body_offset, *(one.offset for one in outline.headings))]
    found_terms: dict[int, dict[int, set[int]]] = {}
    for one in find_occurrences(folded, [WeightedTerm(term, 1.0) for term in terms if not term.excluded]):
        line = bisect_left(folded_ends, one.offset)
        found_terms.setdefault(bisect_right(starts, line) - 1, {}).setdefault(line, set()).add(one.term)
    shares = {section: len(set().union(*on.values())) for section, on in found_terms.items() if section >= 0}
    least = shares.get(bisect_right(starts, found) - 1, max(shares.values(), default=0))
    best = {section: max((len(terms), -line) for line, terms in found_terms[section].items()) for section in shares}
    return [(section, -best[section][1]) for section, share in shares.items() if share >= least]


def _neighbours(view: View, title: str, documents: Sequence[StoredDocument]) -> str:
    rows = "".join(
        f'<li><a href="{escape(_note_url(view, one))}">{escape(_title(one))}</a> <small>{_location(one)}</small></li>'
        for one in documents[:MOST_NEIGHBOURS]
    )
    rest = len(documents) - MOST_NEIGHBOURS
    more = f"<li><small>and {rest:,} more</small></li>" if rest > 0 else ""
    return f"<section><h2>{title}</h2><ul>{rows}{more}</ul></section>"


def _linked_documents(links: Iterable[NoteLink]) -> list[StoredDocument]:
    """Return the notes at the other ends, each once."""
    return list({one.document.id: one.document for one in links if one.document is not None}.values())


def _chips(query: str, hits: Sequence[Hit]) -> str:
    """Render filters as links that add them to the query or remove them; active ones come first."""
    on = {found[0].lower(): found[0] for found in re.finditer(_FILTER, query)}
    filters = [*on.values(), *(one for one in _filters(hits) if one.lower() not in on)]
    chips = [_chip(_toggle_filter(query, one), one, is_on=one.lower() in on) for one in filters]
    return f'<nav class="chips" aria-label="Filters">{"".join(chips)}</nav>' if chips else ""


def _filters(hits: Sequence[Hit]) -> list[str]:
    """Return filters that narrow these hits: some of the hits match each, others do not.

    Only good hits count, unless none is good: filters that more of them match come first, and a tag needs two.
    """
    n_all, good = _count_filters(hits), [hit for hit in hits if strength(hit.relevance) != "weak"]
    counted = _count_filters(good or hits).most_common()
    narrowing = [one for one, n in counted if n_all[one] < len(hits) and n > one.startswith("tag:")]
    return [one for kind, most in _OFFERED for one in [one for one in narrowing if one.startswith(kind)][:most]]


def _count_filters(hits: Sequence[Hit]) -> Counter[str]:
    """Count the hits that match each filter that can be typed."""
    found = [hit.document for hit in hits]
    names = [filter_text("collection", one.collection) for one in found]
    tags = [filter_text("tag", tag) for one in found for tag in dict.fromkeys(one.tags)]
    dates = [(one.first, when) for when in _DATES for one in read_filters(when) if isinstance(one, DateFilter)]
    # `~` follows every digit: a date may be a month or a year.
    since = [when for first, when in dates for one in found if one.date and f"{one.date}~" >= first]
    return Counter(one for one in (*names, *tags, *since) if re.fullmatch(_FILTER, one))


def _toggle_filter(query: str, written: str) -> str:
    """Add a filter to the query, or remove it; a query has one collection and one date at a time."""
    field, on = written.partition(":")[0], written.lower()
    gone = {one[0] for one in re.finditer(_FILTER, query) if one[0].lower() == on or one[1] == field != "tag"}
    rest = " ".join(re.sub(_FILTER, lambda one: "" if one[0] in gone else one[0], query).split())
    return rest if on in map(str.lower, gone) else f"{rest} {written}".strip()


def _chip(query: str, written: str, *, is_on: bool = False) -> str:
    field, _, value = written.partition(":")
    label = {"collection": "in ", "tag": "#"}.get(field, "") + value.strip('"')
    current = ' aria-current="true"' if is_on else ""
    return f'<a class="chip" href="{escape(View(query).address)}"{current}>{escape(one_line(label))}</a>'


def _title(document: StoredDocument) -> str:
    return one_line(document.title or document.path)


def _location(document: StoredDocument, line: str = "") -> str:
    """Render the location on one line: the browser cuts the folders, then the name, and shows all as a tooltip."""
    whole = address_line(f"{document.collection}/{document.path}")
    folders, _, name = map(escape, whole.rpartition("/"))
    return f'<span class="path" title="{escape(whole)}{line}"><span>{folders}/</span><span>{name}</span>{line}</span>'


def _date(document: StoredDocument) -> str:
    return f" <time>{'' if document.date else 'changed '}{escape(document.day)}</time>"


def _note_url(view: View, document: StoredDocument) -> str:
    return replace(view, note=document.uri, line=0).address


def _picture(document: StoredDocument, source: str) -> str:
    return "/page/picture?" + urlencode({"collection": document.collection, "of": document.path, "source": source})
