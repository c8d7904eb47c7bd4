"""Query text → terms. Every expression is letters and digits inside double quotes, so no input can break it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from qmd.analysis.identifiers import identifier_parts, symbol_terms
from qmd.analysis.scripts import has_unspaced, marks_as_letters, normalize, unspaced_segments
from qmd.analysis.stopwords import stop_words_of
from qmd.records import LexicalTerm

_TOKEN = re.compile(r"[^\W_]+")
# Separators of query words. All other signs join: - _ . / : @ \ # + $ ' and combining marks.
_WORD = re.compile(r"[^\s,;!?(){}\[\]<>\"|*&%^=~`«»‹›„“”‚‘…、。，！？：；（）「」『』【】《》〈〉・—–¿¡]+")
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
# Kept as text: `re` compiles it on first use, and a plain search never needs it; so with the endings below.
_JOINER = r"[-_./:@\\#+$'’]+"
_VERSION = r"(?i)v?(\d+(?:\.\d+)+)\Z"
_LEX_ITEM = r'(?P<sign>[+-]?)(?:"(?P<phrase>[^"]*)(?:"|\Z)|(?P<word>[^\s"]+))'
_OPERATORS = r'(?:^|\s)[+-]?"[^"]*[^\W_][^"]*"|(?:^|\s)[+-][^\W\d_][\w.]|(?:^|\s)[^\W_]{2,}\*(?=\s|$)'
_OPERATOR_SIGNS = frozenset('"+-*')
_IDENTIFIER = (
    r"\w*[a-z0-9][A-Z]\w*|\w+_\w*|_\w+|[A-Z]{1,5}-?\d{2,}\w*|\w+(?:::|\.|/|->|\\)[\w./:\\-]+|--?[A-Za-z][\w-]+"
    r"|[\w.:]+\(\)|0x[0-9a-fA-F]+|\.?[\w-]+\.\w{1,5}"
)
# Endings of Russian and Ukrainian words, longest first; the rest is searched as a prefix.
_CYRILLIC = r"[\u0400-\u04ff]{5,}\Z"
_CYRILLIC_ENDING = (
    r"(?:иями|ями|ами|ого|его|ому|ему|ыми|ими|иях|иям|ией|ение|ения|ению|ать|ять|ить|еть|ует|ает|яет|ются|ется|ться|ов|ев|ей|ой"
    r"|ий|ый|ая|яя|ое|ее|ые|ие|ую|юю|ых|их|ым|им|ом|ем|ам|ям|ах|ях|ии|ия|ию|іі|ії|а|я|о|е|ы|и|у|ю|ь|й|і|ї)\Z"
)
_MIN_STEM = 4
_JOINED = r"[^\W\d_]+(?:-[^\W\d_]+)+"

LONG_QUERY = 5
"""Query length from which a hyphenated word is searched by its parts alone: there its phrase counts one idea twice.
nDCG@10 on cranfield: BM25 .535 instead of .529, hybrid .571 instead of .569; nlcmd: hybrid .444 instead of .443; cacm:
BM25 .473 instead of .476, hybrid .518 instead of .519."""


class _Word(Struct, frozen=True):
    """A query word. `main` is its own expression; `others` find its parts."""

    main: LexicalTerm
    others: tuple[LexicalTerm, ...] = ()
    is_joined: bool = False
    """True for plain words with hyphens between them (`high-speed`), which are not the name of a thing."""

    def terms(self, *, is_long: bool) -> tuple[LexicalTerm, ...]:
        if is_long and self.is_joined and self.others:
            return self.others
        return (self.main, *(replace(other, is_part=True) for other in self.others))


def analyze_query(text: str) -> tuple[LexicalTerm, ...]:
    """Return the optional terms of a plain-language query, each once, in order; operators are not parsed.

    Skips stop words of the query's language unless nothing else remains. Identifiers give a phrase and their parts;
    scripts without spaces one term per pair or triple of characters. Empty if `text` has no letter or digit.
    """
    words = list(_split_words(text))
    stop = stop_words_of([word.main.text for word in words])
    kept = [word for word in words if word.main.text not in stop] or words
    return _drop_duplicates(term for word in kept for term in word.terms(is_long=len(kept) >= LONG_QUERY))


def parse_lex(text: str) -> tuple[LexicalTerm, ...]:
    """Parse a lex query: plain words optional, `"phrase"` and `+word` required, `-word` and `-"phrase"` excluded.

    `word*` is a prefix search. An open quote ends with the text. The result may contain only excluded terms.
    """
    plain: list[str] = []
    marked: list[LexicalTerm] = []
    for match in re.finditer(_LEX_ITEM, text):
        sign, phrase, word = match["sign"], match["phrase"], match["word"]
        if phrase is not None:
            if (term := _phrase_term(phrase)) is not None:
                marked.append(replace(term, required=sign != "-", excluded=sign == "-"))
        elif sign and word[0] not in "+-":
            marked.extend(_marked_terms(word, excluded=sign == "-"))
        elif word.endswith("*"):
            marked.extend(_prefix_terms(word))
        else:
            plain.append(word)
    optional = [term for term in marked if not (term.required or term.excluded)]
    decided = [term for term in marked if term.required or term.excluded]
    return _drop_duplicates((*analyze_query(" ".join(plain)), *optional, *decided))


def prefix_form(term: LexicalTerm) -> LexicalTerm | None:
    """Return `term` as a prefix search (`auth` finds `authentication`); None unless it has three letters."""
    match = re.fullmatch(r'"([^\W_]{3,})"', term.fts)
    return replace(term, fts=f"{term.fts}*") if match and not has_unspaced(match[1]) else None


def has_user_operators(text: str) -> bool:
    """Return whether `text` uses the lexical syntax: a quoted phrase, `+word`, `-word` or `word*`."""
    return not _OPERATOR_SIGNS.isdisjoint(text) and re.search(_OPERATORS, text) is not None


def is_identifier_like(text: str) -> bool:
    """Return whether all of one to three words look like code: `getUserName`, `std::vector`, `C2065`, `--flag`."""
    words = text.split()
    return 0 < len(words) <= 3 and all(re.fullmatch(_IDENTIFIER, word) for word in words)


def _drop_duplicates(terms: Iterable[LexicalTerm]) -> tuple[LexicalTerm, ...]:
    found: dict[tuple[str, bool, bool], LexicalTerm] = {}
    for term in terms:
        found.setdefault((term.fts, term.required, term.excluded), term)
    return tuple(found.values())


def _split_words(text: str) -> Iterator[_Word]:
    for match in _WORD.finditer(text):
        symbols = symbol_terms(match[0])
        for symbol in symbols:
            yield _Word(LexicalTerm(match[0], _quote(symbol)))
        if symbols and _is_symbol_name(match[0]):
            continue
        for piece, length in unspaced_segments(normalize(match[0])):
            if not length:
                yield from _split_plain(piece)
                continue
            for at in range(max(len(piece) - length, 0) + 1):
                group = piece[at : at + length]
                yield _Word(LexicalTerm(group, _quote(marks_as_letters(group)) + "*" * (len(piece) < length)))


def _is_symbol_name(raw: str) -> bool:
    """Return whether the word is a name like `C++` or `.NET`, whose letters alone mean something else."""
    return sum(map(str.isalnum, raw)) == 1 or raw.lower().strip("/:@$'-") in (".net", ".net.")


def _split_plain(raw: str) -> Iterator[_Word]:
    """Split a piece of a script with spaces into words: one, or the halves of an elision (`l'homme`, `what's`)."""
    halves = _APOSTROPHE.split(raw)
    if len(halves) > 1:
        for half in halves:
            if sum(map(str.isalnum, half)) > 1:
                yield from _split_plain(half)
        return
    if tokens := _TOKEN.findall(raw):
        yield _read_token(tokens[0]) if len(tokens) == 1 else _join_tokens(raw, tokens)


def _read_token(token: str) -> _Word:
    lower = token.lower()
    parts = identifier_parts(token) if token.isascii() else ()
    others = tuple(LexicalTerm(part, _quote(part)) for part in parts if len(part) > 1)
    return _Word(LexicalTerm(lower, _quote_stem(lower)), others)


def _quote_stem(word: str) -> str:
    """Quote a word; cut the ending of an inflected Cyrillic word, as `porter` knows only English."""
    if not word.isascii() and re.match(_CYRILLIC, word):
        stem = re.sub(_CYRILLIC_ENDING, "", word)
        if len(stem) >= _MIN_STEM:
            return f"{_quote(stem)}*"
    return _quote(word)


def _join_tokens(raw: str, tokens: list[str]) -> _Word:
    """Return a word with inner symbols: the phrase of its tokens, and its meaningful parts."""
    text = raw.strip("-_./:@\\#+$'’").lower()
    phrase = _quote(" ".join(tokens).lower())
    if version := re.match(_VERSION, text):
        digits = version[1].replace(".", " ")
        return _Word(LexicalTerm(text, f'("{digits}" OR "v{digits}")'))
    parts: dict[str, LexicalTerm] = {}
    if re.search(_JOINER, text):
        for token in tokens:
            for part in (token.lower(), *identifier_parts(token)):
                if len(part) > 1 and not part.isdigit():
                    parts.setdefault(part, LexicalTerm(part, _quote_stem(part)))
        for stop in stop_words_of(list(parts)):
            del parts[stop]
    return _Word(LexicalTerm(text, phrase), tuple(parts.values()), is_joined=re.fullmatch(_JOINED, raw) is not None)


def _quote(text: str) -> str:
    return f'"{text}"'


def _phrase_term(text: str) -> LexicalTerm | None:
    """Return the words of `text` in sequence, unspaced runs as groups; None without a letter or digit."""
    tokens: list[str] = []
    n_last, only_start = 0, False
    for piece, length in unspaced_segments(normalize(text)):
        if length:
            tokens.extend(marks_as_letters(piece[at : at + length]) for at in range(len(piece)))
            n_last, only_start = min(length, len(piece)) - 1, len(tokens) == len(piece) < length
        elif found := _TOKEN.findall(piece):
            tokens.extend(token.lower() for token in found)
            n_last, only_start = 0, False
    if not tokens:
        return None
    # The text may go on where the phrase ends.
    tokens = tokens[: len(tokens) - n_last]
    return LexicalTerm(" ".join(text.split()), _quote(" ".join(tokens)) + ("*" if only_start else ""))


def _marked_terms(raw: str, *, excluded: bool) -> list[LexicalTerm]:
    """Return the terms of a `+` or `-` word without its parts, which would require or exclude too much."""
    symbols = symbol_terms(raw)
    terms: Iterable[LexicalTerm]
    if symbols and _is_symbol_name(raw):
        terms = [LexicalTerm(raw, _quote(symbols[0]))]
    elif raw.endswith("*"):
        terms = _prefix_terms(raw)
    elif has_unspaced(raw) or _APOSTROPHE.search(raw):
        phrase = _phrase_term(raw)
        terms = [phrase] if phrase else []
    else:
        terms = [word.main for match in _WORD.finditer(raw) for word in _split_plain(normalize(match[0]))]
    return [replace(term, required=not excluded, excluded=excluded) for term in terms]


def _prefix_terms(raw: str) -> list[LexicalTerm]:
    phrase = _phrase_term(raw)
    return [LexicalTerm(raw, phrase.fts.removesuffix("*") + "*")] if phrase else []
