"""Normal forms and scripts of text that is not plain ASCII, for index and query alike."""

from __future__ import annotations

import operator
import re
import unicodedata
from typing import Literal

CJK_CLASS = (
    "\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff\uff66-\uff9f\uffa1-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Regex class of Han, Hiragana, Katakana (with the prolonged sound mark), Bopomofo and Hangul."""

# First bytes in UTF-8 of scripts of Europe and the Near East, of typographic signs, and of Chinese, Japanese or Korean.
_NEAR_LATIN, _HAN = bytes(range(0xE1)) + b"\xe2", bytes(range(0xE5, 0xEA))
_CJK_RUN = f"[{CJK_CLASS}]+"
"""Kept as text: `re` compiles it, for 3 ms, on first use, and most searches never need it."""

_MARK_RUN = re.compile(r"[^\0-\x7f\w]{64,}")
_SAMPLED_RUN = re.compile(r"[^\0-\x7f\w]{4}")
"""Such a run among every sixteenth character, which are searched first."""

_NFKC_SIGNS = [(sign, unicodedata.normalize("NFKC", sign)) for sign in "\u00a0…（），：；？！"] + [("\u00ad", "")]
"""Soft hyphens and the common signs that NFKC changes: texts without them are usually in that form."""

_LETTER = re.compile(r"[^\W\d_]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_LATIN_ACCENTS = "(?<=[a-z])[\u0300-\u036f]+"
_ACCENTED_LATIN = re.compile("[\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff]")


def has_cjk(text: str) -> bool:
    """Return whether `text` contains a Chinese, Japanese or Korean character."""
    raw = b"" if text.isascii() else text.encode("utf-8", "replace")
    far = raw.translate(None, _NEAR_LATIN)
    # A Han character decides without the whole class; emoji and their colour modifiers are not CJK.
    if not far or any(map(far.__contains__, _HAN)):
        return bool(far)
    far = raw.replace(b"\xf0\x9f", b"").replace(b"\xef\xb8", b"").translate(None, _NEAR_LATIN)
    return far != b"" and re.search(_CJK_RUN, text) is not None


def script_of(letter: str) -> str | None:
    """Return the script of a letter as the first word of its Unicode name (`LATIN`, `CJK`); None for a non-letter."""
    return unicodedata.name(letter, "UNKNOWN").split()[0] if letter.isalpha() else None


def cjk_share(text: str) -> float:
    """Return the share of CJK characters among the letters of `text`, in [0, 1]; 0 without letters."""
    if not has_cjk(text):
        return 0.0
    n_cjk = sum(map(len, re.findall(_CJK_RUN, text)))
    return n_cjk / max(len(_LETTER.findall(text)), n_cjk)


def without_accents(text: str) -> str:
    """Remove accents from `text` without CJK; in CJK they make other letters."""
    return text if text.isascii() or has_cjk(text) else _ACCENTS.sub("", normal_form("NFD", text))


def without_latin_accents(text: str) -> str:
    """Remove from a normal form the accents that full-text search ignores: on Latin letters, not that of `й`."""
    if not _ACCENTED_LATIN.search(text):
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
    folded = normal_form("NFKC", text).casefold()
    try:
        folded.encode("utf-8")
    except UnicodeEncodeError:
        return folded.encode("utf-8", "replace").decode("utf-8")
    return folded


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


def bigrams(run: str) -> list[str]:
    """Return overlapping character pairs of a CJK run; a run of one character is itself."""
    return list(map(operator.add, run, run[1:])) or [run]


def _index_run(match: re.Match[str]) -> str:
    run = match[0]
    # The last character starts no pair: kept alone, so that the prefix search of a one-character query reaches it.
    return f" {' '.join(map(operator.add, run, f'{run[1:]} '))}"


def cjk_segments(text: str) -> list[tuple[str, bool]]:
    """Cut `text` at the borders of CJK runs into non-empty (piece, whether it is CJK)."""
    if not has_cjk(text):
        return [(text, False)] if text else []
    pieces: list[tuple[str, bool]] = []
    position = 0
    for match in re.finditer(_CJK_RUN, text):
        if match.start() > position:
            pieces.append((text[position : match.start()], False))
        pieces.append((match[0], True))
        position = match.end()
    if position < len(text):
        pieces.append((text[position:], False))
    return pieces


def without_cjk(text: str) -> str:
    """Return `text` with blanks for CJK characters, which full-text search splits from the words next to them."""
    return re.sub(_CJK_RUN, lambda match: " " * len(match[0]), text) if has_cjk(text) else text


def analyze_text(text: str) -> str:
    """Prepare `text` for FTS5: normal form, case folded, CJK runs as character pairs; ASCII unchanged."""
    if text.isascii():
        return text
    text = normalize(text)
    return re.sub(_CJK_RUN, _index_run, text) if has_cjk(text) else text
