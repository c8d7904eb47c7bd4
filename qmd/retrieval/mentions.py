"""What other notes say of a note that says nothing itself: an empty page, or a template that nobody filled in."""

from __future__ import annotations

import re

from qmd.records import Mention, StoredDocument
from qmd.store.base import IndexReader

MAX_STUB_LETTERS = 40
"""Fewer letters of prose than in a short sentence; of Chinese, Japanese and Korean a third of that."""

LEAST_LETTERS = 8
"""Of words beside its links that a line must have to say something."""

_MAX_STUB_CHARACTERS = 2_000
"""A longer text is no stub whatever it holds; most hits are longer."""

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


def is_stub(text: str) -> bool:
    """Whether a note holds too little prose to say anything, beside front matter, headings and links."""
    return _count_letters(text[_body_offset(text) :]) < MAX_STUB_LETTERS


def _count_letters(text: str) -> int:
    prose = re.sub(_NO_PROSE, " ", text)
    n_letters = sum(map(str.isalpha, prose))
    return n_letters if prose.isascii() else n_letters + 2 * sum(one >= "\u2e80" and one.isalpha() for one in prose)


def find_mention(reader: IndexReader, document: StoredDocument, text: str) -> Mention | None:
    """What another note says of a stub; None for a note that says something itself, or where none says anything.

    The line with the most words around its links, among the first links to the note; a mere list of links is none.
    """
    if document.size > _MAX_STUB_CHARACTERS or not is_stub(text):
        return None
    links = [one for one in reader.links_to(document, _LINKS_SEEN) if not one.link.is_embed]
    sources = reader.documents([one.source for one in links])
    texts = reader.texts([source.hash for source in sources.values()])
    best, most = None, LEAST_LETTERS - 1
    for one in links:
        source = sources.get(one.source)
        its_text = texts.get(source.hash) if source is not None else None
        if source is None or its_text is None or one.link.line <= its_text.count("\n", 0, _body_offset(its_text)):
            continue
        line = _around(" ".join(its_text.split("\n")[one.link.line - 1].split()), one.link.target)
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
