"""What a model server says when it does not take a request, and what that is a sign of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from qmd.errors import ModelError

_MAX_WORDS = 200
_SIZE = re.compile(
    r"too (?:large|long|big|many)|too_l(?:arge|ong)|larger than|at most \d|maximum (?:allowed )?"
    r"(?:batch|context|input|sequence|length|number|token)|(?:less|fewer|more|longer) than \d+ (?:tokens|texts|items)|"
    r"exceed(?!ed your)|batch[ _]size|context (?:length|size|window)|token limit",
    re.IGNORECASE,
)
"""How servers say that a batch or a text is too large. Seen at: text-embeddings-inference ("batch size 33 > maximum
allowed batch size 32", "must have less than 512 tokens"), vLLM and OpenAI ("maximum context length is"), llama.cpp
("input is too large to process"), Ollama ("exceeds the context length"), Cohere ("must be at most 96"), Jina ("cannot
exceed 8194 tokens"), and servers built on pydantic ("at most 32 items", "too_long"). A used-up quota is none of it."""
_FIELDS = re.compile(
    r"(?:missing|unknown|required|unexpected) (?:required )?(?:field|parameter|property)|field required|extra inputs|"
    r"deserialize|not permitted|is required|must be (?:provided|a non-empty)",
    re.IGNORECASE,
)
_NO_ENDPOINT = re.compile(
    r"(?:404|page|file|endpoint|path|url|route|resource| )*not found\.?|(?:cannot post|invalid url|unknown).*|",
    re.IGNORECASE,
)
_FORM_STATUS = frozenset({200, 400, 404, 405, 415, 422, 501})
_HINTS: Mapping[int, str] = {401: "check the API key", 403: "check the API key"}


class RefusalError(ModelError):
    """The server answers, but not with what was asked for: another form, or less at once, may be what it wants.

    Attributes:
        status: Of HTTP; 200 for an answer that holds an error, or cannot be read.
        words: The server's own.
    """

    def __init__(self, message: str, status: int, words: str = "") -> None:
        super().__init__(message, _HINTS.get(status, "check the URL and the model's name"))
        self.status = status
        self.words = words

    @property
    def is_of_size(self) -> bool:
        """Whether the batch or a text is too large."""
        return self.status == 413 or (self.status in (200, 400, 422, 500) and tells_of_size(self.words))

    @property
    def is_of_form(self) -> bool:
        """Whether the server may speak another interface, or this one at another address."""
        return self.status in _FORM_STATUS and not self.is_of_size

    @property
    def weight(self) -> int:
        """How likely this is to be the cause, among what was answered to several forms: largest first.

        An answer from an endpoint that is not there, or does not know the fields, is for a form that was only tried.
        """
        if self.status in (404, 405):
            return 0 if _NO_ENDPOINT.fullmatch(self.words) else 2
        return 1 if _FIELDS.search(self.words) else 3


def tells_of_size(words: str) -> bool:
    """Whether a server complains of too much text."""
    return _SIZE.search(words) is not None


def refusal_words(raw: bytes) -> str:
    """The server's own words on one line; none of a web page, which a proxy sends."""
    try:
        text = _words(json.loads(raw))
    except (ValueError, RecursionError):
        text = raw.decode("utf-8", "replace").lstrip()
        if text.startswith("<"):
            return ""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _MAX_WORDS else f"{line[: _MAX_WORDS - 1]}…"


def _words(value: Any) -> str:
    """Of the forms in use: {"error": {"message"}}, {"error"}, {"message"}, {"detail": [{"loc", "msg"}]}, bare text."""
    if isinstance(value, list):
        return "; ".join(filter(None, map(_words, value)))
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    for name in ("error", "errors", "message", "detail", "msg"):
        if value.get(name) and value[name] is not True:
            place = value.get("loc")
            where = f"{'.'.join(map(str, place))}: " if isinstance(place, list) and name == "msg" else ""
            return where + _words(value[name])
    return ""


def hide_keys(words: str, keys: Iterable[str]) -> str:
    """`words` without the keys that were sent, which some servers repeat."""
    for key in keys:
        # Shorter ones are version numbers and the like, which would be cut out of common words.
        if len(key) >= 4:
            words = words.replace(key, "***")
    return words
