"""The grammar of typed lines as masks over the vocabulary: invalid lines cannot be written.
    document = line+          line = tag ":" content newline          tag = "lex" | "vec" | "hyde"

Tags and newlines are forced text, given to the model as chunks. Only `content` is sampled: tokens without line breaks
or control characters, at least one of them visible, ended by an end token or by white space with a line break.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from qmd.analysis.scripts import script_of

_BREAKS = re.compile(rb"[\x00-\x1f\x7f]|\xc2\x85|\xe2\x80[\xa8\xa9]")
"""Control characters, and Unicode's own line breaks in UTF-8: next line, line separator, paragraph separator."""

_ASCII_VISIBLE = re.compile(rb"[0-9A-Za-z]")
_WRITTEN_TOGETHER = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "FULLWIDTH"})
_SCRIPTS_KEPT = 8
"""Cached masks of first tokens, .15 MB each: one for each set of scripts of queries."""


class LineGrammar:
    """Masks for the content of one line.

    Args:
        spellings: Spelling of each token, None for tokens that may not occur in text.
    """

    def __init__(self, spellings: Sequence[bytes | None], end_ids: Collection[int]) -> None:
        size = max(len(spellings), max(end_ids, default=-1) + 1)
        self._spellings = spellings
        self._content: npt.NDArray[np.bool_] = np.zeros(size, np.bool_)
        self._visible: npt.NDArray[np.bool_] = np.zeros(size, np.bool_)
        ends = set(end_ids)
        for token, spelling in enumerate(spellings):
            if not spelling or token in end_ids:
                continue
            if _BREAKS.search(spelling):
                if b"\n" in spelling and not spelling.strip():
                    ends.add(token)
                continue
            self._content[token] = True
            self._visible[token] = _is_visible(spelling)
        self.end_ids = frozenset(ends)
        """Tokens that end a line."""
        self._open: npt.NDArray[np.bool_] = self._content.copy()
        self._open[sorted(ends)] = True
        self.starting_in = lru_cache(_SCRIPTS_KEPT)(self._starting_in)
        """Scripts → mask of visible tokens of whole characters, one of them in these scripts; None without any.

        Keeps a model to the query's script: the first word decides the rest of the line.
        """
        self.writing_in = lru_cache(_SCRIPTS_KEPT)(self._writing_in)
        """Scripts → mask of the tokens of a line without letters of others; Latin is always included."""

    def allowed(self, generated: Sequence[int], first: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.bool_]:
        """Return the mask of possible next tokens, shape (tokens known to the tokenizer,).

        Args:
            generated: The line's tokens so far.
            first: Tokens wanted as the first visible one (see `starting_in`); None for any.
        """
        if any(self._visible[token] for token in generated):
            return self._open
        return self._visible if first is None else first

    def _starting_in(self, scripts: frozenset[str]) -> npt.NDArray[np.bool_] | None:
        mask: npt.NDArray[np.bool_] = np.zeros(len(self._visible), np.bool_)
        for token in np.flatnonzero(self._visible).tolist():
            try:
                text = (self._spellings[token] or b"").decode("utf-8")
            except UnicodeDecodeError:
                continue
            mask[token] = any(script_of(letter) in scripts for letter in text)
        return mask if mask.any() else None

    def _writing_in(self, scripts: frozenset[str]) -> npt.NDArray[np.bool_]:
        known = {None, "LATIN", *scripts, *(_WRITTEN_TOGETHER if scripts & _WRITTEN_TOGETHER else ())}
        spelled = ((token, self._spellings[token] or b"") for token in np.flatnonzero(self._open).tolist())
        # Pieces of a character stay: with them any letter can be written.
        texts = {token: spelling.decode("utf-8", "ignore") for token, spelling in spelled if not spelling.isascii()}
        foreign = {letter for letter in set().union(*texts.values()) if script_of(letter) not in known}
        mask = self._open.copy()
        mask[[token for token, text in texts.items() if not foreign.isdisjoint(text)]] = False
        return mask if (mask & self._visible).any() else self._open


def _is_visible(spelling: bytes) -> bool:
    """Return True for letters and digits, and for pieces of a character that spans several tokens."""
    try:
        text = "" if _ASCII_VISIBLE.search(spelling) else spelling.decode("utf-8")
        return not text or any(unicodedata.category(letter)[0] in "LN" for letter in text)
    except UnicodeDecodeError:
        return True
