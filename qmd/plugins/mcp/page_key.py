"""Whose program is at the other end of a connection, and a key to the page for browsers of which nobody can say.

Every account of a machine reaches its loopback ports. Linux lists their sockets with the accounts that hold them. What
it does not list comes from another system or through a proxy; where it lists none, browsers alone are asked.
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
"""Where the `state` of a request's scope has what `is_owner` said of its connection."""

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"

_logger = logging.getLogger("qmd.http")


def names_owners() -> bool:
    """Whether this system says which account holds a socket."""
    return sys.platform == "linux" and os.access(_TABLES[0], os.R_OK)


def is_owner(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> bool | None:
    """Whether a program of this account is connected from `client` to `server` now; None where no system tells."""
    if not names_owners():
        return None
    if client is None or server is None or server[1] is None:
        return False
    for table in reversed(_TABLES) if ":" in client[0] else _TABLES:
        # One that is missing, or cannot be opened for want of descriptors, names nobody.
        with suppress(OSError), table.open(encoding="ascii") as rows:
            if holder(rows, client, (server[0], server[1])) == os.geteuid():
                return True
    return False


def holder(rows: Iterable[str], local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """The account whose socket is connected from `local` to `remote`; None where no process holds one.

    A socket that its program has closed stays listed for a while, as one of root's without an inode.
    """
    wanted = [[*ends, _ESTABLISHED] for ends in zip(_spellings(*local), _spellings(*remote), strict=True)]
    for fields in map(str.split, rows):
        if fields[1:4] in wanted and len(fields) > 9 and fields[7].isdecimal() and fields[9] != "0":
            return int(fields[7])
    return None


def _spellings(host: str, port: int) -> list[str]:
    """An address as the tables write it, in words of 32 bits as the processor orders them; IPv4 also mapped to IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    forms = [address.packed] if address.version == 6 else [address.packed, b"\0" * 10 + b"\xff\xff" + address.packed]
    return [f"{''.join(f'{word:08X}' for (word,) in struct.iter_unpack('=I', form))}:{port:04X}" for form in forms]


class PageKey:
    """Lets browsers in that are not known to be the owner's: an address that works once buys a cookie."""

    def __init__(self) -> None:
        self.address, self._told, self._cookie = _new_address(), "", secrets.token_urlsafe()

    async def guard(self, page: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the owner's browsers with `page`, one that has the key with a cookie, and others with a refusal."""
        request = Request(scope)
        asked = f"{request.url.path}?{request.url.query}"
        # Cookies know no ports, and each index has a server of its own.
        name = f"qmd-{request.url.port}"
        has_paid = hmac.compare_digest(request.cookies.get(name, "").encode(), self._cookie.encode())
        answer: ASGIApp = PlainTextResponse("Forbidden: for its owner; the server's terminal or log has the key", 403)
        if has_paid or scope.get("state", {}).get(IS_OWNER):
            answer = page
        elif hmac.compare_digest(asked.encode(), self.address.encode()):
            self.address = _new_address()
            answer = let_in = RedirectResponse("/", 303)
            let_in.set_cookie(name, self._cookie, httponly=True, samesite="strict")
        elif self._told != self.address:
            # Once for each key, or others could fill the owner's screen.
            self._told = self.address
            _logger.warning("refused a browser that is not known to be yours; if it is, let it open %s", self._told)
        await answer(scope, receive, send)


def _new_address() -> str:
    return f"/?key={secrets.token_urlsafe()}"
