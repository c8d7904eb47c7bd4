"""JSON over HTTP to a model server: timeouts, retries with back-off, a circuit breaker, nothing when offline."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from qmd.errors import ModelError
from qmd.escapes import one_line
from qmd.plugins.servers.settings import RemoteSettings, hide_query, is_loopback, split_url

_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_BACKOFF_S = 0.5
_MAX_WAIT_S = 20.0
"""Longest pause between two tries, even if the server asks for more."""
_BREAKER_FAILURES = 3
_BREAKER_REST_S = 30.0
"""Pause after three failed calls in a row: a search must not wait for a dead server."""
_MAX_ANSWER_BYTES = 1 << 25
"""Twice the largest vectors of a whole batch; reading as much JSON takes a second or two."""

_SIZE = re.compile(
    r"too (?:large|long|big|many)|too_l(?:arge|ong)|larger than|at most \d|maximum (?:allowed )?"
    r"(?:batch|context|input|sequence|length|number|token)|(?:less|fewer|more|longer) than \d+ (?:tokens|texts|items)|"
    r"exceed(?!ed your)|batch[ _]size|context (?:length|size|window)|token limit",
    re.IGNORECASE,
)
"""Server messages about a batch or text that is too large. Seen at: text-embeddings-inference ("batch size 33 > maximum
allowed batch size 32", "must have less than 512 tokens"), vLLM and OpenAI ("maximum context length is"), llama.cpp
("input is too large to process"), Ollama ("exceeds the context length"), Cohere ("must be at most 96"), Jina ("cannot
exceed 8194 tokens"), and servers built on pydantic ("at most 32 items", "too_long"). A used-up quota is none."""
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
    """A refusal of the request as sent: another form, or a smaller request, may succeed.

    Attributes:
        status: HTTP status; 200 for an answer that contains an error, or cannot be read.
        words: The server's own.
    """

    def __init__(self, message: str, status: int, words: str = "") -> None:
        super().__init__(message, _HINTS.get(status, "check the URL and the model's name"))
        self.status = status
        self.words = words

    @property
    def is_too_large(self) -> bool:
        """The batch or a text is too large."""
        return self.status == 413 or (self.status in (200, 400, 422, 500) and _names_size_limit(self.words))

    @property
    def may_be_other_api(self) -> bool:
        """The server may have another interface, or this one at another address."""
        return self.status in _FORM_STATUS and not self.is_too_large

    @property
    def weight(self) -> int:
        """Likelihood of being the cause, among the refusals of several forms: largest first.

        A missing endpoint or unknown fields belong to a form that was only tried.
        """
        if self.status in (404, 405):
            return 0 if _NO_ENDPOINT.fullmatch(self.words) else 2
        return 1 if _FIELDS.search(self.words) else 3


class DeadlineError(ModelError):
    """The caller's deadline came before the server's answer."""


class RemoteClient:
    """HTTP client of one server.

    Args:
        work: The server's work, for messages: `embedding`.
        sleep: Waits for a number of seconds.
        clock: Monotonic seconds.

    Raises:
        ModelError: If the URL is not http(s), or offline use forbids it.
    """

    def __init__(
        self,
        settings: RemoteSettings,
        work: str = "model",
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = split_url(settings.url)
        host = parts.hostname or ""
        is_local = is_loopback(host)
        if settings.is_offline and not is_local:
            raise ModelError(f"{work} server '{host}' is not used: QMD_OFFLINE is set", "unset QMD_OFFLINE")
        self.settings = settings
        self._work = work
        self._keys = [settings.api_key or "", *(pair.partition("=")[2] for pair in parts.query.split("&"))]
        self._opener = build_opener(_NoRedirect, *([ProxyHandler({})] if is_local else []))
        self._sleep, self._clock = sleep, clock
        self._failures = 0
        self._closed_until = -math.inf
        self._lock = threading.Lock()

    def label(self, address: str) -> str:
        """Return the server's name in messages."""
        return f"{self._work} server '{hide_query(address)}'"

    def post(
        self, address: str, body: Mapping[str, Any], *, deadline_s: float | None = None, limit_s: float | None = None
    ) -> Any:
        """Send `body`, return the answer's JSON.

        Args:
            address: The endpoint, on the server of the settings.
            deadline_s: The caller's limit, a `time.monotonic` value that no try and no pause outlasts.
            limit_s: Without a deadline: seconds for all tries together, after which the server counts as failed.

        Raises:
            DeadlineError: The deadline came first.
            RefusalError: The server refuses this request.
            ModelError: The server cannot be reached or fails, after the last try; or it has failed too often to be
                called now.
        """
        with self._lock:
            rest_s = self._closed_until - self._clock()
        if rest_s > 0:
            raise ModelError(
                f"{self.label(address)} failed {_BREAKER_FAILURES} times, next try in {math.ceil(rest_s)} s",
                "check that the server runs",
            )
        is_limited = deadline_s is None and limit_s is not None
        if is_limited:
            deadline_s = self._clock() + (limit_s or 0.0)
        try:
            answer = self._post_with_retries(address, body, deadline_s)
        except DeadlineError as exc:
            if not is_limited:
                raise
            self._note_failure()
            cause = exc.__cause__
            message = cause.message if isinstance(cause, _RetryError) else f"{self.label(address)} does not answer"
            raise ModelError(f"{message} (tried for {limit_s:g} s)", "check that it runs") from exc
        except RefusalError:
            # The server works: another request may succeed.
            raise
        except ModelError:
            self._note_failure()
            raise
        with self._lock:
            self._failures = 0
        return answer

    def _note_failure(self) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= _BREAKER_FAILURES:
                # One more failure after the pause opens the breaker again.
                self._failures = _BREAKER_FAILURES - 1
                self._closed_until = self._clock() + _BREAKER_REST_S

    def _post_with_retries(self, address: str, body: Mapping[str, Any], deadline_s: float | None) -> Any:
        for attempt in range(self.settings.retries + 1):
            left_s = math.inf if deadline_s is None else deadline_s - self._clock()
            if left_s <= 0:
                raise DeadlineError(f"no time left for {self.label(address)}")
            try:
                return self._post_once(address, body, min(self.settings.timeout_s, left_s))
            except _RetryError as exc:
                is_last = attempt == self.settings.retries
                wait_s = 0.0 if is_last else min(_MAX_WAIT_S, max(_BACKOFF_S * 2**attempt, exc.retry_after_s))
                if deadline_s is not None and self._clock() + wait_s >= deadline_s:
                    raise DeadlineError(f"no time left for {self.label(address)}") from exc
                if is_last:
                    raise ModelError(exc.message, exc.hint) from exc
                self._sleep(wait_s)
        raise AssertionError("a request is tried at least once")

    def _post_once(self, address: str, body: Mapping[str, Any], timeout_s: float) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "qmd"}
        if self.settings.api_key:
            headers["Authorization"] = f"Bearer {self.settings.api_key}"
        # A lone surrogate, possible in a file with damaged text, is no character of JSON's.
        raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        request = Request(address, raw, headers, method="POST")
        try:
            with self._opener.open(request, timeout=timeout_s) as response:
                raw = self._read(response, timeout_s)
        except HTTPError as exc:
            with exc:
                detail = exc.read(1 << 16)
            raise self._refusal(address, exc.code, exc.headers.get("Retry-After"), detail) from exc
        except (URLError, OSError, HTTPException) as exc:
            reason = str(getattr(exc, "reason", "") or exc) or type(exc).__name__
            raise _RetryError(f"{self.label(address)} cannot be reached: {reason}", "check that it runs") from exc
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError) as exc:
            raise RefusalError(f"{self.label(address)} answers something that is not JSON", 200) from exc
        if isinstance(answer, dict) and answer.get("error"):
            raise self._refusal(address, 200, None, raw)
        return answer

    def _read(self, response: HTTPResponse, timeout_s: float) -> bytes:
        """Read the whole answer; the timeout also ends a slow stream."""
        ends, parts, size = self._clock() + timeout_s, list[bytes](), 0
        while part := response.read1(1 << 16):
            parts.append(part)
            size += len(part)
            if size > _MAX_ANSWER_BYTES:
                message = f"{self._work} server answers with more than {_MAX_ANSWER_BYTES:,} bytes"
                raise ModelError(message, "check the URL and the model's name")
            if self._clock() > ends:
                raise TimeoutError(f"its answer has not ended after {size:,} bytes")
        return b"".join(parts)

    def _refusal(self, address: str, status: int, retry_after: str | None, raw: bytes) -> ModelError:
        words = _hide_keys(_refusal_words(raw), self._keys)
        message = f"{self.label(address)} answered {status}{f': {words}' if words else ''}"
        # Before the retries: llama.cpp's server answers 500 to a text that is too long.
        if status not in _RETRIED_STATUS or (status == 500 and _names_size_limit(words)):
            return RefusalError(message, status, words)
        waits = retry_after is not None and retry_after.strip().isdigit()
        return _RetryError(message, "try again later", float(retry_after or 0) if waits else 0.0)


class _RetryError(ModelError):
    """A failure after which a retry may succeed."""

    def __init__(self, message: str, hint: str | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint)
        self.retry_after_s = retry_after_s


class _NoRedirect(HTTPRedirectHandler):
    """Refusal of redirects, which would send the key and the user's text to another host."""

    def redirect_request(self, *args: Any) -> None:
        return None


def _names_size_limit(words: str) -> bool:
    """Return whether a server reports too much text."""
    return _SIZE.search(words) is not None


def _refusal_words(raw: bytes) -> str:
    """Return the server's own words on one line; none of a web page, which a proxy sends."""
    try:
        text = _words(json.loads(raw))
    except (ValueError, RecursionError):
        text = raw.decode("utf-8", "replace").lstrip()
        if text.startswith("<"):
            return ""
    return one_line(text.strip())


def _words(value: Any) -> str:
    """Return the words in {"error": {"message"}}, {"error"}, {"message"}, {"detail": [{"loc", "msg"}]} or bare text."""
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


def _hide_keys(words: str, keys: Iterable[str]) -> str:
    """Return `words` without the sent keys, which some servers repeat."""
    for key in keys:
        # Shorter ones, such as version numbers, also occur in common words.
        if len(key) >= 4:
            words = words.replace(key, "***")
    return words
