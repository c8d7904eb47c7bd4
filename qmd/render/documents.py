"""Fetched documents: one with `get`, several with `multi-get`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from qmd.app.records import DocumentText
from qmd.records import StoredDocument
from qmd.render.hits import Format
from qmd.render.text import csv_row, fence, json_text, number_lines, quoted, xml_text


class FetchedDocument(Struct, frozen=True):
    """A document of `multi-get`. `skipped` is the reason why `body` is empty, else None."""

    document: StoredDocument
    identifier: str
    context: str | None
    body: str
    skipped: str | None = None
    on_disk: bool = False
    """The identifier is a path on disk; a docid beside it would only be a second name."""

    @property
    def docid(self) -> str | None:
        """The docid as far as it is shown."""
        return None if self.on_disk else self.document.docid


def render_document(header: str, found: DocumentText, line_numbers: bool) -> str:
    """One document: header line, context, `---`, and its lines, numbered as in the file.

    A range that holds no line shows one empty line.
    """
    text = found.text.removesuffix("\n") if found.is_whole else found.text
    folder = f"Folder Context: {found.context}\n" if found.context else ""
    return f"{header}\n{folder}---\n\n{number_lines(text, found.first_line) if line_numbers else text}\n"


def render_documents(documents: Sequence[FetchedDocument], format: Format, line_numbers: bool) -> str:
    """Several documents in one of the six formats."""
    shown = [
        replace(one, body=number_lines(one.body, 1)) if line_numbers and not one.skipped else one for one in documents
    ]
    if format == "json":
        return json_text([_json(one) for one in shown])
    if format == "csv":
        return "docid,file,title,context,skipped,body\n" + "".join(_csv(one) for one in shown)
    if format == "xml":
        body = "".join(_xml(one) for one in shown)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n<documents>\n{body}</documents>\n'
    render_one = {"files": _files, "md": _md}.get(format, _cli)
    return "".join(render_one(one) for one in shown)


def _json(one: FetchedDocument) -> dict[str, object]:
    entry: dict[str, object] = {"file": one.identifier}
    if one.docid:
        entry["docid"] = one.docid
    entry["title"] = one.document.title
    if one.context:
        entry["context"] = one.context
    entry |= {"skipped": True, "reason": one.skipped} if one.skipped else {"body": one.body}
    return entry | {"collection": one.document.collection, "path": one.document.path, "uri": one.document.uri}


def _csv(one: FetchedDocument) -> str:
    head = (one.docid or "", one.identifier, one.document.title, one.context or "")
    return csv_row((*head, "true" if one.skipped else "false", one.skipped or one.body))


def _files(one: FetchedDocument) -> str:
    fields = [one.docid, one.identifier] if one.docid else [one.identifier]
    if one.context:
        fields.append(quoted(one.context))
    if one.skipped:
        fields.append("[SKIPPED]")
    return ",".join(fields) + "\n"


def _md(one: FetchedDocument) -> str:
    lines = [f"## {one.identifier}", ""]
    if one.docid:
        lines += [f"**docid:** `{one.docid}`", ""]
    if one.document.title and one.document.title != one.identifier:
        lines += [f"**Title:** {one.document.title}", ""]
    if one.context:
        lines += [f"**Context:** {one.context}", ""]
    if one.skipped:
        lines += [f"> {one.skipped}", ""]
    else:
        mark = fence(one.body)
        lines += [mark, one.body, mark, ""]
    return "\n".join(lines) + "\n"


def _xml(one: FetchedDocument) -> str:
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


def _cli(one: FetchedDocument) -> str:
    rule = "=" * 60
    name = f"{one.identifier}  {one.docid}" if one.docid else one.identifier
    lines = ["", rule, f"File: {name}", rule, ""]
    if one.context:
        lines += [f"Folder Context: {one.context}", "---", ""]
    lines.append(f"[SKIPPED: {one.skipped}]" if one.skipped else one.body)
    return "\n".join(lines) + "\n"
