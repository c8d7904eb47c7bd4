"""Checks of every HTTP request before routing: Host, Origin, bearer token, size of the body.

A web page in the user's browser can reach a server on this machine, directly or by DNS rebinding. The page cannot
forge `Host` and `Origin`, so these two decide, for every route and every bound address.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import json
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct, field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qmd.plugins.mcp.page_key import IS_OWNER, PageKey

MAX_BODY_BYTES = 1024 * 1024
"""Longest request body. Ten long sub-queries take less than 64 KiB."""

MAY_WRITE = "may_write"
"""Key in the `state` of a request's scope. True if the request has the token or comes from the owner, and no web page
sent it, not even a page that may search."""

_FORBIDDEN = -32003
_UNAUTHORIZED = -32001
_BAD_REQUEST = -32600


class Refusal(Struct, frozen=True):
    """Reason to refuse a request: HTTP status, JSON-RPC error code, text."""

    status: int
    code: int
    message: str


_TOO_LARGE_BODY = Refusal(413, _BAD_REQUEST, f"Request body too large: at most {MAX_BODY_BYTES} bytes")


class AccessPolicy(Struct, frozen=True):
    """Hosts, origins and token that the server accepts.

    `allowed_hosts` contains lower-case `name` or `name:port`, `allowed_origins` whole origins such as
    `https://notes.example`. Loopback names are always allowed.
    """

    bind_host: str
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    token: str | None = None
    asks_person: bool = False
    """Browsers may ask the user for the token, as a password for any name."""
    key: PageKey = field(default_factory=PageKey)
    """Key to the page when there is no token."""


def split_list(value: str | None) -> tuple[str, ...]:
    """Split a comma-separated environment variable into lower-case parts, without empty ones."""
    return tuple(part.strip().lower() for part in (value or "").split(",") if part.strip())


def is_loopback(host: str) -> bool:
    """Return whether `host` always names this machine: `localhost`, `*.localhost`, 127/8, `::1`."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def check_request(policy: AccessPolicy, headers: Iterable[tuple[str, str]]) -> Refusal | None:
    """Return the reason to refuse a request with these headers, or None. Header names are lower-case."""
    pairs = list(headers)
    values: Mapping[str, str] = dict(pairs)
    for name in ("host", "origin", "authorization", "content-length"):
        # A proxy in front could read another one of two equal headers.
        if sum(key == name for key, _ in pairs) > 1:
            return Refusal(400, _BAD_REQUEST, f"Bad request: more than one {name} header")
    if "content-length" in values and "transfer-encoding" in values:
        return Refusal(400, _BAD_REQUEST, "Bad request: both Content-Length and Transfer-Encoding")
    return (
        _check_host(policy, values.get("host"))
        or _check_origin(policy, values.get("origin"))
        or _check_token(policy, values.get("authorization"))
        or _check_length(values.get("content-length"))
    )


def _check_host(policy: AccessPolicy, host: str | None) -> Refusal | None:
    if not host:
        return Refusal(400, _FORBIDDEN, "Bad request: missing Host header")
    whole = host.lower()
    name = _host_name(whole)
    if name is not None and (
        is_loopback(name)
        or name in policy.allowed_hosts
        or whole in policy.allowed_hosts
        or _is_own_name(policy.bind_host.strip("[]").lower(), name)
    ):
        return None
    return Refusal(403, _FORBIDDEN, f"Forbidden: Host not allowed: {host}")


def _is_own_name(bind_host: str, name: str) -> bool:
    """Return whether `name` may address a server bound to `bind_host`.

    Rebinding needs a DNS name, so a server bound beyond loopback (which always requires a token) also accepts plain
    addresses. The unspecified address is no name of a host, though some systems route it to this machine.
    """
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == bind_host
    return not address.is_unspecified and not is_loopback(bind_host)


def _host_name(host: str) -> str | None:
    """Return the name in a Host header, without port and brackets; None if the header is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname


def _check_origin(policy: AccessPolicy, origin: str | None) -> Refusal | None:
    if origin is None or origin.lower() in policy.allowed_origins:
        return None
    if "*" in policy.allowed_origins and policy.token is not None:
        # Safe for any page, because no page knows the token.
        return None
    try:
        parts = urlsplit(origin)
        name = parts.hostname
    except ValueError:
        name = None
        parts = urlsplit("")
    # "null" (sandboxed frames, file: pages) has no host and is refused here.
    if name is not None and parts.scheme in ("http", "https") and is_loopback(name):
        return None
    return Refusal(403, _FORBIDDEN, f"Forbidden: Origin not allowed: {origin}")


def _check_token(policy: AccessPolicy, authorization: str | None) -> Refusal | None:
    if policy.token is None:
        return None
    scheme, _, given = (authorization or "").partition(" ")
    given = given.strip()
    if policy.asks_person and scheme.lower() == "basic":
        scheme, given = "bearer", _password(given)
    if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), policy.token.encode()):
        return None
    return Refusal(401, _UNAUTHORIZED, "Unauthorized: send the server's token as 'Authorization: Bearer TOKEN'")


def _check_peer(policy: AccessPolicy, scope: Scope) -> Refusal | None:
    """Refuse other accounts if there is no token; everyone may ask for the server's health."""
    is_open = policy.token is not None or policy.asks_person or scope["path"] == "/health"
    if is_open or scope.get("state", {}).get(IS_OWNER, False) is not False:
        return None
    return Refusal(403, _FORBIDDEN, "Forbidden: this server answers its owner alone; its --token-file lets others in")


def _password(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _check_length(length: str | None) -> Refusal | None:
    if length is None:
        return None
    if not (length.isascii() and length.isdigit()):
        return Refusal(400, _BAD_REQUEST, "Bad request: malformed Content-Length header")
    return _TOO_LARGE_BODY if int(length) > MAX_BODY_BYTES else None


def guard_app(app: ASGIApp, policy: AccessPolicy) -> ASGIApp:
    """Wrap `app` in the checks of `policy`; bodies without a declared length are limited as well."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = [(key.decode("latin-1").lower(), value.decode("latin-1")) for key, value in scope["headers"]]
        refusal = check_request(policy, headers) or _check_peer(policy, scope)
        if refusal is not None:
            await _send_refusal(send, refusal, policy)
            return
        state, sent = scope.get("state", {}), dict(headers)
        is_page = "origin" in sent or sent.get("sec-fetch-site", "none") != "none"
        is_known = policy.token is not None or state.get(IS_OWNER) is True
        scope = {**scope, "state": {**state, MAY_WRITE: is_known and not is_page}}
        try:
            body = await _read_body(receive)
        except ConnectionResetError:
            return
        if body is None:
            await _send_refusal(send, _TOO_LARGE_BODY, policy)
            return
        await app(scope, _replay(body, receive), send)

    return guarded


async def _read_body(receive: Receive) -> bytes | None:
    """Read the whole body; return None once it exceeds `MAX_BODY_BYTES`.

    Raises:
        ConnectionResetError: The client disconnected before the end of the body.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionResetError
        body.extend(message.get("body", b""))
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


async def _send_refusal(send: Send, refusal: Refusal, policy: AccessPolicy) -> None:
    """Send a JSON-RPC error body, which plain HTTP clients can read as well."""
    body = json.dumps(
        {"jsonrpc": "2.0", "error": {"code": refusal.code, "message": refusal.message}, "id": None},
        ensure_ascii=False,
    ).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b'Basic realm="qmd"' if policy.asks_person else b"Bearer"))
    if refusal.status in (400, 413):
        # The end of the body is unknown or not read, so the connection cannot carry another request.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
