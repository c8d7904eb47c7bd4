r"""Foreign text as readers see it: file names, titles, notes and messages that qmd did not write.

Text of others must not end a line of ours, control a terminal or hide from its reader. JSON keeps the text as it is.
"""

from __future__ import annotations

import re

MOST_CHARS, LONG_CHARS = 200, 1_000
"""Limits for a line of foreign words: in general, and for words that readers use whole (paths, contexts, messages)."""

_CONTROLS = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
    # before a line feed it is a line break of Windows
    "|\r(?!\n)"
)
"""Characters that control a terminal or that readers do not see: control characters except tab and line feed, marks of
lines and of text direction, tags, and lone surrogates for bytes of a file name (some terminals read 0x9b as a control).
"""
_SEPARATORS = "[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+"
"""Characters at which `str.splitlines` splits, and tabs, which separate columns."""
_NOT_IN_ADDRESSES = rf"(?![\ud800-\udfff])(?:{_CONTROLS}|[\t\n\r])"


def visible(text: str) -> str:
    r"""Escape every character that controls a terminal or is hidden: `\x1b`, `\u009b`, `\u202e`, `\U000e0041`.

    From 0x7f to 0xffff the form is that of JSON, which does not escape them itself: JSON keeps its values. Lines end at
    line feeds alone: other separators are escaped too.
    """
    return re.sub(_CONTROLS, _escaped, text)


def one_line(words: object, most: int | None = MOST_CHARS) -> str:
    """Return foreign words as one line, of at most `most` characters, with spaces for line separators and tabs."""
    text = visible(re.sub(_SEPARATORS, " ", str(words)))
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def message_line(words: object) -> str:
    """Return a message as one line of at most 1,000 characters, words of at most 200; longer ones lose the middle."""
    line = one_line(words, None)
    if len(line) <= MOST_CHARS:
        return line
    return _without_middle(re.sub(rf"\S{{{MOST_CHARS + 1},}}", lambda word: _without_middle(word[0]), line), LONG_CHARS)


def error_line(error: BaseException, most: int = LONG_CHARS) -> str:
    """Return the message of another program's error as one line; without one, the name of its class."""
    return one_line(" ".join(str(error).split()), most) or type(error).__name__


def _without_middle(text: str, most: int = MOST_CHARS) -> str:
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def address_line(address: str) -> str:
    """Return an address or a path as one line that `qmd get` reads: percent-encoded if it has separators or controls.

    Bytes that are not UTF-8 stay, for programs that open the path.
    """
    from urllib.parse import quote

    if not re.search(_NOT_IN_ADDRESSES, address):
        return address
    return re.sub(f"{_NOT_IN_ADDRESSES}|%", lambda one: quote(one[0], safe=""), address)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
