"""What a model hub's answers mean: refusals and faults as messages, and how long it asks to wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from qmd.errors import ModelError
from qmd.foreign import short

if TYPE_CHECKING:
    import httpx

RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})
RESUMES = "run it again: qmd models pull resumes"
_USER_AGENT = "qmd"
"""In place of the client's own, which names the versions of packages."""
_MIRROR = "unset HF_ENDPOINT to ask huggingface.co itself"
_TIMEOUT_S = 30.0
_MOST_PAUSE_S = 60.0
_HUB = "huggingface.co"


@contextlib.contextmanager
def hub_client() -> Iterator[httpx.Client]:
    """A client with the system's proxies, that follows no redirect unless told to.

    Raises:
        ModelError: If the variables that name a proxy cannot be used.
    """
    import httpx

    try:
        client = httpx.Client(headers={"User-Agent": _USER_AGENT}, timeout=_TIMEOUT_S, max_redirects=10)
    except (ImportError, ValueError, httpx.InvalidURL) as exc:
        hint = "set HTTPS_PROXY to an http:// address; a socks:// one needs: pip install 'httpx[socks]'"
        raise ModelError(f"the proxy of this system cannot be used: {why(exc)}", hint) from exc
    with client:
        yield client


def why(exc: Exception) -> str:
    """What an exception says, in one line."""
    return " ".join(str(exc).split()) or type(exc).__name__


def pause_asked_for(answer: httpx.Response, title: str) -> float | None:
    """Seconds to wait by the answer's `Retry-After`, None where it names none.

    Raises:
        ModelError: It asks for more than a minute.
    """
    asked = answer.headers.get("Retry-After", "").strip()
    if asked.isdecimal():
        pause = float(asked)
    else:
        try:
            pause = (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):  # none, or one without a time zone
            return None
    if pause > _MOST_PAUSE_S:
        raise ModelError(
            f"{title} is not to be had now: the server answers {answer.status_code} and asks to wait {pause:.0f} s",
            f"{RESUMES}; with HF_TOKEN set the hub allows more",
        )
    return max(0.0, pause)


def check_is_file(answer: httpx.Response, title: str, path: str) -> None:
    """Refuse what can only be something else than the file.

    Raises:
        ModelError: It is a web page, or its bytes were changed on the way.
    """
    kind = answer.headers.get("Content-Type", "").split(";")[0].strip().lower()
    if kind == "text/html" and not path.endswith((".html", ".htm")):
        raise ModelError(
            f"the server sends a web page in place of {title}",
            f"a login page or a proxy may stand in between: open https://{answer.url.host} in a browser",
        )
    coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise ModelError(
            f"the server sends {title} packed ({short(coding)}), so that it can be neither continued nor checked",
            f"a proxy or mirror does that: {_MIRROR}",
        )


def refusal(
    answer: httpx.Response, title: str, repository: str, revision: str, endpoint: str | None, *, has_token: bool
) -> ModelError:
    """What to say of an answer that is neither a file nor worth another try."""
    status, code = answer.status_code, answer.headers.get("X-Error-Code")
    is_mirror = endpoint is not None and urlsplit(endpoint).hostname != _HUB
    who = f"mirror '{endpoint}'" if is_mirror else "the hub"
    if code == "GatedRepo":
        return ModelError(
            f"'{repository}' is gated: {who} answers {status} until its licence is accepted",
            f"accept it at https://{_HUB}/{repository}, then set HF_TOKEN",
        )
    if code == "RevisionNotFound":
        return ModelError(
            f"{who} has no revision '{revision}' of '{repository}'",
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
    return ModelError(f"{who} answers {phrase} for {title}", f"try later; {RESUMES}" if status >= 500 else RESUMES)
