"""File descriptions from a model hub or its mirror, and the meaning of its refusals.

huggingface_hub supplies addresses and the access token; all requests are made here, since its client requests more than
files. The token goes to the hub and to no other host.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.escapes import error_line
from qmd.foreign import commit_of, short

if TYPE_CHECKING:
    import httpx

RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})
RESUMES = "run it again: qmd models pull resumes"
_USER_AGENT = "qmd"
"""Replaces the client's own, which lists the versions of packages."""
_HUB = "huggingface.co"
_MIRROR = f"unset HF_ENDPOINT to ask {_HUB} itself"
_TIMEOUT_S = 30.0
_MOST_PAUSE_S = 60.0
_HUB_TRIES = 3
"""Tries to describe a file."""


class HubFile(Struct, frozen=True):
    """A file as its hub describes it."""

    path: str
    """Path in its repository."""
    url: str
    size_bytes: int | None
    sha256: str | None
    """Known for large files; small ones have another kind of tag."""
    commit: str | None
    headers: Mapping[str, str]
    repository: str | None = None
    """Repository of the hub, which can give the address again; None for an address elsewhere."""
    revision: str = "main"
    endpoint: str | None = None

    @property
    def title(self) -> str:
        """The file as messages name it."""
        return f"'{self.path}' of '{self.repository}'" if self.repository else f"'{self.path}'"


def describe_file(
    repository: str,
    path: str,
    revision: str,
    endpoint: str | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> HubFile | None:
    """Describe a file of the hub, or of the mirror at `endpoint`; None if the repository has no such file.

    Raises:
        ModelError: If the hub cannot be reached, refuses, or has no such repository or revision.
    """
    import httpx
    from huggingface_hub import get_token, hf_hub_url

    file = HubFile(path, "", None, None, None, {}, repository, revision, endpoint.rstrip("/") if endpoint else None)
    try:
        url = hf_hub_url(repository, path, revision=revision, endpoint=file.endpoint)
        token = get_token()
        login = {"Authorization": f"Bearer {token}"} if token else {}
        for tries_left in reversed(range(_HUB_TRIES)):
            answer, head = _ask(url, login, file.title)
            if answer.status_code not in RETRIED_STATUS or not tries_left:
                break
            pause = retry_pause(answer, file.title)
            sleep(1.0 if pause is None else pause)
    except (OSError, ValueError, RuntimeError, httpx.HTTPError, httpx.InvalidURL) as exc:
        hint = "check the connection, or set HF_ENDPOINT to a mirror; qmd models pull resumes"
        raise ModelError(f"model hub cannot be reached for '{repository}': {error_line(exc)}", hint) from exc
    if answer.status_code == HTTPStatus.NOT_FOUND and head.get("X-Error-Code", "EntryNotFound") == "EntryNotFound":
        return None
    if answer.is_error:
        raise refusal(answer, file, has_token=bool(token))
    return _complete_file(file, answer, head, login)


def _complete_file(file: HubFile, answer: httpx.Response, head: Mapping[str, str], login: Mapping[str, str]) -> HubFile:
    """Return the file described by the answers; it may be on another host, which must not receive the token."""
    elsewhere = answer.next_request
    if elsewhere is None:
        # Another host may allow nothing but GET, so it is contacted only for the download.
        check_is_file(answer, file)
    size = head.get("X-Linked-Size") or ("" if elsewhere else head.get("Content-Length", ""))
    tag = (head.get("X-Linked-ETag") or head.get("ETag", "")).removeprefix("W/").strip('"').lower()
    return replace(
        file,
        url=str(elsewhere.url if elsewhere else answer.url),
        size_bytes=int(size) if size.isdecimal() else None,
        sha256=tag if re.fullmatch("[0-9a-f]{64}", tag) else None,
        commit=commit_of(head.get("X-Repo-Commit")),
        headers=login if elsewhere is None and "Authorization" in answer.request.headers else {},
    )


@contextlib.contextmanager
def hub_client(title: str) -> Iterator[httpx.Client]:
    """Open a client with the system's proxies, which follows a redirect only on request.

    Raises:
        ModelError: If the variables that name a proxy cannot be used, or a server redirects without end.
    """
    import httpx

    try:
        client = httpx.Client(headers={"User-Agent": _USER_AGENT}, timeout=_TIMEOUT_S, max_redirects=10)
    except (ImportError, ValueError, httpx.InvalidURL) as exc:
        hint = "set HTTPS_PROXY to an http:// address; a socks:// one needs: pip install 'httpx[socks]'"
        raise ModelError(f"the proxy of this system cannot be used: {error_line(exc)}", hint) from exc
    try:
        with client:
            yield client
    except httpx.TooManyRedirects as exc:
        reason = f"the server sends from one address to the next without end for {title}"
        raise ModelError(reason, "check HF_ENDPOINT") from exc


def _ask(url: str, headers: Mapping[str, str], title: str) -> tuple[httpx.Response, httpx.Headers]:
    """Return the last answer about a file, and the combined headers of all answers.

    Redirects are followed on the same host, and elsewhere until an answer describes the file.
    """
    import httpx

    with hub_client(title) as client:
        answer = client.head(url, headers={**headers, "Accept-Encoding": "identity"})
        head = answer.headers
        for _ in range(client.max_redirects):
            request = answer.next_request
            is_described = "X-Repo-Commit" in head or "X-Linked-Size" in head
            if request is None or (is_described and request.url.netloc != answer.url.netloc):
                return answer, head
            linked = {name: value for name, value in head.items() if name.startswith("x-")}
            answer = client.send(request)
            head = httpx.Headers({**answer.headers, **linked})
        raise httpx.TooManyRedirects("too many redirects", request=answer.request)


def retry_pause(answer: httpx.Response, title: str) -> float | None:
    """Return the seconds to wait by the answer's `Retry-After`, None without one; a ModelError for over a minute."""
    wait = answer.headers.get("Retry-After", "").strip()
    if wait.isdecimal():
        pause = float(wait)
    else:
        try:
            pause = (parsedate_to_datetime(wait) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):  # none, or one without a time zone
            return None
    if pause > _MOST_PAUSE_S:
        raise ModelError(
            f"{title} is not available now: the server answers {answer.status_code} and asks to wait {pause:.0f} s",
            f"{RESUMES}; with HF_TOKEN set the hub allows more",
        )
    return max(0.0, pause)


def refusal(answer: httpx.Response, file: HubFile, *, has_token: bool) -> ModelError:
    """Return the error for an answer that is neither a file nor worth a retry."""
    status, code, repository = answer.status_code, answer.headers.get("X-Error-Code"), file.repository
    is_mirror = file.endpoint is not None and urlsplit(file.endpoint).hostname != _HUB
    who = f"mirror '{file.endpoint}'" if is_mirror else "the hub"
    if code == "GatedRepo":
        return ModelError(
            f"'{repository}' is gated: {who} answers {status} until its licence is accepted",
            f"accept it at https://{_HUB}/{repository}, then set HF_TOKEN",
        )
    if code == "RevisionNotFound":
        return ModelError(
            f"{who} has no revision '{file.revision}' of '{repository}'",
            f"upgrade qmd, or take the newest: qmd models pull {repository} --refresh",
        )
    if code == "RepoNotFound" or (status == HTTPStatus.UNAUTHORIZED and not is_mirror and not has_token):
        return ModelError(
            f"{who} has no model '{repository}', or it is private ({status})",
            "see: qmd models list; for a private model set HF_TOKEN",
        )
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        token = "set another HF_TOKEN" if has_token else "set HF_TOKEN"
        hint = f"{_MIRROR}, or {token} if the mirror wants a login" if is_mirror else f"{token} that may read it"
        what = " with this access token" if has_token else ""
        return ModelError(f"{who} refuses '{repository}'{what} ({status})", hint)
    phrase = f"{status} {short(answer.reason_phrase)}".strip()
    return ModelError(f"{who} answers {phrase} for {file.title}", f"try later; {RESUMES}" if status >= 500 else RESUMES)


def check_is_file(answer: httpx.Response, file: HubFile) -> None:
    """Refuse an answer that cannot be the file.

    Raises:
        ModelError: It is a web page, or its bytes were changed on the way.
    """
    kind = answer.headers.get("Content-Type", "").split(";")[0].strip().lower()
    if kind == "text/html" and not file.path.endswith((".html", ".htm")):
        raise ModelError(
            f"the server sends a web page in place of {file.title}",
            f"a login page or a proxy may intercept it: open https://{answer.url.host} in a browser",
        )
    coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise ModelError(
            f"the server sends {file.title} packed ({short(coding)}), so that it can be neither continued nor checked",
            f"a proxy or mirror does that: {_MIRROR}",
        )
