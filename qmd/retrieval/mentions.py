"""What other notes say of a note that says nothing itself: an empty page, or a template that nobody filled in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from qmd.records import Hit, Mention, StoredDocument
from qmd.store import IndexReader

MAX_STUB_LETTERS = 40
"""Fewer letters of prose than in a short sentence; of Chinese, Japanese and Korean a third of that."""

LEAST_LETTERS = 8
"""Of words beside its links that a line must have to say something."""

_MAX_STUB_CHARACTERS = 2_000
"""A longer text is no stub whatever it holds; most hits are longer, and their texts are not even read."""

_LINKS_SEEN = 20
_MENTION_CHARACTERS = 200
_NO_PROSE = (
    r"(?ms)^(?:```|~~~)[ \t]*(?:dataview\w*|tasks|query|button|toc)\b.*?(?:^(?:```|~~~)[^\n]*$|\Z)"
    r"|^[ \t]*#{1,6}[ \t][^\n]*"
    r"|!?\[\[[^\[\]\n]*\]\]|!?\[[^\[\]\n]*\]\([^()\n]*\)|https?://\S+|#[\w/-]+"
    r"|<!--.*?(?:-->|\Z)|<%.*?(?:%>|\Z)|\{\{.*?(?:\}\}|\Z)|<[^<>\n]*>|^[^\n:]{1,40}:(?::[^\n]*|[ \t]*$)"
)
"""Queries of plug-ins, headings, links, tags, comments, the marks of templates, and fields (`key:: value`). As text:
`re` compiles it when the first short hit asks."""


def with_mentions(reader: IndexReader, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """`hits`, each stub among them with a line of a note that links to it, where there is one."""
    short = [hit.document.hash for hit in hits if hit.document.size <= _MAX_STUB_CHARACTERS]
    texts = reader.texts(short) if short else {}
    stubs = {content_hash for content_hash, text in texts.items() if is_stub(text)}
    return tuple(
        replace(hit, mention=_find_mention(reader, hit.document)) if hit.document.hash in stubs else hit for hit in hits
    )


def is_stub(text: str) -> bool:
    """Whether a note holds too little prose to say anything, beside front matter, headings and links."""
    return _count_letters(text[_body_offset(text) :]) < MAX_STUB_LETTERS


def _count_letters(text: str) -> int:
    prose = re.sub(_NO_PROSE, " ", text)
    return sum(3 if letter >= "\u2e80" else 1 for letter in prose if letter.isalpha())


def _find_mention(reader: IndexReader, document: StoredDocument) -> Mention | None:
    """The line with the most words around its links, among the first links to a note; a mere list of links is none."""
    links = [one for one in reader.links_to(document, _LINKS_SEEN) if not one.link.is_embed]
    sources = reader.documents([one.source for one in links])
    texts = reader.texts([source.hash for source in sources.values()])
    best, most = None, LEAST_LETTERS - 1
    for one in links:
        source = sources.get(one.source)
        text = texts.get(source.hash) if source is not None else None
        if source is None or text is None or one.link.line <= text.count("\n", 0, _body_offset(text)):
            continue
        line = _around(" ".join(text.split("\n")[one.link.line - 1].split()), one.link.target)
        letters = _count_letters(line)
        if letters > most:
            best, most = Mention(source, one.link.line, line), letters
    return best


def _around(line: str, target: str) -> str:
    """`line`, or where it is long the part of it around the link."""
    if len(line) <= _MENTION_CHARACTERS:
        return line
    start = max(min(line.find(target) - _MENTION_CHARACTERS // 2, len(line) - _MENTION_CHARACTERS), 0)
    end = start + _MENTION_CHARACTERS
    return ("..." if start else "") + line[start:end] + ("..." if end < len(line) else "")


def _body_offset(text: str) -> int:
    if not text.startswith(("---", "+++")):
        return 0
    from qmd.ingest.frontmatter import read_front_matter

    return read_front_matter(text).body_offset
