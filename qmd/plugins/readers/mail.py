"""A mail → its text, with subject, people and time as front matter, and the names of its attachments."""

from __future__ import annotations

import re
from contextlib import suppress
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from math import inf

from qmd.plugins.readers.markup import escape, front_matter, read_page
from qmd.plugins.readers.texts import Decoded, decode_as, join_parts, one_line

_FIELD = re.compile(
    r"(?mi)^(subject|from|to|cc|date|content-(?:type|disposition|transfer-encoding)):([^\n]*+(?:\n[ \t][^\n]*+)*+)"
)
_MOST_OF_FIELDS, _MOST_OF_FIELD, _MOST_PARTS, _DEEPEST = 65_536, 2_000, 1_000, 8
"""Bytes and characters; number of parts read, and their depth: each level scans all of them again."""


def read_mail(path: str, raw: bytes) -> Decoded:
    """Return a mail as markdown: its plain text, else its HTML."""
    parts, attached, warnings = list[str](), list[str](), dict[str, None]()
    # Content, remaining depth, and the number of texts beyond which another form of it has been read.
    todo: list[tuple[bytes, int, float]] = [(raw, _DEEPEST, inf)]
    n_parts = 0
    while todo:
        raw, deepest, enough = todo.pop()
        n_parts += 1
        if deepest == 0 or n_parts > _MOST_PARTS:
            warnings["skipped parts that are nested too deeply or follow too many others"] = None
        if deepest == 0 or n_parts > _MOST_PARTS or len(parts) > enough:
            continue
        part, body = _parse_part(raw)
        subject = [f"**{escape(_decode(part['subject']))}**"] * ("subject" in part)
        parts += [_front_matter(part)] if n_parts == 1 else subject
        kind, name = part.get_content_type(), _decode(part.get_filename())
        if kind == "message/rfc822" or kind.startswith("multipart/"):
            enough = len(parts) if kind == "multipart/alternative" else inf
            todo += [(piece, deepest - 1, enough) for piece in _split_parts(body, part.get_boundary())[::-1]]
        elif name or kind not in ("text/plain", "text/html"):
            attached += [name] * bool(name)
        else:
            text, broken = decode_as(path, body, str(part.get_content_charset("")))
            text = (read_page(text)[1] if kind == "text/html" else text).strip("\r\n")
            parts += [text] * bool(text.strip())
            warnings |= dict.fromkeys(broken)
    named = f"Attached: {escape(', '.join(attached))}" * bool(attached)
    return join_parts([*parts, named], tuple(warnings))


def _front_matter(head: Message) -> str:
    fields = {name: _decode(head[name]) for name in ("from", "to", "cc", "date")}
    with suppress(ValueError, TypeError, OverflowError):
        fields["date"] = f"{parsedate_to_datetime(fields['date']):%Y-%m-%d %H:%M}"
    return front_matter(_decode(head["subject"]), **fields)


def _parse_part(raw: bytes) -> tuple[Message, bytes]:
    """Return the relevant fields of a part, and its content."""
    blank = re.search(rb"(?:\A|\n)\r?\n", raw)
    end, start = blank.span() if blank is not None else (len(raw), len(raw))
    part = Message()
    for name, value in _FIELD.findall(raw[: min(end, _MOST_OF_FIELDS)].decode("utf-8", "replace")):
        if name not in part:
            part[name] = " ".join(value[:_MOST_OF_FIELD].split())
    part.set_payload(raw[start:].decode("ascii", "surrogateescape"))
    content = part.get_payload(decode=True)
    return part, content if isinstance(content, bytes) else b""


def _split_parts(raw: bytes, boundary: str | None) -> list[bytes]:
    """Split a part at the lines of its boundary."""
    if not boundary:
        return [raw]
    mark = rb"(?:\A|\r?\n)--" + re.escape(boundary.encode())
    whole = re.split(mark + b"--", raw, maxsplit=1)[0]
    return re.split(mark + rb"[ \t]*+\r?(?:\n|\Z)", whole, maxsplit=_MOST_PARTS)[1:]


def _decode(field: str | None) -> str:
    """Decode the encoded words of a field where possible."""
    with suppress(LookupError, ValueError, MessageError):
        field = str(make_header(decode_header(field or "")))
    return one_line(field or "")
