"""Search page in a real browser: keys, history, a phone, and a hostile note."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import uvicorn

from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp.http_app import build_app
from qmd.plugins.mcp.http_server import prompt_protocol
from tests.plugins.serving import Loader, make_index
from tests.program import write_notes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

playwright = pytest.importorskip("playwright.sync_api", reason="playwright has no wheel for this platform")
expect = playwright.expect
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

TRAP = """---
title: '<img src=x onerror="hacked=1">'
tags: ['"><script>hacked=1</script>']
---
# Trap of marmalade <script>hacked=1</script>

<script>hacked=1</script> <img src="x" onerror="hacked=1"> <svg onload="hacked=1"></svg>
<iframe srcdoc="<script>parent.hacked=1</script>"></iframe> <style>*{background:url(http://evil.example/s)}</style>
[one](javascript:hacked=1) [two](data:text/html,<script>opener.hacked=1</script>) <javascript:hacked=1>
[[javascript:hacked=1]] [[" onmouseover="hacked=1]] [three](http://evil.example/")
![far](http://evil.example/pixel.png) ![far](//evil.example/p.png) ![[http://evil.example/w.png]]
![data](data:image/svg+xml,<svg/onload=hacked=1>) ![drawn](trap.svg) ![" onerror="hacked=1](none.png)

```"><script>hacked=1</script>
marmalade
```

| a <script>hacked=1</script> |
|--:|
| marmalade |
"""
DRAWN = """<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="parent.hacked=1">
<script>parent.hacked=1</script><image href="http://evil.example/i.png"/><rect width="9" height="9"/></svg>"""
LONG = "a deep folder/" * 9 + "raisins.md"
NOTES = {
    "Beds.md": "# Beds\n\nThe south bed holds tomatoes, which want six hours of sun on every day of the summer.\n\n"
    "## Water\n\nSee [[Soil#Clay]] for how long the clay keeps it.\n",
    "Soil.md": "# Soil\n\nIt is mixed with sand and compost before the tomatoes go in, in the middle of May.\n\n"
    + "More of it.\n\n" * 40
    + "## Clay\n\nClay holds water for a week.\n",
    "Frost.md": "# Frost\n\nTomatoes stay inside until the last frost, which fell on the twentieth of April.\n",
    LONG: "# Raisins\n\nRaisins, and no jam.\n",
    "trap.md": TRAP,
    "trap.svg": DRAWN,
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server of the notes above."""
    folder = tmp_path_factory.mktemp("browsed") / "vault"
    folder.mkdir()
    write_notes(folder, NOTES)
    with make_index(folder.parent / "index.sqlite", folder, Loader()) as index, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        app = build_app(index, AccessPolicy("127.0.0.1"))
        server = uvicorn.Server(uvicorn.Config(app, http=prompt_protocol(), log_config=None))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Without Chromium's sandbox, which containers forbid: it opens only our own pages.
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """Browser page with its requests to other servers and its console errors."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.requests: list[str] = []
        self.foreign: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.address = address

    def stop(self, route: Route) -> None:
        """Block requests to other servers."""
        self.foreign.append(route.request.url)
        route.abort()

    def open(self, path: str = "/") -> Page:
        self.page.goto(self.address + path)
        self.page.wait_for_selector("#q:focus")
        return self.page

    def check(self) -> None:
        assert self.foreign == []
        own = (f"{self.address}/", "data:image/svg+xml,%3Csvg")
        assert [url for url in self.requests if not url.startswith(own)] == []
        # The browser logs the 404 of a missing picture.
        assert [one for one in self.complaints if "404" not in one] == []
        assert self.page.evaluate("typeof hacked") == "undefined"


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    watched = Watched(context.new_page(), address)
    context.route(lambda url: not url.startswith(address), watched.stop)
    yield watched
    watched.check()
    context.close()


def ask(page: Page, query: str) -> None:
    """Type a query and wait for its reranked hits."""
    with page.expect_response(lambda answer: "by=best" in answer.url):
        page.keyboard.type(query)
    page.wait_for_selector("body:not(.busy)")


def chosen(page: Page) -> str:
    return page.inner_text("[role=option][aria-selected=true] .head b")


def test_words_are_answered_while_typing_and_marked(watched: Watched) -> None:
    page = watched.open()
    expect(page.locator("#q")).to_be_focused()
    ask(page, "tomatoes sun")
    assert chosen(page) == "Beds"
    assert page.locator("#hit-1 .passage mark").all_inner_texts() == ["tomatoes", "sun"]
    stages = [re.findall(r"by=(\w+)", url)[0] for url in watched.requests if "q=tomatoes+sun&" in url]
    assert stages == ["words", "meaning", "best"]
    assert page.url.endswith("/?q=tomatoes+sun")


def test_a_stale_answer_never_replaces_a_newer_one(watched: Watched, address: str) -> None:
    page = watched.open()
    held: list[Route] = []
    asked = re.compile(r"/page/hits\?q=frost&")
    page.route(asked, lambda route: held.append(route))
    with page.expect_request(asked):
        page.keyboard.type("frost")
    page.fill("#q", "")
    ask(page, "clay")
    assert held
    for route in held:
        route.fulfill(body='<div id="hits"><a role="option" class="stale">stale</a></div>')
    page.wait_for_timeout(100)
    assert page.locator(".stale").count() == 0
    assert chosen(page) == "Soil"


def test_keys_choose_open_and_close(watched: Watched) -> None:
    page = watched.open()
    ask(page, "tomatoes")
    first = chosen(page)
    page.keyboard.press("ArrowDown")
    second = chosen(page)
    assert first != second
    assert page.get_attribute("#q", "aria-activedescendant") == "hit-2"
    page.keyboard.press("Enter")
    page.wait_for_selector("#note header")
    assert page.inner_text("#note .title") == second
    expect(page.locator("#note")).to_be_focused()
    with page.expect_response(re.compile("/page/note")):
        page.keyboard.press("k")
    expect(page.locator("#note .title")).to_have_text(first)
    page.keyboard.press("Escape")
    assert page.locator("#note header").count() == 0
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert chosen(page) == second
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()


def test_what_is_being_read_stays_chosen_when_a_better_answer_arrives(watched: Watched) -> None:
    page = watched.open()
    held: list[Route] = []
    page.route(re.compile("q=tomatoes.*by=best"), lambda route: held.append(route))
    with page.expect_request(re.compile("q=tomatoes.*by=best")):
        page.keyboard.type("tomatoes")
    first = chosen(page)
    page.keyboard.press("Enter")
    page.wait_for_selector("#note header")
    answer = held[0].fetch()
    one, two = re.findall(r'<a role="option".*?</a>', answer.text(), re.S)[:2]
    held[0].fulfill(body=answer.text().replace(one, "ONE").replace(two, one).replace("ONE", two))
    page.wait_for_selector("body:not(.busy)")
    assert page.locator("[role=option]").nth(1).get_attribute("aria-selected") == "true"
    assert chosen(page) == first


def test_a_link_leads_to_the_heading_of_another_note_and_back_leads_home(watched: Watched) -> None:
    page = watched.open()
    ask(page, "tomatoes sun")
    page.keyboard.press("Enter")
    page.click("#note .text a")
    expect(page.locator("#note .title")).to_have_text("Soil")
    assert page.locator("#h-clay").evaluate("heading => heading.getBoundingClientRect().top < innerHeight")
    assert "Beds" in page.inner_text("#note footer")
    page.go_back()
    expect(page.locator("#note .title")).to_have_text("Beds")
    page.go_back()
    expect(page.locator("#note")).to_be_empty()
    assert page.input_value("#q") == "tomatoes sun"
    page.go_back()
    assert page.input_value("#q") == ""
    page.go_forward()
    page.wait_for_selector("#hit-1 mark")
    assert page.input_value("#q") == "tomatoes sun"


def test_an_address_shows_the_same_again_also_without_script(watched: Watched, browser: Browser, address: str) -> None:
    path = "/?q=tomatoes+sun&note=qmd%3A%2F%2Fvault%2FBeds.md&line=3"
    page = watched.open(path)
    assert page.inner_text("#note .here").startswith("The south bed")
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(address + path)
    assert plain.inner_text("#note .here").startswith("The south bed")
    plain.fill("#q", "clay")
    plain.click("form button")
    assert plain.inner_text("#hit-1 .head b") == "Soil"
    plain.click("#hit-1")
    assert plain.inner_text("#note .title") == "Soil"
    context.close()


def test_a_hostile_note_runs_nothing_and_reaches_nobody(watched: Watched) -> None:
    page = watched.open()
    ask(page, "marmalade")
    watched.check()
    page.keyboard.press("Enter")
    page.wait_for_selector("#note header")
    page.wait_for_load_state("networkidle")
    assert "<script>hacked=1</script>" in page.inner_text("#note")
    for element in page.locator("#note *").all():
        element.dispatch_event("mouseover")
        element.dispatch_event("error")
    links = page.locator("#note a").evaluate_all("links => links.map(link => link.href)")
    assert {link.partition(":")[0] for link in links} == {"http"}
    assert page.locator("#note :is(script, iframe, style, object, embed, form, base, link, meta)").count() == 0
    watched.check()
    drawn = page.locator("#note img").first.get_attribute("src")
    assert drawn is not None
    # An SVG that is opened alone is a document: it may request resources, which the browser then blocks.
    page.goto(watched.address + drawn)
    assert watched.foreign == []
    assert page.evaluate("typeof hacked") == "undefined"
    watched.requests.clear()
    watched.complaints.clear()


def test_a_page_380_pixels_wide_needs_no_scrolling_sideways(watched: Watched) -> None:
    watched.page.set_viewport_size({"width": 380, "height": 700})
    page = watched.open("/?q=marmalade")
    page.wait_for_selector("#hit-1")
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) == 380
    page.click("#hit-1")
    page.wait_for_selector("#note header")
    assert page.evaluate(width) == 380
    assert page.locator("#note").evaluate("note => note.scrollWidth <= note.clientWidth")
    assert not page.locator("#found").is_visible()
    page.click("#note [data-key=Escape]")
    assert page.locator("#hit-1").is_visible()


def test_a_long_path_is_one_line_on_a_phone_and_keeps_its_collection_and_line(watched: Watched) -> None:
    watched.page.set_viewport_size({"width": 390, "height": 844})
    page = watched.open("/?q=marmalade+raisins")
    path = page.locator(f".path[title^='vault/{LONG}:']")
    expect(path).to_be_visible()
    assert path.locator("..").evaluate("where => where.offsetHeight") < 30
    # One reading of both, repeated: the list of hits is drawn again when the ranked answer follows the first.
    widths = "spans => JSON.stringify(spans.map(span => [span.clientWidth > 20, span.scrollWidth > span.clientWidth]))"
    page.wait_for_function(
        f"path => ({widths})([...document.querySelector(path).children]) === '[[true,true],[true,false]]'",
        arg=f".path[title^='vault/{LONG}:']",
    )


def test_a_chip_narrows_the_question(watched: Watched) -> None:
    page = watched.open()
    ask(page, "tomatoes")
    page.evaluate("go('/?q=tomatoes+tag:nothing')")
    page.wait_for_selector("text=No good match found")
    page.click(".chip[aria-current]")
    page.wait_for_selector("#hit-1")
    assert page.input_value("#q") == "tomatoes"


def test_while_the_server_is_gone_the_page_says_so_until_it_answers_again(watched: Watched) -> None:
    watched.page.clock.install()
    page = watched.open()
    ask(page, "tomatoes")
    page.route(re.compile("/page/hits"), lambda route: route.abort("connectionrefused"))
    page.keyboard.type(" sun")
    page.wait_for_selector("text=qmd serve has ended or cannot be reached")
    page.clock.fast_forward(2700)
    assert page.inner_text("#notice")
    page.unroute_all()
    ask(page, " clay")
    assert not page.inner_text("#notice")
    assert all("ERR_CONNECTION_REFUSED" in one for one in watched.complaints)
    watched.complaints.clear()


def test_the_note_that_an_address_opens_is_chosen_in_the_list(watched: Watched) -> None:
    page = watched.open()
    ask(page, "tomatoes")
    page.keyboard.press("ArrowDown")
    name = chosen(page)
    page.keyboard.press("Enter")
    page.wait_for_selector("#note .title")
    with page.expect_response(lambda answer: "by=best" in answer.url):
        page.reload()
    page.wait_for_selector("body:not(.busy)")
    assert chosen(page) == name
