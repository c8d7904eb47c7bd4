"""Owner of a connection by account, and a key to the page for browsers whose owner is unknown.

Every account of a machine reaches its loopback ports. Linux lists the sockets with the accounts that own them. An
unlisted connection comes from another system or through a proxy; systems without a list check only browsers.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

IS_OWNER = "is_owner"
"""Key in the `state` of a request's scope: the result of `is_owner` for its connection."""

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"

_logger = logging.getLogger("qmd.http")


def lists_owners() -> bool:
    """Return whether this system shows which account owns a socket."""
    return sys.platform == "linux" and os.access(_TABLES[0], os.R_OK)


def is_owner(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> bool | None:
    """Return whether this account owns the connection from `client` to `server`; None if the system cannot tell."""
    if not lists_owners():
        return None
    if client is None or server is None or server[1] is None:
        return False
    for table in reversed(_TABLES) if ":" in client[0] else _TABLES:
        # A table that is missing, or cannot be opened without free descriptors, is skipped.
        with suppress(OSError), table.open(encoding="ascii") as rows:
            if find_owner(rows, client, (server[0], server[1])) == os.geteuid():
                return True
    return False


def find_owner(rows: Iterable[str], local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """Return the account that owns the socket connected from `local` to `remote`, or None.

    A closed socket stays listed for a while, owned by root and without an inode.
    """
    wanted = [[*ends, _ESTABLISHED] for ends in zip(_table_entries(*local), _table_entries(*remote), strict=True)]
    for fields in map(str.split, rows):
        if fields[1:4] in wanted and len(fields) > 9 and fields[7].isdecimal() and fields[9] != "0":
            return int(fields[7])
    return None


def _table_entries(host: str, port: int) -> list[str]:
    """Format an address as the tables do, in 32-bit words of the processor's byte order; IPv4 also mapped to IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    forms = [address.packed] if address.version == 6 else [address.packed, b"\0" * 10 + b"\xff\xff" + address.packed]
    return [f"{''.join(f'{word:08X}' for (word,) in struct.iter_unpack('=I', form))}:{port:04X}" for form in forms]


class PageKey:
    """One-time address that gives a browser of unknown owner a cookie for the page."""

    def __init__(self) -> None:
        self.address, self._logged, self._cookie = _new_address(), "", secrets.token_urlsafe()

    async def guard(self, page: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Send `page` to the owner's browsers, a cookie to a browser with the key, and a refusal to others."""
        request = Request(scope)
        asked = f"{request.url.path}?{request.url.query}"
        # Browsers share cookies between ports, and each index has its own server.
        name = f"qmd-{request.url.port}"
        has_paid = hmac.compare_digest(request.cookies.get(name, "").encode(), self._cookie.encode())
        answer: ASGIApp = PlainTextResponse("Forbidden: for its owner; the server's terminal or log has the key", 403)
        if has_paid or scope.get("state", {}).get(IS_OWNER):
            answer = page
        elif hmac.compare_digest(asked.encode(), self.address.encode()):
            self.address = _new_address()
            answer = let_in = RedirectResponse("/", 303)
            let_in.set_cookie(name, self._cookie, httponly=True, samesite="strict")
        elif self._logged != self.address:
            # Once per key, or others could fill the owner's screen.
            self._logged = self.address
            _logger.warning("refused a browser that is not known to be yours; if it is, let it open %s", self._logged)
        await answer(scope, receive, send)


def _new_address() -> str:
    return f"/?key={secrets.token_urlsafe()}"
