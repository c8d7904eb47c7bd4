"""Selection of a role's model server, from the requested model and the environment.

A model written as `http://host:8000/v1#name` is a server's, and `tei+http://host:8080#name` one whose interface is
named; the URL may also come from `QMD_EMBED_URL`, `QMD_RERANK_URL`, `QMD_GENERATE_URL`, the interface from `QMD_*_API`.
Keys come only from `QMD_*_API_KEY` or `QMD_API_KEY`, because configurations are shared. With `QMD_OFFLINE` set only
servers on this machine are used.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.records import EmbedOverrides, Role
from qmd.inference.settings import ENV_STEMS
from qmd.switches import is_on

_TIMEOUT_S = 30.0
_MAX_TOKENS = 480


class RemoteSettings(Struct, frozen=True):
    """A model server for one role."""

    url: str
    """Base (`http://host:8000/v1`), host only, or the whole address of the endpoint."""
    model: str
    api: str | None = None
    """Name of its interface (`qmd.plugins.servers.apis`); None detects it."""
    api_key: str | None = None
    is_offline: bool = False
    """Refuse every host but this machine."""
    timeout_s: float = _TIMEOUT_S
    """For one try, and for all tries of a call while a user waits."""
    retries: int = 2
    batch_size: int = 32
    """Texts in one request."""
    dim: int | None = None
    """Expected size of a vector, requested if the server's own is larger; None takes the server's."""
    max_tokens: int = _MAX_TOKENS
    """Token budget of one chunk's body."""
    document_prompt: str = ""
    query_prompt: str = ""


def remote_settings(
    role: Role, model: str, env: Mapping[str, str], overrides: EmbedOverrides = EmbedOverrides()
) -> RemoteSettings | None:
    """Return the server that serves a role, or None for a model of this machine.

    Args:
        model: The requested model: `http://host/v1#name`, or the name on the server of `QMD_*_URL`; empty for none.
        env: `QMD_*_URL`, `QMD_*_API`, `QMD_*_API_KEY`, `QMD_API_KEY`, `QMD_OFFLINE`, `QMD_REMOTE_TIMEOUT`.

    Raises:
        ModelError: A server without a model's name, or an invalid number.
    """
    stem = ENV_STEMS[role]
    url, name = env.get(f"{stem}_URL", "").strip(), model.strip()
    scheme, mark, _ = name.partition("://")
    if mark and scheme.rpartition("+")[2].lower() in ("http", "https"):
        url, _, name = name.partition("#")
    if not url:
        return None
    api, _, rest = url.partition("+") if "+" in url.partition("://")[0] else ("", "", url)
    url, api = rest, api or env.get(f"{stem}_API", "").strip()
    if not name:
        raise ModelError(f"model server '{url}' is named without a model", f"write {url}#NAME, or set {stem}_MODEL")
    key = env.get(f"{stem}_API_KEY") or env.get("QMD_API_KEY")
    return RemoteSettings(
        url,
        name,
        api=api or None,
        api_key=key.strip() if key else None,
        is_offline=is_on(env.get("QMD_OFFLINE")),
        timeout_s=_positive(env, "QMD_REMOTE_TIMEOUT") or _TIMEOUT_S,
        max_tokens=overrides.max_tokens or _MAX_TOKENS,
        dim=overrides.dim,
        document_prompt=overrides.document_prompt or "",
        query_prompt=overrides.query_prompt or "",
    )


def _positive(env: Mapping[str, str], name: str) -> float | None:
    """Return a variable as a number above 0; None if it is not set."""
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ModelError(f"{name} is '{text}', not a number above 0", f"unset {name}, or write a number")
    return number


def split_url(url: str) -> SplitResult:
    """Return the parts of a model server's address.

    Raises:
        ModelError: If the URL is not http(s), names no host, or contains a password.
    """
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ModelError(f"model server URL '{url}' is not an http address", "write it like http://localhost:8000/v1")
    if parts.username or parts.password:
        # Messages and the engine's description show the address.
        raise ModelError(f"URL of model server '{host}' contains a password", "put the key into QMD_API_KEY")
    return parts


def hide_query(url: str) -> str:
    """Return a URL for messages, without its query, which may be a key."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def is_loopback(host: str) -> bool:
    """Return True for this machine's own addresses."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
