"""The page on which a person searches: `GET /`, and the parts of it that its script asks for.

Every part is made here, so that the page is the same without a script. All of it only reads, and what it shows of notes
is escaped.
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
from qmd.app.searching import SearchRequest
from qmd.errors import NotFoundError, QmdError
from qmd.plugins.page import fragments
from qmd.plugins.page.fragments import View
from qmd.plugins.page.pictures import read_picture
from qmd.retrieval.trace import CancelledSearch, Listener

T = TypeVar("T")

PREFIX = "/page/"

STAGES = {
    "words": SearchRequest(None, mode="lexical"),
    "meaning": SearchRequest(None, rerank=False, expand=False),
    "best": SearchRequest(None),
}
"""How a search is asked for by the page, the fastest way first."""

_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""A picture may be SVG, which is a document where it is opened by itself."""


class Runner(Protocol):
    """How the server runs what a request needs of the index: in a thread, while there is time and somebody waits."""

    async def __call__(self, receive: Receive, work: Callable[[Listener], T], /) -> T:
        """The result of `work`; raises what that raises, and `CancelledSearch` once the client has gone."""


def page_routes(index: Index, run: Runner) -> list[Route]:
    """What a Starlette application has to route."""
    page = _Page(index, run)
    answers = {
        "/": page.whole,
        f"{PREFIX}hits": page.hits,
        f"{PREFIX}note": page.note,
        f"{PREFIX}picture": page.picture,
    }
    return [Route(path, partial(_answer, answer), methods=["GET"]) for path, answer in answers.items()]


async def _answer(answer: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    """The answer to a request of the page itself, or to a person who follows a link to it; to no other page."""
    is_visit = request.url.path == "/" and request.headers.get("sec-fetch-dest", "document") == "document"
    if _is_cross_origin(request) and not is_visit:
        return PlainTextResponse("Forbidden: a request of another page", status_code=403)
    try:
        response = await answer(request)
    except CancelledSearch:
        # Nobody waits for the answer to what has been typed over.
        return Response()
    for name, value in _headers().items():
        response.headers.setdefault(name, value)
    return response


def _is_cross_origin(request: Request) -> bool:
    """Whether another page sent or led the browser here; one that does not tell may name it, as this page never is."""
    unsaid = "cross-site" if "referer" in request.headers else "none"
    return request.headers.get("sec-fetch-site", unsaid) not in ("same-origin", "none")


class _Page(Struct, frozen=True):
    index: Index
    run: Runner

    async def whole(self, request: Request) -> Response:
        """The page with the answer to what its address asks; by words alone unless that says otherwise."""
        view = _view(request)
        # A link of another page runs no model, or any site could keep the processor busy. The script heeds it.
        is_led = _is_cross_origin(request) and bool(view.query.strip())
        by = "words" if is_led else request.query_params.get("by", "words")
        found = await self._searched(view, by, request)
        if is_led:
            more = f'<a href=".{escape(view.address)}&amp;by=best">Search by meaning, too</a>'
            found = f'<p class="said" id="led">A link of another page: searched by words alone. {more}</p>{found}'
        note = await self._opened(view, request) if view.note else ""
        before, value, results, reading = _template()
        text = "".join((before, escape(view.query), value, found, results, note, reading))
        return HTMLResponse(text)

    async def hits(self, request: Request) -> Response:
        return HTMLResponse(await self._searched(_view(request), request.query_params.get("by", "best"), request))

    async def note(self, request: Request) -> Response:
        return HTMLResponse(await self._opened(_view(request), request))

    async def picture(self, request: Request) -> Response:
        given = request.query_params
        try:
            picture = await self.run(
                request.receive,
                lambda _: read_picture(
                    self.index.trusted_collections(),
                    given.get("collection", ""),
                    given.get("of", ""),
                    given.get("source", ""),
                ),
            )
        except NotFoundError as error:
            return PlainTextResponse(error.message, status_code=404)
        headers = {"content-security-policy": _PICTURE_POLICY}
        return Response(picture.content, media_type=picture.media_type, headers=headers)

    async def _searched(self, view: View, by: str, request: Request) -> str:
        if not view.query.strip():
            return await self._shown(request, lambda _: fragments.welcome(self.index))
        stage = STAGES.get(by, STAGES["best"])
        return await self._shown(request, lambda listener: fragments.search(self.index, view, stage, listener))

    async def _opened(self, view: View, request: Request) -> str:
        return await self._shown(request, lambda _: fragments.open_note(self.index, view))

    async def _shown(self, request: Request, work: Callable[[Listener], str]) -> str:
        try:
            return await self.run(request.receive, work)
        except QmdError as error:
            return fragments.failure(error)


def _view(request: Request) -> View:
    given = request.query_params
    line = given.get("line", "")
    return View(given.get("q", ""), given.get("note", ""), int(line) if re.fullmatch(r"\d{1,8}", line) else 0)


@cache
def _template() -> tuple[str, ...]:
    """The page in the pieces that stand between what is filled in."""
    return tuple(files("qmd.plugins.page").joinpath("page.html").read_text("utf-8").split("<!--filled in-->"))


@cache
def _headers() -> dict[str, str]:
    """What keeps the page from running or fetching anything but itself, and others from framing or reading it."""
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
