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
from typing import Literal, TypeAlias

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

Peer: TypeAlias = Literal["owner", "other", "unnamed"]
"""This account; another one, or nobody of this system; `unnamed` where the system names no owners."""

PEER = "peer"
"""Under which the `state` of a request's scope says who made its connection; without it, another one did."""

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"

_logger = logging.getLogger("qmd.http")


def names_owners() -> bool:
    """Whether this system says which account holds a socket."""
    return sys.platform == "linux" and os.access(_TABLES[0], os.R_OK)


def peer_of(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> Peer:
    """Who made the connection between two addresses, at the time of the call; without an address, nobody of ours.

    It takes milliseconds: the system looks through all places where a socket could be.
    """
    if not names_owners():
        return "unnamed"
    if client is None or server is None or server[1] is None:
        return "other"
    for table in reversed(_TABLES) if ":" in client[0] else _TABLES:
        # One that is missing, or cannot be opened for want of descriptors, names nobody.
        with suppress(OSError), table.open(encoding="ascii") as rows:
            if holder(rows, client, (server[0], server[1])) == os.geteuid():
                return "owner"
    return "other"


def holder(rows: Iterable[str], local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """The account whose socket is connected from `local` to `remote`; None where no process holds one.

    A socket that its program has closed stays listed for a while, as one of root's without an inode.
    """
    wanted = [[*ends, _ESTABLISHED] for ends in zip(_spellings(*local), _spellings(*remote), strict=True)]
    for row in rows:
        # The rest of a row is cut only where it can be the one.
        if row.split(None, 4)[1:4] in wanted:
            fields = row.split()[7:10:2]
            if len(fields) == 2 and all(map(str.isdecimal, fields)) and int(fields[1]):
                return int(fields[0])
    return None


def _spellings(host: str, port: int) -> list[str]:
    """An address as the tables write it, in words of 32 bits as the processor orders them; IPv4 also mapped to IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    forms = [address.packed] if address.version == 6 else [address.packed, b"\0" * 10 + b"\xff\xff" + address.packed]
    return [f"{''.join(f'{word:08X}' for (word,) in struct.iter_unpack('=I', form))}:{port:04X}" for form in forms]


class PageKey:
    """Lets in the browsers that are not known to be the owner's: a key that works once buys a cookie."""

    def __init__(self) -> None:
        self._cookie = secrets.token_urlsafe()
        self._renew()

    def _renew(self) -> None:
        self._key = secrets.token_urlsafe()
        self._is_told = False

    @property
    def address(self) -> str:
        """Where the page lets a browser in, once."""
        return f"/?key={self._key}"

    def guard(self, page: ASGIApp) -> ASGIApp:
        """`page`, for the owner's browsers."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope)
            # Cookies know no ports, and each index has a server of its own.
            name = f"qmd-{request.url.port}"
            has_paid = hmac.compare_digest(request.cookies.get(name, "").encode(), self._cookie.encode())
            is_known = scope.get("state", {}).get(PEER) == "owner" or has_paid
            await (page if is_known else self._answer(request, name))(scope, receive, send)

        return guarded

    def _answer(self, request: Request, name: str) -> Response:
        given = request.query_params.get("key", "")
        if request.url.path == "/" and hmac.compare_digest(given.encode(), self._key.encode()):
            self._renew()
            rest = request.url.remove_query_params("key").query
            answer: Response = RedirectResponse(f"/?{rest}" if rest else "/", 303)
            answer.set_cookie(name, self._cookie, httponly=True, samesite="strict")
        else:
            # Once for each key, or others could fill the owner's screen.
            if not self._is_told:
                _logger.warning(
                    "refused a browser that is not known to be yours; if it is, let it open %s", self.address
                )
            self._is_told = True
            told = "Forbidden: this page is for its owner; where the server runs, its terminal or log tells the way in"
            answer = PlainTextResponse(told, 403)
        answer.headers["cache-control"] = "no-store"
        return answer
