"""The parts of the page as HTML: hits, a note, what there is to say instead. Records in, text out."""

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
from qmd.ingest.outline import Outline, kind_of, read_outline
from qmd.plugins.page.note_html import Matcher, NoteContext, markdown_html, marked, plain_html, without_comments
from qmd.records import Hit, LexicalTerm, SearchResponse, StoredDocument
from qmd.render.text import VERDICT_NOTES, stretch, worth_showing
from qmd.retrieval.calibration import strength
from qmd.retrieval.matching import WeightedTerm, find_occurrences, find_spans, fold
from qmd.retrieval.query_filters import filter_text
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import Listener

MAX_SHOWN_CHARACTERS = 100_000
"""Of a note, around the line that was found: the worst markdown of that length takes seconds, and the time grows with
its square."""

N_TAGS = 4
N_COLLECTIONS = 6
"""Of more the ones that hold most of the hits."""

N_RELATED = 8
MOST_NEIGHBOURS = 40
"""Of one kind: a table of contents may link to thousands of notes."""

N_PLACES, MOST_PLACES = 3, 200
"""Of a note: as many passages are listed at once, and as many on demand."""
MOST_OF_A_LINE = 160

_FILTER = r'(?<!\S)(collection|tag|since):(?:"[^"\n]+"|[^\s"]+)(?!\S)'
_NO_PROGRAM = re.compile("(?:file|javascript|data|vbscript):", re.I)


class View(Struct, frozen=True):
    """What the address of the page says: the query, and the note that is open with the line that was found."""

    query: str = ""
    note: str = ""
    line: int = 0

    @property
    def address(self) -> str:
        """This view's address."""
        given = {"q": self.query, "note": self.note, "line": self.line or ""}
        return "/?" + urlencode({name: value for name, value in given.items() if value})


def failure(error: QmdError) -> str:
    """What a request failed with."""
    hint = f" <small>{escape(error.hint)}</small>" if error.hint else ""
    return f'<p class="said" role="status">{escape(error.message)}{hint}</p>'


def welcome(index: Index) -> str:
    """What there is to search, the newest notes first."""
    status = index.status()
    if not status.documents:
        return '<p class="said">Nothing is indexed yet. <small>qmd index FOLDER</small></p>'
    said = f'<p class="said">{status.documents:,} note{"" if status.documents == 1 else "s"}, the newest first</p>'
    return said + _listed(index, View(), index.search("sort:date", mode="lexical"))


def search(index: Index, view: View, stage: SearchRequest, listener: Listener) -> str:
    """The hits of the view's query, found the way `stage` says; of a list in which nothing matches well the closest."""
    response = index.search(replace(stage, text=view.query), listener)
    notes = []
    if stage.rerank is not False:
        notes = [f'<p class="warning">{escape(warning)}</p>' for warning in response.warnings]
        if response.verdict in VERDICT_NOTES:
            notes.insert(0, f'<p class="said">{escape(VERDICT_NOTES[response.verdict].capitalize())}.</p>')
    return "".join(notes) + _listed(index, view, worth_showing(response))


def _listed(index: Index, view: View, response: SearchResponse) -> str:
    matches = partial(find_spans, terms=response.terms)
    opens = _openers(index, [(hit.document, hit.passage.line) for hit in response.hits])
    rows, noted = [], set[str]()
    for number, hit in enumerate(response.hits, 1):
        context = f"<p>{escape(hit.context)}</p>" if hit.context and hit.context not in noted else ""
        noted.add(hit.context or "")
        relevance = _relevance(hit.relevance) if response.terms else ""
        href = replace(view, note=hit.document.uri, line=hit.passage.line).address
        rows.append(
            f'<a role="option" id="hit-{number}" tabindex="-1" href="{escape(href)}" '
            f'data-uri="{escape(hit.document.uri)}" data-open="{escape(opens.get(hit.document.uri, ""))}">'
            f"{_head(hit, relevance, matches)}{context}{_passage(hit, matches)}</a>"
        )
    hits = f'<div id="hits" role="listbox" aria-label="Results" tabindex="0">{"".join(rows)}</div>'
    return _chips(index, view.query, response) + hits


def _head(hit: Hit, relevance: str, matches: Matcher) -> str:
    document, passage = hit.document, hit.passage
    trail = "".join(f" <i>›</i> {marked(heading, matches)}" for heading in passage.heading_trail)
    return (
        f'<span class="head"><span><b>{marked(_title(document), matches)}</b>{trail}</span>{relevance}</span>'
        f'<span class="where">{_place(document)}:{passage.line}{_date(document)}</span>'
    )


def _passage(hit: Hit, matches: Matcher) -> str:
    """The passage; of a note that says nothing itself the words in which another one speaks of it."""
    around = NoteContext(matches, keeps_links=False)
    copies = "".join(f"<p>also in {escape(uri)}</p>" for uri in hit.also_in)
    if hit.mention is not None:
        said = markdown_html(hit.mention.text, around)
        return f'<p>{escape(_title(hit.mention.document))} says:</p><div class="passage text">{said}</div>{copies}'
    text = hit.passage.text
    body = plain_html(text, around) if hit.passage.is_code else _text(hit.document.path, text, around)
    return f'<div class="passage text">{body}</div>{copies}'


def _text(path: str, text: str, around: NoteContext) -> str:
    kind = kind_of(path)
    if not kind.is_markdown:
        return plain_html(text, around)
    outline = read_outline(kind, text)
    return markdown_html(without_comments(text, outline.front.body_offset, outline.fences), around)


def _relevance(relevance: float) -> str:
    word = strength(relevance)
    bar = (
        f'<svg class="bar" role="img" aria-label="{relevance:.0%}"><rect width="{relevance:.0%}" height="100%"/></svg>'
    )
    return f'<span class="relevance {word}" title="{relevance:.0%}">{bar}{word}</span>'


def _openers(index: Index, places: Sequence[tuple[StoredDocument, int]]) -> Mapping[str, str]:
    """Address → what opens the note at its line outside of the browser, which opens no files for a page."""
    return {uri: link for uri, link in index.openers(places).items() if not _NO_PROGRAM.match(link)}


def open_note(index: Index, view: View) -> str:
    """A note in full, and what it is connected with."""
    fetched, links = index.get(view.note), index.links(view.note)
    document = fetched.document
    opener = _openers(index, [(document, view.line or 1)]).get(document.uri)
    opens = f'<a data-key="o" href="{escape(opener)}">Open in {_program(opener)}</a>' if opener else ""
    close = escape(replace(view, note="", line=0).address)
    tags = "".join(_chip(filter_text("tag", tag), f"#{tag}") for tag in document.tags)
    neighbours = (
        ("Links to", _ends(links.outgoing)),
        ("Linked from", _ends(links.incoming)),
        ("Related", [one.document for one in index.related(view.note, limit=N_RELATED).notes]),
    )
    return (
        f'<header><nav>{opens}<button data-key="y" data-copy="{escape(document.uri)}">Copy link</button>'
        f'<a data-key="Escape" href="{close}">Close</a></nav><p class="title">{escape(_title(document))}</p>'
        f'<p class="where">{_place(document)}{_date(document)}</p><nav class="chips">{tags}</nav></header>'
        f'<div class="text">{_body(index, view, fetched, links)}</div>'
        f"<footer>{''.join(_neighbours(view, title, ends) for title, ends in neighbours if ends)}</footer>"
    )


def _body(index: Index, view: View, fetched: DocumentText, links: NoteLinks) -> str:
    document, (n_before, text) = fetched.document, stretch(fetched.text, view.line, MAX_SHOWN_CHARACTERS)
    is_cut = len(text) < len(fetched.text)
    # Lines keep their numbers.
    text = "\n" * n_before + text
    terms = index.search(view.query, mode="lexical", limit=1).terms if view.query.strip() else ()
    around = NoteContext(
        partial(find_spans, terms=terms),
        notes={one.link.target: _to(view, one.document) for one in links.outgoing if one.document is not None},
        picture=partial(_picture, document),
        line=view.line,
    )
    cut = f'<p class="warning">A long note: this is the part around line {view.line or 1}.</p>'
    shown = _text(document.path, text, around)
    heading = re.match(r"\s*<h1[^>]*>(.*?)</h1>", shown)
    if heading and re.sub("</?mark>", "", heading[1]) == escape(_title(document)):
        # It stands above already.
        shown = shown[heading.end() :]
    return _places(view, document, fetched.text, terms) + (cut + shown if is_cut else shown)


def _places(view: View, document: StoredDocument, text: str, terms: Sequence[LexicalTerm]) -> str:
    """The sections of a note that hold as much of the query as the one that was found, where there are several."""
    outline, lines, rows = read_outline(kind_of(document.path), text), text.split("\n"), ""
    places = _matching_sections(outline, text, terms, view.line - 1)
    for section, line in places[:MOST_PLACES] if len(places) > 1 else ():
        name, said = outline.headings[section - 1].text if section else _title(document), lines[line].strip("# ")
        spans = [] if said == name else find_spans(said, terms)
        said = said[max(spans[0][0] - MOST_OF_A_LINE // 4, 0) :][:MOST_OF_A_LINE] if spans else ""
        where = (
            f'<a href="{escape(replace(view, line=line + 1).address)}">{escape(name)}</a> <small>:{line + 1}</small>'
        )
        rows += f"<li>{where} {marked(said, partial(find_spans, terms=terms))}</li>"
    folds = "" if len(places) > N_PLACES else " open"
    summary = f"<summary>{len(places):,} passages</summary>"
    return rows and f'<details class="places"{folds}>{summary}<ul>{rows}</ul></details>'


def _matching_sections(outline: Outline, text: str, terms: Sequence[LexicalTerm], found: int) -> list[tuple[int, int]]:
    """Number of a heading, 0 before the first, with the line below it that says most of the query; lines from 0."""
    folded = fold(text)
    # Folding keeps lines, and not their lengths.
    ends, folded_ends = ([end.start() for end in re.finditer("\n", one)] for one in (text, folded))
    starts = [bisect_left(ends, at) for at in (outline.front.body_offset, *(one.offset for one in outline.headings))]
    held: dict[int, dict[int, set[int]]] = {}
    for one in find_occurrences(folded, [WeightedTerm(term, 1.0) for term in terms if not term.excluded]):
        line = bisect_left(folded_ends, one.offset)
        held.setdefault(bisect_right(starts, line) - 1, {}).setdefault(line, set()).add(one.term)
    shares = {section: len(set().union(*on.values())) for section, on in held.items() if section >= 0}
    least = shares.get(bisect_right(starts, found) - 1, max(shares.values(), default=0))
    best = {section: max((len(terms), -line) for line, terms in held[section].items()) for section in shares}
    return [(section, -best[section][1]) for section, share in shares.items() if share >= least]


def _program(link: str) -> str:
    return link.partition(":")[0].capitalize()


def _neighbours(view: View, title: str, documents: Sequence[StoredDocument]) -> str:
    rows = "".join(
        f'<li><a href="{escape(_to(view, one))}">{escape(_title(one))}</a> <small>{_place(one)}</small></li>'
        for one in documents[:MOST_NEIGHBOURS]
    )
    rest = len(documents) - MOST_NEIGHBOURS
    more = f"<li><small>and {rest:,} more</small></li>" if rest > 0 else ""
    return f"<section><h2>{title}</h2><ul>{rows}{more}</ul></section>"


def _ends(links: Iterable[NoteLink]) -> list[StoredDocument]:
    """The notes at the other ends, each once."""
    return list({one.document.id: one.document for one in links if one.document is not None}.values())


def _chips(index: Index, query: str, response: SearchResponse) -> str:
    """Filters that can be put into the query or taken out of it."""
    filters = _filters(index, [hit.document for hit in response.hits])
    # Those that are on stay, so that they can be taken out, whatever is found.
    known = {written.lower() for written, _ in filters}
    on = {found[0].lower(): found[0] for found in re.finditer(_FILTER, query)}
    filters = [(written, written) for key, written in on.items() if key not in known] + filters
    chips = [_chip(_toggled(query, written), label, is_on=written.lower() in on) for written, label in filters]
    return f'<nav class="chips" aria-label="Filters">{"".join(chips)}</nav>' if chips else ""


def _filters(index: Index, found: Sequence[StoredDocument]) -> list[tuple[str, str]]:
    """What could narrow these notes down: a filter as it is written, and its name."""
    names = [one.name for one in index.indexed_collections()]
    if len(names) > N_COLLECTIONS:
        names = [name for name, _ in Counter(one.collection for one in found).most_common(N_COLLECTIONS)]
    tags = Counter(tag for one in found for tag in one.tags)
    filters = [(filter_text("collection", name), f"in {name}") for name in names if len(names) > 1]
    filters += [(filter_text("tag", tag), f"#{tag}") for tag, _ in tags.most_common(N_TAGS)]
    if any(one.date for one in found):
        filters += [(f'since:"{when}"', when) for when in ("last month", "last year")]
    return filters


def _toggled(query: str, written: str) -> str:
    """The query with a filter, or without it where it has that; of collections and dates there is one at a time."""
    field = written.partition(":")[0]
    is_on = False

    def keep(found: re.Match[str]) -> str:
        nonlocal is_on
        is_it = found[0].lower() == written.lower()
        is_on = is_on or is_it
        return "" if is_it or (field != "tag" and found[1].lower() == field) else found[0]

    rest = " ".join(re.sub(_FILTER, keep, query).split())
    return rest if is_on else f"{rest} {written}".strip()


def _chip(query: str, label: str, *, is_on: bool = False) -> str:
    current = ' aria-current="true"' if is_on else ""
    return f'<a class="chip" href="{escape(View(query).address)}"{current}>{escape(label)}</a>'


def _title(document: StoredDocument) -> str:
    return document.title or document.path


def _place(document: StoredDocument) -> str:
    return escape(f"{document.collection}/{document.path}")


def _date(document: StoredDocument) -> str:
    return f" <time>{'' if document.date else 'changed '}{escape(document.day)}</time>"


def _to(view: View, document: StoredDocument) -> str:
    return replace(view, note=document.uri, line=0).address


def _picture(document: StoredDocument, source: str) -> str:
    return "/page/picture?" + urlencode({"collection": document.collection, "of": document.path, "source": source})
