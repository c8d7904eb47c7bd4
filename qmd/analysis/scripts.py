"""Normal forms and scripts of text that is not plain ASCII, for index and query alike."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

_PAIRED = (
    "\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff\uff66-\uff9f\uffa1-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Regex class of Han, Hiragana, Katakana (with the prolonged sound mark), Bopomofo and Hangul, indexed as pairs."""

_TRIPLED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecf\u0edc-\u0edf\u0f00\u0f0b\u0f18\u0f19\u0f35-\u0f39\u0f40-\u0fbc"
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d\u1780-\u17d3\u17d7\u17dc\u17dd\ua000-\ua3ff\uaa60-\uaa7f"
)
"""Regex class of Thai, Lao, Tibetan, Burmese and Khmer, and of the letters for their marks, indexed as triples.
First by words on the 1,190 Thai questions of XQuAD: pairs .887, pairs of letters with their marks .927, triples .934.
"""

# First bytes in UTF-8 of scripts up to U+1FFF and of typographic signs, and of Chinese, Japanese or Korean; first bytes
# in UTF-16 of Thai and Lao, Tibetan, Burmese, Hangul letters, and Khmer.
_NEAR, _HAN, _BLOCKS = bytes(range(0xE3)), bytes(range(0xE5, 0xEA)), b"\x0e\x0f\x10\x11\x17"
_UNSPACED = f"[{_PAIRED}{_TRIPLED}]"
_RUN = f"([{_PAIRED}]+|[{_TRIPLED}]+)"
"""Kept as text: `re` compiles it, for 3 ms, on first use, and most searches never need it."""

_MARK = rf"(?!\w)[{_TRIPLED}]"
_BREAK = rf"[\u200b-\u200d\u2060](?:(?=[{_TRIPLED}])|(?<=[{_TRIPLED}].))"
"""Signs without width, which some writers set between words."""

_MARK_RUN = re.compile(r"[^\0-\x7f\w]{64,}")
_SAMPLED_RUN = re.compile(r"[^\0-\x7f\w]{4}")
"""Such a run among every sixteenth character, which are searched first."""

_NFKC_SIGNS = [(sign, unicodedata.normalize("NFKC", sign)) for sign in "\u00a0…（），：；？！"] + [("\u00ad", "")]
"""Soft hyphens and the common signs that NFKC changes: texts without them are usually in that form."""

_LETTER = re.compile(r"[^\W\d_]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_LATIN_ACCENTS = "(?<=[a-z])[\u0300-\u036f]+"
_ACCENTED_LATIN = "[\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff]"


def has_unspaced(text: str) -> bool:
    """Return whether `text` contains a character of a script without spaces between words, or of Korean."""
    raw = b"" if text.isascii() else text.encode("utf-8", "replace")
    # A Han character decides without the whole class; emoji and their colour modifiers are not of it.
    far = raw.translate(None, _NEAR)
    if any(map(far.__contains__, _HAN)):
        return True
    far = far and raw.replace(b"\xf0\x9f", b"").replace(b"\xef\xb8", b"").translate(None, _NEAR)
    if not far and (b"\xe0" in raw or b"\xe1" in raw):
        blocks = text.encode("utf-16-be", "surrogatepass")[::2]
        far = blocks if any(map(blocks.__contains__, _BLOCKS)) else b""
    return far != b"" and re.search(_UNSPACED, text) is not None


def script_of(letter: str) -> str | None:
    """Return the script of a letter as the first word of its Unicode name (`LATIN`, `CJK`); None for a non-letter."""
    return unicodedata.name(letter, "UNKNOWN").split()[0] if letter.isalpha() else None


def unspaced_share(text: str) -> float:
    """Return the share of characters as of `has_unspaced` among the letters of `text`, in [0, 1]; 0 without letters."""
    n_unspaced = sum(map(len, re.findall(_RUN, text))) if has_unspaced(text) else 0
    return n_unspaced / max(len(_LETTER.findall(text)), n_unspaced, 1)


def without_accents(text: str) -> str:
    """Remove accents from `text`; in scripts without spaces they make other letters."""
    return text if text.isascii() or has_unspaced(text) else _ACCENTS.sub("", normal_form("NFD", text))


def without_latin_accents(text: str) -> str:
    """Remove from a normal form the accents that full-text search ignores: on Latin letters, not that of `й`."""
    if text.isascii() or not re.search(_ACCENTED_LATIN, text):
        return text
    return _ACCENTS.sub("", normal_form("NFC", re.sub(_LATIN_ACCENTS, "", normal_form("NFD", text))))


def normalize(text: str) -> str:
    """Apply NFKC and case folding, drop soft hyphens and lone surrogates; return ASCII unchanged.

    FTS5 lower-cases by itself but knows neither full-width forms nor `ß` = `ss`; it treats a soft hyphen as a border
    and cannot store half a surrogate pair.
    """
    if text.isascii():
        return text
    for sign, plain in _NFKC_SIGNS:
        text = text.replace(sign, plain)
    return normal_form("NFKC", text).casefold().encode("utf-8", "replace").decode("utf-8")


def normal_form(form: Literal["NFKC", "NFC", "NFD"], text: str) -> str:
    """Convert `text` to a Unicode normal form in time proportional to its length.

    Python sorts the marks on one letter by insertion: 80,000 of them would take 14 seconds. No letter of any language
    has more than a dozen, so spaces divide longer runs of non-letters.
    """
    if not text.isascii() and _SAMPLED_RUN.search(text[::16]):
        text = _MARK_RUN.sub(_part_run, text)
    return unicodedata.normalize(form, text)


def _part_run(match: re.Match[str]) -> str:
    run = match[0]
    return " ".join(run[first : first + 64] for first in range(0, len(run), 64))


def marks_as_letters(text: str) -> str:
    """Replace the marks of scripts without spaces, which full-text search drops, by Yi letters; drop zero widths.

    Any letters would do: two marks with the same one belong to different scripts.
    """
    if not has_unspaced(text):
        return text
    return re.sub(_MARK, lambda mark: chr(0xA000 + (ord(mark[0]) & 0x3FF)), re.sub(_BREAK, "", text))


def _group_length(run: str) -> int:
    return 2 if re.match(f"[{_PAIRED}]", run) else 3


def _index_run(match: re.Match[str]) -> str:
    run, length = match[0], _group_length(match[0])
    # The last characters start no whole group: kept, so that the prefix search of a shorter query reaches them.
    return f" {' '.join([run[at : at + length] for at in range(len(run))])} "


def unspaced_segments(text: str) -> list[tuple[str, int]]:
    """Cut `text` at the borders of unspaced runs into non-empty (piece, length of its character groups, or 0)."""
    parts = re.split(_RUN, re.sub(_BREAK, "", text)) if has_unspaced(text) else [text]
    return [(part, _group_length(part) if number % 2 else 0) for number, part in enumerate(parts) if part]


def without_unspaced(text: str) -> str:
    """Return `text` with blanks for unspaced characters, which full-text search splits from the words next to them."""
    return re.sub(_RUN, lambda match: " " * len(match[0]), text) if has_unspaced(text) else text


def analyze_text(text: str) -> str:
    """Prepare `text` for FTS5: normal form, case folded, unspaced runs as character groups; ASCII unchanged."""
    if text.isascii():
        return text
    text = normalize(text)
    return re.sub(_RUN, _index_run, marks_as_letters(text)) if has_unspaced(text) else text
