"""Search results in six formats. Programs parse these: keys are added, never renamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import quote

from msgspec import Struct, field

from qmd.records import Hit, Mention, Query, SearchResponse
from qmd.render.explain import explain_lines, explain_object
from qmd.render.text import closest_line, csv_row, json_text, number_lines, quoted, round_half_up, xml_text

Format = Literal["cli", "json", "csv", "md", "xml", "files"]
FORMATS: tuple[Format, ...] = ("cli", "json", "csv", "md", "xml", "files")

JSON_SNIPPET_CHARACTERS = 300
SNIPPET_CHARACTERS = 500
LEAST_SHOWN = 0.01
"""Relevance below which the closest hit is not worth a line."""


def snippet_characters(format: Format) -> int:
    """Longest passage that a format shows, in code points."""
    return JSON_SNIPPET_CHARACTERS if format == "json" else SNIPPET_CHARACTERS


class HitOptions(Struct, frozen=True):
    """How hits are shown."""

    index_name: str = "index"
    full: bool = False
    """Whole body in place of the passage; hits must carry it."""
    line_numbers: bool = False
    explain: bool = False
    disk_paths: Mapping[str, str] | None = None
    """With `--full-path`: uri → path on disk, for the files that exist."""
    empty_note: str = "No results found."
    links: Mapping[str, str] = field(default_factory=dict)
    """Terminal only: uri → the address that a click opens."""
    next_step: tuple[str, str] | None = None
    """Terminal only: the command that may help where nothing matches well, and what it does."""


class Row(Struct, frozen=True):
    """One hit with its display decisions made."""

    hit: Hit
    identifier: str
    docid: str | None


def render_hits(response: SearchResponse, format: Format, options: HitOptions) -> str:
    """Every hit of `response`, best first; the empty form of the format when there is none.

    People are shown one line of a list in which nothing matches well, unless they want the explanation.
    """
    rows = make_rows(response, options)
    if format == "cli" and response.verdict == "none" and not options.explain:
        is_near = bool(rows) and rows[0].hit.relevance >= LEAST_SHOWN
        return (closest_line(rows[0].hit, rows[0].identifier) if is_near else options.empty_note) + "\n"
    if format == "cli":
        words = display_query(response.query).lower().split()
        return "\n\n".join(_cli(row, words, options) for row in rows) or options.empty_note + "\n"
    if format == "json":
        return json_text([_json(row, options) for row in rows])
    if format == "csv":
        return "docid,score,file,title,context,line,snippet\n" + "".join(_csv(row, options) for row in rows)
    if format == "xml":
        # A root element makes the output one well-formed document, the empty one included.
        return "<results>" + "".join("\n" + _xml(row, options) for row in rows) + "</results>\n"
    render_row = _md if format == "md" else _files
    return "".join(render_row(row, options) for row in rows)


def make_rows(response: SearchResponse, options: HitOptions) -> list[Row]:
    """Every hit under the name that it is shown with."""
    return [_row(hit, options) for hit in response.hits]


def file_identifier(uri: str, index_name: str) -> str:
    """`uri`, with `?index=` when the index is not the default one."""
    return uri if index_name == "index" else f"{uri}?index={quote(index_name, safe='')}"


def display_query(query: Query) -> str:
    """The words a person looks for in a passage: the first `lex` sub-query, else the first `vec`, else the text."""
    for kind in ("lex", "vec"):
        for subquery in query.subqueries:
            if subquery.kind == kind:
                return subquery.text
    return query.text


def snippet_text(hit: Hit, max_characters: int, line_numbers: bool) -> str:
    """The passage under its header `@@ -start,count @@ (b before, a after)`.

    Line numbers are those of the source file; the header, which is no line of it, has none.
    """
    passage = hit.passage
    count = passage.end_line - passage.start_line + 1
    # A passage that reaches the end of the file ends with the file's last line break, which begins no line.
    text = "\n".join(passage.text.split("\n")[:count])
    if len(text) > max_characters:
        text = text[: max_characters - 3] + "..."
    if line_numbers:
        text = number_lines(text, passage.start_line)
    header = f"@@ -{passage.start_line},{count} @@ ({passage.lines_before} before, {passage.lines_after} after)"
    return f"{header}\n{text}"


def mention_object(mention: Mention) -> dict[str, object]:
    """Where another note speaks of a hit that says nothing itself."""
    return {"file": mention.document.uri, "line": mention.line, "text": mention.text}


def _row(hit: Hit, options: HitOptions) -> Row:
    uri = hit.document.uri
    if options.disk_paths and uri in options.disk_paths:
        return Row(hit, options.disk_paths[uri], None)
    return Row(hit, file_identifier(uri, options.index_name), hit.document.docid)


def _shown_text(hit: Hit, options: HitOptions, max_characters: int = SNIPPET_CHARACTERS) -> str:
    if not options.full:
        return snippet_text(hit, max_characters, options.line_numbers)
    body = hit.body or ""
    return number_lines(body, 1) if options.line_numbers else body


def _json(row: Row, options: HitOptions) -> dict[str, object]:
    hit, document = row.hit, row.hit.document
    entry: dict[str, object] = {"docid": row.docid} if row.docid else {}
    entry |= {
        "score": round_half_up(hit.relevance),
        "file": row.identifier,
        "line": hit.passage.line,
        "title": document.title,
    }
    if hit.context:
        entry["context"] = hit.context
    entry["body" if options.full else "snippet"] = _shown_text(hit, options, JSON_SNIPPET_CHARACTERS)
    if hit.mention:
        entry["mention"] = mention_object(hit.mention)
    if options.explain and hit.explanation:
        entry["explain"] = explain_object(hit.explanation)
    entry |= {
        "collection": document.collection,
        "path": document.path,
        "uri": document.uri,
        "start_line": hit.passage.start_line,
        "end_line": hit.passage.end_line,
        "heading_trail": list(hit.passage.heading_trail),
    }
    if hit.also_in:
        entry["also_in"] = list(hit.also_in)
    return entry | {"date": document.date} if document.date else entry


def _csv(row: Row, options: HitOptions) -> str:
    hit = row.hit
    head = (row.docid or "", f"{hit.relevance:.4f}", row.identifier, hit.document.title, hit.context or "")
    return csv_row((*head, hit.passage.line, _shown_text(hit, options)))


def _files(row: Row, options: HitOptions) -> str:
    fields = [f"{row.hit.relevance:.2f}", row.identifier]
    if options.disk_paths is None:
        fields.insert(0, row.hit.document.docid)
    if row.hit.context:
        fields.append(quoted(row.hit.context))
    return ",".join(fields) + "\n"


def _md(row: Row, options: HitOptions) -> str:
    hit = row.hit
    lines = ["---", f"# {hit.document.title or row.identifier}", f"**file:** `{row.identifier}`"]
    if row.docid:
        lines.append(f"**docid:** `{row.docid}`")
    if hit.context:
        lines.append(f"**context:** {hit.context}")
    lines += [f"**also in:** `{file_identifier(uri, options.index_name)}`" for uri in hit.also_in]
    return "\n".join([*lines, "", _shown_text(hit, options), "", ""])


def _xml(row: Row, options: HitOptions) -> str:
    hit = row.hit
    attributes = {"docid": row.docid, "name": row.identifier, "title": hit.document.title, "context": hit.context}
    shown = " ".join(f'{key}="{xml_text(value)}"' for key, value in attributes.items() if value)
    # A literal line break in an attribute is read back as a space.
    shown = shown.replace("\n", "&#10;")
    return f"<file {shown}>\n{xml_text(_shown_text(hit, options))}\n</file>\n"


def _cli(row: Row, words: Sequence[str], options: HitOptions) -> str:
    """The plain form, which programs parse; people are drawn another one, see `hit_screen`."""
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
        lines.append(f"Section: {' › '.join(hit.passage.heading_trail)}")
    lines.append(f"Score: {int(hit.relevance * 100 + 0.5):>3}%")
    if hit.mention:
        lines.append(f"Mentioned: {hit.mention.document.uri}:{hit.mention.line}  {hit.mention.text}")
    if options.explain and hit.explanation:
        lines += explain_lines(hit.explanation)
    lines += [f"also in {file_identifier(uri, options.index_name)}" for uri in hit.also_in]
    return "\n".join([*lines, "", _shown_text(hit, options), ""])
