"""The operators of a plain query: `"a phrase"` and `+word` are required, `-word` is excluded."""

from __future__ import annotations

import re

from qmd.analysis.query import has_user_operators
from qmd.analysis.stopwords import stop_words_of
from qmd.retrieval.trace import Trace

SENTENCE_WORDS = 5
"""Words without an operator from which a query with a stop word is a sentence."""

PASSAGE_WORDS = 25
"""Words without an operator from which a query is a pasted text, in which no quotation is required: hybrid nDCG@10 on
the long requests of cacm falls from .525 to .519 when it is one."""

_WITH_OPERATOR = re.compile(r'[+-]?"[^"]*"|(?<!\S)[+-]\S+')
_PLAIN_WORD = re.compile(r"[^\W_]+")
_QUOTED = re.compile(r'(?<![\w"])([+-]?)"([^"]*)"(?!\w)')
_SIGNED = re.compile(r"(?<!\S)([+-])(?=([^\W\d_][\w.-]+)?)\S*")


def lex_operators(text: str, trace: Trace) -> str | None:
    """`text` as a lex query when it has operators, else None.

    In a sentence only what cannot be punctuation is an operator: a quoted phrase of two words or more, `+word` and
    `-word`. One word or a command with its options in quotes is cited there, not required: requiring these as well took
    BM25 from .328 to .309 nDCG@10 on shell questions. Dashes between words and inside them are never operators.
    """
    if not has_user_operators(text):
        return None
    words = _PLAIN_WORD.findall(_WITH_OPERATOR.sub(" ", text).lower())
    if len(words) < SENTENCE_WORDS or not stop_words_of(words):
        return text
    if len(words) >= PASSAGE_WORDS:
        trace.warn("in a text this long, quotes and signs are plain text; write a 'lex:' line to use them")
        return None
    pieces: list[str] = []
    position = 0
    cited = False
    for match in _QUOTED.finditer(text):
        pieces.append(_without_punctuation(text[position : match.start()], trace))
        quoted = match[2].split()
        is_operator = bool(match[1]) or (len(quoted) > 1 and not any(word.startswith("-") for word in quoted))
        cited = cited or not is_operator
        pieces.append(match[0] if is_operator else f" {match[2]} ")
        position = match.end()
    pieces.append(_without_punctuation(text[position:], trace))
    if cited:
        trace.warn(
            "the quotes are read as a quotation in a sentence, their words are not required; '+\"…\"' requires it"
        )
    kept = "".join(pieces)
    return kept if has_user_operators(kept) else None


def _without_punctuation(text: str, trace: Trace) -> str:
    """`text` outside quotes with the signs of `+word` and `-word` kept and all other signs and quotes blank."""

    def keep(match: re.Match[str]) -> str:
        if match[2] is None:
            return match[0].lstrip("+-")
        if match[1] == "-":
            trace.warn(f"documents with '{match[2]}' are left out because of '{match[0]}'")
        return match[0]

    return _SIGNED.sub(keep, text.replace('"', " "))
