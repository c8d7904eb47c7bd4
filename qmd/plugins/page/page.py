"""Search page: `GET /`, and the parts of it that its script requests.

The server renders every part, so that the page is the same without a script. The page only reads, and escapes text from
notes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable
from functools import cache, partial
from html import escape
from importlib.resources import files
from typing import Protocol, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive

from qmd.app.index import Index
from qmd.errors import NotFoundError, QmdError
from qmd.plugins.page import fragments
from qmd.plugins.page.fragments import View
from qmd.plugins.page.pictures import read_picture
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import CancelledSearch, Listener

T = TypeVar("T")

PREFIX = "/page/"

STAGES = {
    "words": SearchRequest(None, mode="lexical"),
    "meaning": SearchRequest(None, rerank=False, expand=False),
    "best": SearchRequest(None),
}
"""Searches of the page by stage, the fastest first."""

_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""A picture may be SVG, which is an active document when it is opened alone."""


class Runner(Protocol):
    """Function of the server that runs work on the index in a thread, until a timeout or a disconnection."""

    async def __call__(self, receive: Receive, work: Callable[[Listener], T], /) -> T:
        """Run `work`; raise its errors, and `CancelledSearch` once the client has disconnected."""


def page_routes(index: Index, run: Runner) -> list[Route]:
    """Return the routes of the page for a Starlette application."""
    page = _Page(index, run)
    answers = {
        "/": page.whole,
        f"{PREFIX}hits": page.hits,
        f"{PREFIX}note": page.note,
        f"{PREFIX}picture": page.picture,
    }
    return [Route(path, partial(_answer, answer), methods=["GET"]) for path, answer in answers.items()]


async def _answer(answer: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    """Answer a request of the page itself, or of a user who follows a link to it; refuse other pages."""
    is_visit = request.url.path == "/" and request.headers.get("sec-fetch-dest", "document") == "document"
    if _is_cross_origin(request) and not is_visit:
        return PlainTextResponse("Forbidden: request from another page", status_code=403)
    try:
        response = await answer(request)
    except CancelledSearch:
        # The user has typed another query.
        return Response()
    for name, value in _headers().items():
        response.headers.setdefault(name, value)
    return response


def _is_cross_origin(request: Request) -> bool:
    """Return whether another page caused the request; old browsers send `Referer`, as this page never does."""
    default = "cross-site" if "referer" in request.headers else "none"
    return request.headers.get("sec-fetch-site", default) not in ("same-origin", "none")


class _Page(Struct, frozen=True):
    index: Index
    run: Runner

    async def whole(self, request: Request) -> Response:
        """Send the page with the results of its address; lexical search unless the address names a stage."""
        view = _view(request)
        # A link on another page runs no model, or any site could keep the processor busy. The script respects this.
        is_foreign = _is_cross_origin(request) and bool(view.query.strip())
        by = "words" if is_foreign else request.query_params.get("by", "words")
        found = await self._searched(view, by, request)
        if is_foreign:
            more = f'<a href=".{escape(view.address)}&amp;by=best">Search by meaning, too</a>'
            found = f'<p class="message" id="foreign">From another page: searched by words only. {more}</p>{found}'
        note = await self._opened(view, request) if view.note else ""
        before, value, results, reading = _template()
        text = "".join((before, escape(view.query), value, found, results, note, reading))
        return HTMLResponse(text)

    async def hits(self, request: Request) -> Response:
        return HTMLResponse(await self._searched(_view(request), request.query_params.get("by", "best"), request))

    async def note(self, request: Request) -> Response:
        return HTMLResponse(await self._opened(_view(request), request))

    async def picture(self, request: Request) -> Response:
        collection, note, source = (request.query_params.get(name, "") for name in ("collection", "of", "source"))
        try:
            picture = await self.run(
                request.receive, lambda _: read_picture(self.index.trusted_collections(), collection, note, source)
            )
        except NotFoundError as error:
            return PlainTextResponse(error.message, status_code=404)
        headers = {"content-security-policy": _PICTURE_POLICY}
        return Response(picture.content, media_type=picture.media_type, headers=headers)

    async def _searched(self, view: View, by: str, request: Request) -> str:
        if not view.query.strip():
            return await self._shown(request, lambda _: fragments.render_welcome(self.index))
        stage = STAGES.get(by, STAGES["best"])
        return await self._shown(request, lambda listener: fragments.render_search(self.index, view, stage, listener))

    async def _opened(self, view: View, request: Request) -> str:
        return await self._shown(request, lambda _: fragments.render_note(self.index, view))

    async def _shown(self, request: Request, work: Callable[[Listener], str]) -> str:
        try:
            return await self.run(request.receive, work)
        except QmdError as error:
            return fragments.render_error(error)


def _view(request: Request) -> View:
    given = request.query_params
    line = given.get("line", "")
    return View(given.get("q", ""), given.get("note", ""), int(line) if re.fullmatch(r"\d{1,8}", line) else 0)


@cache
def _template() -> tuple[str, ...]:
    """Return the fixed pieces of the page between the filled-in ones."""
    return tuple(files("qmd.plugins.page").joinpath("page.html").read_text("utf-8").split("<!--filled in-->"))


@cache
def _headers() -> dict[str, str]:
    """Return headers by which only the page's own script runs, and no other page can frame or read it."""
    whole = "".join(_template())
    hashes = {}
    for kind in ("style", "script"):
        (text,) = re.findall(f"<{kind}>(.*?)</{kind}>", whole, re.S)
        hashes[kind] = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; style-src 'sha256-{hashes['style']}'; "
        "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
