"""JSON over HTTP to a model server: time-outs, retries with back-off, a circuit breaker, nothing when offline."""

from __future__ import annotations

import ipaddress
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from qmd.errors import ModelError
from qmd.inference.engines.remote_settings import RemoteSettings

_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_BACKOFF_S = 0.5
_MAX_WAIT_S = 20.0
"""Longest pause between two tries, whatever the server asks for."""
_BREAKER_FAILURES = 3
_BREAKER_REST_S = 30.0
"""After three failed calls in a row nothing is sent for half a minute: a search must not wait for a dead server."""


class DeadlineError(ModelError):
    """The caller's deadline came before the server's answer."""


class TooLargeError(ModelError):
    """The server refuses a request for its size."""


class RemoteClient:
    """Posts JSON to one endpoint: the path after the version, such as `/embeddings`.

    Raises:
        ModelError: If the URL is not http(s), or offline use forbids it.
    """

    def __init__(
        self,
        settings: RemoteSettings,
        endpoint: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = endpoint_url(settings.url, endpoint)
        parts = urlsplit(self._address)
        self.url = parts._replace(query="").geturl()
        """For messages: without what follows the question mark, which may be a key."""
        host = parts.hostname or ""
        is_local = is_loopback(host)
        if settings.is_offline and not is_local:
            raise ModelError(f"model server '{host}' is not used: QMD_OFFLINE is set", "unset QMD_OFFLINE")
        self.settings = settings
        self._opener = build_opener(_NoRedirect, *([ProxyHandler({})] if is_local else []))
        self._sleep = sleep
        self._clock = clock
        self._failures = 0
        self._closed_until = -math.inf
        self._lock = threading.Lock()

    def post(self, body: Mapping[str, Any], *, deadline_s: float | None = None, limit_s: float | None = None) -> Any:
        """Send `body`, return the answer's JSON.

        Args:
            deadline_s: A `time.monotonic` value that no try and no pause outlasts; the caller's own business.
            limit_s: Without a deadline: seconds for all tries together, after which the server counts as failed.

        Raises:
            DeadlineError: The deadline came first.
            TooLargeError: The server answered 413.
            ModelError: The server cannot be reached, refuses, or answers nonsense, after the last try; or it failed so
                often that it is left alone for a while.
        """
        with self._lock:
            rest_s = self._closed_until - self._clock()
        if rest_s > 0:
            raise ModelError(
                f"model server '{self.url}' failed {_BREAKER_FAILURES} times, next try in {math.ceil(rest_s)} s",
                "check that the server runs",
            )
        is_limited = deadline_s is None and limit_s is not None
        if is_limited:
            deadline_s = self._clock() + (limit_s or 0.0)
        try:
            answer = self._post_with_retries(body, deadline_s)
        except DeadlineError as exc:
            if not is_limited:
                raise
            self._note_failure()
            cause = exc.__cause__
            message = cause.message if isinstance(cause, _RetryError) else f"model server '{self.url}' does not answer"
            raise ModelError(f"{message} (tried for {limit_s:g} s)", "check that it runs") from exc
        except ModelError as exc:
            if not isinstance(exc, TooLargeError):
                self._note_failure()
            raise
        with self._lock:
            self._failures = 0
        return answer

    def _note_failure(self) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= _BREAKER_FAILURES:
                # One more failure after the rest closes the circuit again.
                self._failures = _BREAKER_FAILURES - 1
                self._closed_until = self._clock() + _BREAKER_REST_S

    def _post_with_retries(self, body: Mapping[str, Any], deadline_s: float | None) -> Any:
        for attempt in range(self.settings.retries + 1):
            left_s = math.inf if deadline_s is None else deadline_s - self._clock()
            if left_s <= 0:
                raise DeadlineError(f"no time left for model server '{self.url}'")
            try:
                return self._post_once(body, min(self.settings.timeout_s, left_s))
            except _RetryError as exc:
                is_last = attempt == self.settings.retries
                wait_s = 0.0 if is_last else min(_MAX_WAIT_S, max(_BACKOFF_S * 2**attempt, exc.retry_after_s))
                if deadline_s is not None and self._clock() + wait_s >= deadline_s:
                    raise DeadlineError(f"no time left for model server '{self.url}'") from exc
                if is_last:
                    raise ModelError(exc.message, exc.hint) from exc
                self._sleep(wait_s)
        raise AssertionError("a request is tried at least once")

    def _post_once(self, body: Mapping[str, Any], timeout_s: float) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "qmd"}
        if self.settings.api_key:
            headers["Authorization"] = f"Bearer {self.settings.api_key}"
        request = Request(self._address, json.dumps(body).encode("utf-8"), headers, method="POST")
        try:
            with self._opener.open(request, timeout=timeout_s) as response:
                raw = response.read()
        except HTTPError as exc:
            raise self._refusal(exc.code, exc.headers.get("Retry-After"), _detail(exc.read())) from exc
        except (URLError, OSError, HTTPException) as exc:
            reason = str(getattr(exc, "reason", "") or exc) or type(exc).__name__
            raise _RetryError(f"model server '{self.url}' cannot be reached: {reason}", "check that it runs") from exc
        try:
            return json.loads(raw)
        except ValueError as exc:
            raise ModelError(f"model server '{self.url}' answers something that is not JSON", "check the URL") from exc

    def _refusal(self, status: int, retry_after: str | None, detail: str) -> ModelError:
        message = f"model server '{self.url}' answers {status}{f': {detail}' if detail else ''}"
        if status == 413:
            return TooLargeError(message)
        if status in _RETRIED_STATUS:
            waits = retry_after is not None and retry_after.strip().isdigit()
            return _RetryError(message, "try again later", float(retry_after or 0) if waits else 0.0)
        hints = {401: "check the API key", 403: "check the API key", 404: "check the URL and the model's name"}
        return ModelError(message, hints.get(status, "check the URL and the model's name"))


class _RetryError(ModelError):
    """A failure that another try may mend."""

    def __init__(self, message: str, hint: str | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint)
        self.retry_after_s = retry_after_s


def endpoint_url(url: str, endpoint: str) -> str:
    """The address to post to.

    >>> endpoint_url("http://localhost:8000", "/rerank")
    'http://localhost:8000/v1/rerank'
    >>> endpoint_url("http://localhost:8000/v1/", "/rerank")
    'http://localhost:8000/v1/rerank'

    Raises:
        ModelError: If the URL is not http(s) or names no host.
    """
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ModelError(f"model server URL '{url}' is not an http address", "write it like http://localhost:8000/v1")
    if parts.username or parts.password:
        # The address is shown in messages and in the engine's description.
        raise ModelError(f"URL of model server '{host}' holds a password", "put the key into QMD_API_KEY")
    path = parts.path.rstrip("/")
    if not path.endswith(endpoint):
        path = f"{path or '/v1'}{endpoint}"
    return parts._replace(path=path, fragment="").geturl()


def is_loopback(host: str) -> bool:
    """True for this machine's own addresses."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the key and the user's text to another host."""

    def redirect_request(self, *args: Any) -> None:
        return None


def _detail(raw: bytes) -> str:
    """The server's own words, on one line."""
    try:
        body = json.loads(raw)
        error = body.get("error", body) if isinstance(body, dict) else body
        text = error.get("message", "") if isinstance(error, dict) else str(error)
    except ValueError:
        text = raw.decode("utf-8", "replace")
    return " ".join(str(text).split())[:160]
