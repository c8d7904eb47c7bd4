"""Search page over HTTP: contents without a script, access, and secrets that it never shows."""

import base64
import os
import re
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import date
from html import unescape
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from httpx2 import AsyncClient as Client
from msgspec.structs import replace
from starlette.types import Message

from qmd.app.index import Index
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp.http_app import build_app
from qmd.plugins.page.fragments import View, _chip, _filters, _location, _render_hits, _toggle_filter
from qmd.records import Hit, Mention, Passage, Query, SearchResponse, StoredDocument
from tests.plugins.mcp.test_http import running
from tests.plugins.serving import Loader, known_as, make_index
from tests.program import write_notes

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n"
ADDRESSES = ("/", "/page/hits", "/page/note", "/page/picture")
NOTES = {
    "plan.md": "---\ntags: [garden]\ndate: 2026-03-14\n---\n# Plan\n\nTomatoes want sun for six hours of every "
    "summer day, and to be watered deeply twice a week. [[Soil]] ![[img/bed.png]]\n",
    "Soil.md": "# Soil\n\nClay holds water, says [the plan](plan.md).\n",
    "img/bed.png": "",
    "notes.txt": "tomatoes <b>plain</b>\n",
}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """Folder of notes and a picture."""
    folder = write_notes(tmp_path / "vault", NOTES)
    (folder / "img" / "bed.png").write_bytes(PNG)
    return folder


@pytest.fixture
def garden(vault: Path, loader: Loader) -> Iterator[Index]:
    with make_index(vault.parent / "index.sqlite", vault, loader) as index:
        yield index


@pytest.fixture
async def client(garden: Index, policy: AccessPolicy) -> AsyncIterator[Client]:
    async with running(garden, policy) as opened:
        yield opened


def visible(html: str) -> str:
    html = re.sub("</?span>", "", html)  # inside a location
    return " ".join(
        unescape(re.sub(r"<(?:script|style)>.*?</(?:script|style)>|<[^>]+>", " ", html, flags=re.S)).split()
    )


async def test_a_query_in_the_address_is_answered_without_a_script(client: Client) -> None:
    answer = await client.get("/", params={"q": "tomatoes sun", "by": "best"})
    assert answer.status_code == 200
    assert 'value="tomatoes sun"' in answer.text
    assert "<mark>Tomatoes</mark> want <mark>sun</mark>" in answer.text
    assert "vault/plan.md:7 2026-03-14" in visible(answer.text)


async def test_a_note_shows_its_text_links_and_neighbours(client: Client) -> None:
    answer = await client.get("/", params={"q": "sun", "note": "qmd://vault/plan.md", "line": "7"})
    note = answer.text.partition('<article id="note"')[2]
    assert '<a href="/?q=sun&amp;note=qmd%3A%2F%2Fvault%2FSoil.md">Soil</a>' in note
    assert '<img src="/page/picture?collection=vault&amp;of=plan.md&amp;source=img%2Fbed.png"' in note
    assert '<p class="here">' in note
    assert "tags:" not in visible(note)
    assert note.count("Plan</") == 1
    assert "Links to Soil vault/Soil.md Linked from Soil vault/Soil.md" in visible(note)


async def test_the_first_page_lists_the_newest_notes(client: Client) -> None:
    answer = await client.get("/")
    assert "3 notes, the newest first" in visible(answer.text)
    assert answer.text.count('id="hit-') == 3
    assert "strong" not in visible(answer.text)


async def test_an_index_of_nothing_says_how_to_begin(tmp_path: Path, loader: Loader, policy: AccessPolicy) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with make_index(tmp_path / "index.sqlite", empty, loader) as index:
        async with running(index, policy) as client:
            assert "Nothing is indexed yet. qmd index FOLDER" in visible((await client.get("/")).text)


async def test_of_a_list_without_a_good_match_the_closest_two_are_shown(client: Client) -> None:
    answer = await client.get("/page/hits", params={"q": "zeppelin"})
    assert visible(answer.text).startswith("No good match found.")
    assert answer.text.count('id="hit-') <= 2


@pytest.mark.parametrize(
    ("query", "expected"), [('lex: "open', "unmatched double quote"), ("x" * 20_000, "at most 16,384 are allowed")]
)
async def test_what_is_wrong_with_a_query_is_said_on_the_page(client: Client, query: str, expected: str) -> None:
    answer = await client.get("/page/hits", params={"q": query})
    assert expected in visible(answer.text)


async def test_a_long_note_is_shown_around_the_found_line(tmp_path: Path, loader: Loader, policy: AccessPolicy) -> None:
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / "long.md").write_text("".join(f"Paragraph {number}.\n\n" for number in range(30_000)), encoding="utf-8")
    with make_index(tmp_path / "index.sqlite", folder, loader) as index:
        async with running(index, policy) as client:
            answer = await client.get("/page/note", params={"note": "qmd://vault/long.md", "line": "40001"})
    assert "A long note: this is the part around line 40001." in answer.text
    assert '<p class="here">Paragraph 20000.</p>' in answer.text
    assert "Paragraph 29000." not in answer.text
    assert "Paragraph 10." not in answer.text


async def test_an_open_note_lists_its_equally_good_parts(tmp_path: Path, loader: Loader, policy: AccessPolicy) -> None:
    folder = tmp_path / "vault"
    folder.mkdir()
    part = "## {} & co\n\nA hérons nest, " + "and on, " * 40 + "a stork & an {}.\n\n"
    parts = "".join(part.format(name, name.lower()) for name in ("Ash", "Birch", "Cedar", "Elm"))
    text = f"---\ntags: [heron, stork]\n---\n# Birds\n\nheron\n\n{parts}## Heron and stork\n\nOnly\n\n## Stork\n"
    (folder / "birds.md").write_text(text, encoding="utf-8")
    (folder / "owl.md").write_text("# Owl\n\nowls\n\n## Nest\n\nowl\n", encoding="utf-8")

    async def places(client: Client, query: str, line: int, note: str = "birds") -> tuple[str, list[str]]:
        given = {"q": query, "note": f"qmd://vault/{note}.md", "line": str(line)}
        html = (await client.get("/page/note", params=given)).text
        found = re.search(r'<details class="places"(.*?)>(.*?)</details>', html)
        return (found[1], re.findall("<li>.*?</li>", found[2])) if found else ("", [])

    with make_index(tmp_path / "index.sqlite", folder, loader) as index:
        async with running(index, policy) as client:
            mode, rows = await places(client, "heron stork", 10)
            few, twice = await places(client, "owl", 3, "owl")
            others = await places(client, "heron ash", 10)
    assert (mode, few) == ("", " open")
    names = [visible(row.partition("<small>")[0]) for row in rows]
    assert names == [*(f"{name} & co" for name in ("Ash", "Birch", "Cedar", "Elm")), "Heron and stork"]
    assert 'href="/?q=heron+stork&amp;note=qmd%3A%2F%2Fvault%2Fbirds.md&amp;line=10"' in rows[0]
    assert "<mark>hérons</mark>" in rows[0] and "Ash &amp; co" in rows[0]
    assert rows[-1].endswith("<small>:24</small> </li>")
    assert (len(twice), others) == (2, ("", []))


async def test_a_note_that_is_gone_is_said_to_be(client: Client) -> None:
    answer = await client.get("/page/note", params={"note": "qmd://vault/<b>.md"})
    assert "Document not found: qmd://vault/<b>.md" in visible(answer.text)
    assert "<b>" not in answer.text


async def test_filters_go_into_the_query_and_out_of_it(client: Client) -> None:
    shown = (await client.get("/page/hits", params={"q": 'sun tag:GARDEN since:"last year"'})).text
    chips = re.findall(r'class="chip" href="([^"]+)" aria-current="true">([^<]+)', shown)
    off = {label: unescape(href) for href, label in chips}
    assert off == {"#GARDEN": "/?q=sun+since%3A%22last+year%22", "last year": "/?q=sun+tag%3AGARDEN"}
    assert _toggle_filter("sun tag:a since:x tag:b", "since:y") == "sun tag:a tag:b since:y"
    assert _toggle_filter("sun tag:a tag:b", "tag:A") == "sun tag:b"


def found(number: int, relevance: float, collection: str, tags: Sequence[str], date: str | None = None) -> Hit:
    document = StoredDocument(number, collection, "a.md", "A", "0", "2026-01-01", 1, {"tags": tuple(tags)}, date)
    return Hit(document, relevance, Passage("text", 1, 1, 1, 0, 0), None)


def test_the_next_session_is_a_result_of_its_own_below_and_opens_at_its_line(garden: Index) -> None:
    hit = found(1, 0.9, "vault", [])
    place = Mention(replace(hit.document, path='<b>"x\n.md'), 12, "<script>12</script>\n<p>\u202e")
    html = _render_hits(garden, View("sun"), SearchResponse(Query("sun"), (replace(hit, continues=place),), "good"))
    first, second = re.findall('(?s)<a role="option".*?</a>', html)
    assert 'id="hit-1"' in first and "continues" not in first
    assert 'id="next-1"' in second and "line=12" in second
    assert visible(second) == 'continues: vault/<b>"x%0A.md:12 "<script>12</script> <p>\\u202e"'
    assert "<script" not in html


def test_filters_narrow_the_answer_and_belong_to_its_good_hits() -> None:
    hits = [
        found(1, 0.9, "diary", ["beds", "all", "once"], f"{date.today()}"),
        found(2, 0.6, "vault", ["soil", "beds", "all"], "1999"),
        found(3, 0.6, "vault", ["soil", "Beds", "all"]),
        found(4, 0.1, "other", ["weak", "all"]),
        found(5, 0.1, "other", ["weak", "all"]),
    ]
    dates = ['since:"last month"', 'since:"last year"']
    assert _filters(hits) == ["collection:vault", "collection:diary", "tag:beds", "tag:soil", *dates]
    assert _filters(hits[3:]) == _filters(hits[:1]) == _filters([]) == []
    assert _filters([*hits[3:], found(6, 0.1, "third", ["weak"])]) == [
        "collection:other",
        "collection:third",
        "tag:all",
    ]


def test_no_filter_is_offered_that_cannot_be_typed() -> None:
    hits = [found(number, 0.9, "a", ['a"b', "<i>", "a\nb", 'tag:x"']) for number in (1, 2)]
    assert _filters([*hits, found(3, 0.9, "a", [])]) == ["tag:<i>"]
    assert _chip("", 'tag:<i>"\u202e') == '<a class="chip" href="/?">#&lt;i&gt;&quot;\\u202e</a>'


def test_a_location_is_one_line_that_can_lose_its_folders() -> None:
    document = StoredDocument(1, "notes", 'a <b>/"c" & \'\n\x1b[2J.md', "A", "0", "2026-01-01", 1)
    shown = _location(document, ":7")
    assert re.findall("<[^>]*>", shown)[1:] == ["<span>", "</span>", "<span>", "</span>", "</span>"]
    (title,) = re.findall('^<span class="path" title="([^"]*)">', shown)
    assert unescape(title) == unescape(re.sub("<[^>]*>", "", shown)) == 'notes/a <b>/"c" & \'%0A%1B[2J.md:7'
    assert "<span>notes/a &lt;b&gt;/</span>" in shown


async def test_a_bar_has_a_name_and_every_note_a_date(client: Client) -> None:
    shown = (await client.get("/page/hits", params={"q": "plan", "by": "words"})).text
    bars = re.findall(r'<svg class="bar" role="img" aria-label="\d+%">', shown)
    assert len(bars) == shown.count("<svg") == shown.count("<time>") > 1
    assert "<time>2026-03-14</time>" in shown
    assert re.search(r"<time>changed \d{4}-\d\d-\d\d</time>", shown)


async def test_only_collections_with_hits_are_offered(tmp_path: Path, loader: Loader, policy: AccessPolicy) -> None:
    for number in range(20):
        (tmp_path / f"c{number}").mkdir()
        (tmp_path / f"c{number}" / "n.md").write_text(f"# Note {number}\n\n{'heron' if number > 16 else 'stork'}\n")
    with make_index(tmp_path / "index.sqlite", tmp_path / "c0", loader) as index:
        for number in range(1, 20):
            index.add_collection(f"c{number}", tmp_path / f"c{number}")
        index.update()
        async with running(index, policy) as client:
            answer = await client.get("/page/hits", params={"q": "heron", "by": "words"})
    offered = re.findall(r'class="chip"[^>]*>([^<]+)', answer.text)
    assert sorted(offered) == ["in c17", "in c18", "in c19"]


async def test_a_marked_title_is_shown_once(tmp_path: Path, loader: Loader, policy: AccessPolicy) -> None:
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / "a.md").write_text("# Of a heron & others\n\ntext\n", encoding="utf-8")
    with make_index(tmp_path / "index.sqlite", folder, loader) as index:
        async with running(index, policy) as client:
            answer = await client.get("/page/note", params={"note": "qmd://vault/a.md", "q": "heron"})
    assert "<h1" not in answer.text


async def test_hidden_characters_are_shown(tmp_path: Path, loader: Loader, policy: AccessPolicy) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.md").write_bytes("# kiwi \u202eevil\u2028\n\nkiwi \u2066one\rtwo\n".encode())
    with make_index(tmp_path / "index.sqlite", tmp_path / "notes", loader) as index:
        async with running(index, policy) as client:
            for address in ("/page/hits?q=kiwi", "/page/note?note=notes/x.md"):
                shown = (await client.get(address)).text
                assert r"\u202eevil" in shown and r"\u2066one\x0dtwo" in shown
                assert not {*"\u202e\u2028\u2066\r"} & {*shown}


async def test_every_answer_of_the_page_forbids_what_it_does_not_need(client: Client, policy: AccessPolicy) -> None:
    for address in ADDRESSES:
        headers = (await client.get(address)).headers
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        policies = headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"} <= set(policies)
        assert "unsafe" not in headers["content-security-policy"]


async def test_a_question_that_was_typed_over_is_given_up(garden: Index, policy: AccessPolicy, loader: Loader) -> None:
    begun, block = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        block.wait(20)

    loader.before_scoring = wait
    asked: list[Message] = [{"type": "http.request"}]
    answers: list[Message] = []

    async def receive() -> Message:
        if asked:
            return asked.pop()
        assert await anyio.to_thread.run_sync(begun.wait, 20)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        answers.append(message)

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "path": "/page/hits", "headers": headers}
    with anyio.fail_after(10):
        app = known_as(build_app(garden, policy))
        await app({**scope, "query_string": b"q=tomatoes+water"}, receive, send)
    block.set()
    assert b"hit-1" not in b"".join(answer.get("body", b"") for answer in answers)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_other_pages_can_neither_ask_nor_embed(client: Client, site: str) -> None:
    for address in ADDRESSES:
        answer = await client.get(address, headers={"sec-fetch-site": site, "sec-fetch-dest": "iframe"})
        assert answer.status_code == 403, address
    followed = await client.get("/?q=sun", headers={"sec-fetch-site": site, "sec-fetch-dest": "document"})
    assert followed.status_code == 200
    own = await client.get("/page/hits?q=sun", headers={"sec-fetch-site": "same-origin"})
    assert own.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "same-site", "sec-fetch-dest": "document"},
        # A browser that does not send `Sec-Fetch-Site`.
        {"referer": "https://evil.example/"},
    ],
)
async def test_a_link_of_another_page_runs_no_model(client: Client, loader: Loader, headers: dict[str, str]) -> None:
    led = await client.get("/?q=tomatoes+sun&by=best", headers=headers)
    assert loader.loads == []
    assert "plan.md:7" in visible(led.text)
    assert "searched by words only. Search by meaning, too" in visible(led.text)
    (more,) = re.findall(r'<a href="\.(/[^"]*)">Search by meaning', led.text)
    empty = await client.get("/", headers=headers)
    assert "Search by meaning" not in visible(empty.text)
    own = await client.get(unescape(more), headers={"sec-fetch-site": "same-origin", "sec-fetch-dest": "document"})
    assert "Search by meaning" not in visible(own.text)
    assert loader.loads != []


async def test_a_page_that_its_browser_does_not_name_cannot_show_pictures(client: Client) -> None:
    given = picture("img/bed.png")
    embedded = await client.get("/page/picture", params=given, headers={"referer": "http://evil.example/"})
    assert embedded.status_code == 403


@pytest.mark.parametrize("note", ["a\0b", "\0", "./a\0.md", "~a\0/b.md", "/tmp/\0", "qmd://vault/\0", "vault/\0:3"])
async def test_a_reference_with_nul_is_not_found(client: Client, caplog: pytest.LogCaptureFixture, note: str) -> None:
    for address in ("/", "/page/note"):
        answer = await client.get(address, params={"note": note})
        assert answer.status_code == 200
        assert "not found" in visible(answer.text).lower()
    assert not [record for record in caplog.records if record.exc_info]


async def test_the_page_only_reads(client: Client) -> None:
    for address in ADDRESSES:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert (await client.request(method, address)).status_code == 405


async def test_a_browser_gives_the_token_as_a_password_and_on_the_page_alone(garden: Index) -> None:
    def basic(token: str) -> dict[str, str]:
        return {"authorization": "Basic " + base64.b64encode(f"me:{token}".encode()).decode()}

    async with running(garden, AccessPolicy("127.0.0.1", token="s3cret")) as client:
        for address in ADDRESSES[:3]:
            refused = await client.get(address, headers=basic("wrong"))
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == 'Basic realm="qmd"'
            assert (await client.get(address, headers={"authorization": "Basic ???"})).status_code == 401
            assert (await client.get(address, headers=basic("s3cret"))).status_code == 200
        assert (await client.get("/health", headers=basic("s3cret"))).status_code == 401


def picture(source: str, of: str = "plan.md", collection: str = "vault") -> dict[str, str]:
    return {"collection": collection, "of": of, "source": source}


async def test_a_picture_is_found_from_the_note_and_from_the_top(client: Client, policy: AccessPolicy) -> None:
    for given in (picture("img/bed.png"), picture("../img/bed.png", "img/x.md"), picture("/img/bed.png", "img/x.md")):
        answer = await client.get("/page/picture", params=given)
        assert (answer.status_code, answer.content) == (200, PNG)
        assert answer.headers["content-type"] == "image/png"
        assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
async def test_nothing_but_pictures_of_the_collection_is_given_out(client: Client, vault: Path) -> None:
    outside = vault.parent / "outside.png"
    outside.write_bytes(PNG)
    (vault / "link.png").symlink_to(outside)
    (vault / "folder").symlink_to(vault.parent)
    (vault / "text.png").symlink_to(vault / "notes.txt")
    (vault / "round.png").symlink_to(vault / "round.png")
    os.mkfifo(vault / "pipe.png")
    (vault / ".git").mkdir()
    (vault / ".git" / "hidden.png").write_bytes(PNG)
    sources = ["../outside.png", str(outside), "link.png", "folder/outside.png", "text.png", "round.png", "pipe.png"]
    sources += [".git/hidden.png", "notes.txt", "plan.md", "img", "", "a\0.png", "x" * 5000 + ".png", "..\\outside.png"]
    for source in sources:
        assert (await client.get("/page/picture", params=picture(source))).status_code == 404, source
    assert (await client.get("/page/picture", params=picture("img/bed.png", collection="none"))).status_code == 404
    assert (await client.get("/page/picture", params=picture("img/bed.png", of="../../x.md"))).status_code == 200
    assert (await client.get("/page/picture")).status_code == 404


async def test_a_process_that_only_answers_commands_has_no_page(garden: Index, policy: AccessPolicy) -> None:
    async with running(garden, policy, has_page=False) as client:
        for address in ADDRESSES:
            assert (await client.get(address)).status_code == 404
