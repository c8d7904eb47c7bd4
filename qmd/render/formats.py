"""Formats of hits and documents for programs.

Programs parse them: keys are added, never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec import Struct, field
from msgspec.structs import replace

from qmd.escapes import LONG_CHARS, address_line, message_line, one_line
from qmd.records import Hit, Passage, Query, SearchResponse, StoredDocument
from qmd.render.text import (
    budget_line,
    continues_line,
    csv_row,
    fence,
    json_text,
    note_lines,
    note_objects,
    number_lines,
    plain_hit,
    quoted,
    round_half_up,
    worth_showing,
    xml_text,
)

if TYPE_CHECKING:
    from qmd.app.records import DocumentText

JSON_SNIPPET_CHARACTERS = 300
SNIPPET_CHARACTERS = 500


class HitOptions(Struct, frozen=True):
    """Display options of hits."""

    index_name: str = "index"
    full: bool = False
    """Show the whole body, which the hits must have, instead of the passage."""
    line_numbers: bool = False
    explain: bool = False
    explain_full: bool = False
    metadata: bool = False
    """Add the front matter of each hit to JSON."""
    shows_all: bool = False
    """Show every hit also without a good match."""
    disk_paths: Mapping[str, str] | None = None
    """With `--full-path`: uri → path on disk, for existing files."""
    empty_note: str = "No results found."
    links: Mapping[str, str] = field(default_factory=dict)
    """Terminal only: uri → target of a click."""
    next_step: tuple[str, str] | None = None
    """Terminal only: command that may help without a good match, and its purpose."""


class Row(Struct, frozen=True):
    """A hit with the identifier and docid to show."""

    hit: Hit
    identifier: str
    docid: str | None


def render_hits(response: SearchResponse, format: str, options: HitOptions) -> str:
    """Render the hits, best first, in one of `FORMATS`."""
    return FORMATS[format].hits(response, options)


def make_rows(response: SearchResponse, options: HitOptions) -> list[Row]:
    """Return the hits with their identifiers: the path on disk if it is known, else the address."""
    rows: list[Row] = []
    for hit in response.hits:
        uri, path = hit.document.uri, (options.disk_paths or {}).get(hit.document.uri)
        address = Row(hit, file_identifier(uri, options.index_name), hit.document.docid)
        rows.append(address if path is None else Row(hit, path, None))
    return rows


def _text_rows(response: SearchResponse, options: HitOptions) -> list[Row]:
    return [Row(plain_hit(one.hit), address_line(one.identifier), one.docid) for one in make_rows(response, options)]


def file_identifier(uri: str, index_name: str) -> str:
    """Return `uri`, with `?index=` if the index is not the default one."""
    return uri if index_name == "index" else f"{uri}?index={quote(index_name, safe='')}"


def display_query(query: Query) -> str:
    """Return the words to find in a passage: the first `lex` sub-query, else the first `vec`, else the text."""
    for kind in ("lex", "vec"):
        for subquery in query.subqueries:
            if subquery.kind == kind:
                return subquery.text
    return query.text


def _snippet_text(passage: Passage, max_characters: int, line_numbers: bool) -> str:
    """Return the passage below its header `@@ -start,count @@ (b before, a after)`.

    Lines have the numbers of the file; the header has none.
    """
    count = passage.end_line - passage.start_line + 1
    header = f"@@ -{passage.start_line},{count} @@ ({passage.lines_before} before, {passage.lines_after} after)"
    return f"{header}\n{_passage_text(passage, max_characters, line_numbers)}"


def _passage_text(passage: Passage, max_characters: int, line_numbers: bool) -> str:
    # A passage at the end of the file has its final line break, which starts no line.
    text = "\n".join(passage.text.split("\n")[: passage.end_line - passage.start_line + 1])
    if len(text) > max_characters:
        text = text[: max_characters - 3] + "..."
    return number_lines(text, passage.start_line, is_exact=True) if line_numbers else text


def plain_passages(hit: Hit, line_numbers: bool) -> str:
    """Return the whole passages of a hit; each but the first after a line `…:12-40`, a range for `get`."""
    marks = ("", *(f"…:{one.start_line}-{one.end_line}\n" for one in hit.all_passages[1:]))
    texts = (_passage_text(one, len(one.text) + 1, line_numbers) for one in hit.all_passages)
    return "\n".join(mark + text for mark, text in zip(marks, texts, strict=True))


def passage_objects(hit: Hit) -> list[dict[str, object]]:
    """Return the whole passages of a hit with their lines."""
    return [{"start_line": one.start_line, "end_line": one.end_line, "text": one.text} for one in hit.all_passages]


def _shown_text(hit: Hit, options: HitOptions, max_characters: int | None = None) -> str:
    """Return the whole text with `--full`, else all passages, or the best one of at most `max_characters`."""
    if options.full:
        body = hit.body or ""
        return number_lines(body, 1, is_exact=True) if options.line_numbers else body
    if max_characters is None:
        return "\n".join(_snippet_text(one, len(one.text) + 1, options.line_numbers) for one in hit.all_passages)
    return _snippet_text(hit.passage, max_characters, options.line_numbers)


def _hit_blocks(response: SearchResponse, options: HitOptions) -> str:
    rows = _text_rows(response if options.shows_all else worth_showing(response), options)
    words = display_query(response.query).lower().split()
    blocks = [_hit_block(row, number, words, options) for number, row in enumerate(rows, start=1)]
    if response.budget is not None:
        blocks.append(budget_line(response.budget, "--cursor {}", "qmd get '{}'") + "\n")
    return "\n\n".join(blocks) or options.empty_note + "\n"


def _hit_block(row: Row, number: int, words: Sequence[str], options: HitOptions) -> str:
    """Render a hit as plain text, which programs parse; see `qmd.render.hit_screen` for terminals."""
    hit = row.hit
    passage_text = hit.passage.text.lower()
    literal = any(word in passage_text for word in words)
    name = f"{row.identifier}:{hit.passage.line}" if literal else row.identifier
    docid = f" {row.docid}" if row.docid else ""
    dated = f"  {hit.document.date}" if hit.document.date else ""
    lines = [f"{name}{docid}{dated}"]
    if hit.document.title:
        lines.append(f"Title: {hit.document.title}")
    if hit.context:
        lines.append(f"Context: {hit.context}")
    if hit.passage.heading_trail:
        lines.append(f"Section: {one_line(' › '.join(hit.passage.heading_trail), LONG_CHARS)}")
    lines.append(f"Score: {int(hit.relevance * 100 + 0.5):>3}%")
    lines += note_lines(hit)
    if options.explain and hit.explanation:
        from qmd.render.explain import explanation_rows

        lines += [one.plain for one in explanation_rows(hit.explanation, number, LONG_CHARS, full=options.explain_full)]
    lines += [f"also in {address_line(file_identifier(uri, options.index_name))}" for uri in hit.also_in]
    lines += ["file not found"] if hit.is_missing else []
    text = _shown_text(hit, options) if options.full else plain_passages(hit, options.line_numbers)
    return "\n".join([*lines, "", text, ""])


def hit_object(row: Row, options: HitOptions) -> dict[str, object]:
    hit, document = row.hit, row.hit.document
    entry: dict[str, object] = {"docid": row.docid} if row.docid else {}
    entry |= {
        "score": round_half_up(hit.relevance),
        "file": row.identifier,
        "line": hit.passage.line,
        "title": document.title,
    }
    if hit.context:
        entry["context"] = hit.written_context or hit.context
    entry["body" if options.full else "snippet"] = _shown_text(hit, options, JSON_SNIPPET_CHARACTERS)
    entry |= note_objects(hit)
    if options.explain and hit.explanation:
        from qmd.render.explain import explain_object

        entry["explain"] = explain_object(hit.explanation)
    entry |= {
        "collection": document.collection,
        "path": document.path,
        "uri": document.uri,
        "start_line": hit.passage.start_line,
        "end_line": hit.passage.end_line,
        "heading_trail": list(hit.passage.heading_trail),
    }
    if not options.full:
        entry["passages"] = passage_objects(hit)
    if hit.also_in:
        entry["also_in"] = list(hit.also_in)
    if options.metadata:
        entry["metadata"] = dict(document.metadata)
    return entry | {"date": document.date} if document.date else entry


def _hit_csv(row: Row, options: HitOptions) -> str:
    hit = row.hit
    head = (row.docid or "", f"{hit.relevance:.4f}", row.identifier, hit.document.title, hit.context or "")
    return csv_row((*head, hit.passage.line, _shown_text(hit, options, SNIPPET_CHARACTERS)))


def _hit_markdown(row: Row, options: HitOptions) -> str:
    hit = row.hit
    lines = ["---", f"# {hit.document.title or row.identifier}", f"**file:** `{row.identifier}`"]
    if row.docid:
        lines.append(f"**docid:** `{row.docid}`")
    if hit.context:
        lines.append(f"**context:** {hit.context}")
    lines += [f"**{line.replace(':', ':**', 1)}" for line in note_lines(hit)]
    lines += [f"**also in:** `{address_line(file_identifier(uri, options.index_name))}`" for uri in hit.also_in]
    return "\n".join([*lines, "", _shown_text(hit, options), "", ""])


def _hit_xml(row: Row, options: HitOptions) -> str:
    hit = row.hit
    attributes = {"docid": row.docid, "name": row.identifier, "title": hit.document.title, "context": hit.context}
    attributes |= {"continues": continues_line(hit.continues)} if hit.continues else {}
    shown = " ".join(f'{key}="{xml_text(value)}"' for key, value in attributes.items() if value)
    return f"\n<file {shown}>\n{xml_text(_shown_text(hit, options))}\n</file>\n"


def _hit_line(row: Row, options: HitOptions) -> str:
    docid, context = None if options.disk_paths is not None else row.hit.document.docid, row.hit.context
    fields = (docid, f"{row.hit.relevance:.2f}", row.identifier, context and quoted(context))
    return ",".join(filter(None, fields)) + "\n"


def _grep_lines(response: SearchResponse, options: HitOptions) -> str:
    from qmd.render.grep import grep_lines

    return grep_lines(response, options.disk_paths or {}, options.shows_all)


class FetchedDocument(Struct, frozen=True):
    """A document of `multi-get`. `skipped` is the reason why `body` is empty, else None."""

    document: StoredDocument
    identifier: str
    context: str | None
    body: str
    skipped: str | None = None
    on_disk: bool = False
    """Whether the identifier is a path on disk, which needs no docid."""

    @property
    def docid(self) -> str | None:
        return None if self.on_disk else self.document.docid


def render_document(header: str, found: DocumentText, line_numbers: bool) -> str:
    """Render a document: header line, context, `---`, and its lines with the numbers of the file.

    A range without lines shows one empty line.
    """
    text = found.text.removesuffix("\n") if found.is_whole else found.text
    folder = f"Folder Context: {one_line(found.context, LONG_CHARS)}\n" if found.context else ""
    return f"{address_line(header)}\n{folder}---\n\n{number_lines(text, found.first_line) if line_numbers else text}\n"


def render_documents(documents: Sequence[FetchedDocument], format: str, line_numbers: bool) -> str:
    if line_numbers:
        number = partial(number_lines, first=1, is_exact=format == "json")
        documents = [one if one.skipped else replace(one, body=number(one.body)) for one in documents]
    render = FORMATS[format].documents
    assert render is not None
    return render(documents)


def _plain_document(one: FetchedDocument) -> FetchedDocument:
    """Return a document for text, with title and context of one line each; its text stays, for scripts."""
    document, context = replace(one.document, title=one_line(one.document.title)), one.context
    context, skipped = context and one_line(context, LONG_CHARS), one.skipped and message_line(one.skipped)
    return replace(one, document=document, identifier=address_line(one.identifier), context=context, skipped=skipped)


def _document_block(one: FetchedDocument) -> str:
    rule = "=" * 60
    name = f"{one.identifier}  {one.docid}" if one.docid else one.identifier
    lines = ["", rule, f"File: {name}", rule, ""]
    if one.context:
        lines += [f"Folder Context: {one.context}", "---", ""]
    lines.append(f"[SKIPPED: {one.skipped}]" if one.skipped else one.body)
    return "\n".join(lines) + "\n"


def _document_object(one: FetchedDocument) -> dict[str, object]:
    entry: dict[str, object] = {"file": one.identifier}
    if one.docid:
        entry["docid"] = one.docid
    entry["title"] = one.document.title
    if one.context:
        entry["context"] = one.context
    entry |= {"skipped": True, "reason": one.skipped} if one.skipped else {"body": one.body}
    return entry | {"collection": one.document.collection, "path": one.document.path, "uri": one.document.uri}


def _document_csv(one: FetchedDocument) -> str:
    head = (one.docid or "", one.identifier, one.document.title, one.context or "")
    return csv_row((*head, "true" if one.skipped else "false", one.skipped or one.body))


def _document_markdown(one: FetchedDocument) -> str:
    title = one.document.title if one.document.title != one.identifier else None
    heads = {"docid": one.docid and f"`{one.docid}`", "Title": title, "Context": one.context}
    lines = [f"## {one.identifier}", ""]
    lines += [line for name, value in heads.items() if value for line in (f"**{name}:** {value}", "")]
    if one.skipped:
        lines += [f"> {one.skipped}", ""]
    else:
        mark = fence(one.body)
        lines += [mark, one.body, mark, ""]
    return "\n".join(lines) + "\n"


def _document_xml(one: FetchedDocument) -> str:
    elements = {"file": one.identifier, "title": one.document.title}
    if one.context:
        elements["context"] = one.context
    if one.skipped:
        elements |= {"skipped": "true", "reason": one.skipped}
    else:
        elements["body"] = one.body
    inner = "".join(f"    <{name}>{xml_text(value)}</{name}>\n" for name, value in elements.items())
    docid = f' docid="{one.docid}"' if one.docid else ""
    return f"  <document{docid}>\n{inner}  </document>\n"


def _document_line(one: FetchedDocument) -> str:
    fields = (one.docid, one.identifier, one.context and quoted(one.context), one.skipped and "[SKIPPED]")
    return ",".join(filter(None, fields)) + "\n"


_Hits = Callable[[SearchResponse, HitOptions], str]
_Documents = Callable[[Sequence[FetchedDocument]], str]


class Format(Struct, frozen=True):
    """A format of hits and documents, or of hits alone, with the default number of hits and length of snippets."""

    hits: _Hits
    documents: _Documents | None = None
    limit: int = 5
    snippet_characters: int = SNIPPET_CHARACTERS


def _each_hit(render: Callable[[Row, HitOptions], str], head: str = "", tail: str = "") -> _Hits:
    return lambda response, options: (
        head + "".join(render(row, options) for row in _text_rows(response, options)) + tail
    )


def _each_document(render: Callable[[FetchedDocument], str], head: str = "", tail: str = "") -> _Documents:
    return lambda documents: head + "".join(render(_plain_document(one)) for one in documents) + tail


FORMATS: Mapping[str, Format] = {
    "cli": Format(_hit_blocks, _each_document(_document_block)),
    "json": Format(
        lambda response, options: json_text([hit_object(row, options) for row in make_rows(response, options)]),
        lambda documents: json_text([_document_object(one) for one in documents]),
        limit=20,
        snippet_characters=JSON_SNIPPET_CHARACTERS,
    ),
    "csv": Format(
        _each_hit(_hit_csv, "docid,score,file,title,context,line,snippet\n"),
        _each_document(_document_csv, "docid,file,title,context,skipped,body\n"),
    ),
    "md": Format(_each_hit(_hit_markdown), _each_document(_document_markdown)),
    # A root element keeps empty output well-formed.
    "xml": Format(
        _each_hit(_hit_xml, "<results>", "</results>\n"),
        _each_document(_document_xml, '<?xml version="1.0" encoding="UTF-8"?>\n<documents>\n', "</documents>\n"),
    ),
    "files": Format(_each_hit(_hit_line), _each_document(_document_line), limit=20),
    "grep": Format(_grep_lines, limit=20),
}
"""Value of `--format` → format."""

DOCUMENT_FORMATS = tuple(name for name, one in FORMATS.items() if one.documents)
