"""Notes as HTML: common markdown, without scripts and requests to other servers."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.ingest.outline import kind_of, read_outline
from qmd.plugins.page.note_html import NoteContext, markdown_html, plain_html, remove_comments

_NAMES = "a blockquote br code del em hr img li mark ol p pre s span strong"
TAGS = {*_NAMES.split()}
TAGS |= {"h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr", "ul"}
ATTRIBUTES = {"align", "alt", "class", "href", "id", "loading", "rel", "src", "start", "target", "title", "width"}


def find_word(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer("word", text)]


NOTES = {"Beds": "/?note=beds", "sub/frost dates.md": "/?note=frost"}
AROUND = NoteContext(find_word, notes=NOTES, picture=lambda source: f"/page/picture?source={source}")


def html(text: str, around: NoteContext = AROUND) -> str:
    return markdown_html(text, around).strip()


def inline(text: str, around: NoteContext = AROUND) -> str:
    return html(text, around).removeprefix("<p>").removesuffix("</p>")


class Tags(HTMLParser):
    """Return the tags of a text with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def assert_harmless(text: str) -> None:
    for tag, attributes in Tags(text).seen:
        assert tag in TAGS
        assert set(attributes) <= ATTRIBUTES
        assert re.match(r"(?:https?:|mailto:|/\?|#h-)", attributes.get("href") or "#h-", re.I)
        assert (attributes.get("src") or "/page/picture?").startswith("/page/picture?")


def test_what_was_searched_for_is_marked_in_text_and_code() -> None:
    assert inline("A *word* and `word`") == "A <em><mark>word</mark></em> and <code><mark>word</mark></code>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[Beds]]", '<a href="/?note=beds">Beds</a>'),
        ("[[Beds#South side|there]]", '<a href="/?note=beds#h-south-side">there</a>'),
        ("![[Beds]]", '<a href="/?note=beds">Beds</a>'),
        ("[x](<sub/frost dates.md#Last one>)", '<a href="/?note=frost#h-last-one">x</a>'),
        ("[x](#Some-Part)", '<a href="#h-some-part">x</a>'),
        ("[[#Some Part]]", '<a href="#h-some-part">Some Part</a>'),
        ("[x](mailto:a@b.example)", '<a href="mailto:a@b.example" target="_blank" rel="noopener noreferrer">x</a>'),
        ("[[Nowhere]]", '<span class="gone" title="Nowhere is not a note in the index">Nowhere</span>'),
        ("[x](ftp://a.example)", '<span class="gone" title="ftp://a.example is not a note in the index">x</span>'),
        ("[[]] [[a\nb]]", "[[]] [[a\nb]]"),
    ],
)
def test_a_link_leads_to_the_web_a_note_or_a_heading_and_else_nowhere(text: str, expected: str) -> None:
    assert inline(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("![Figure 1](c.png)", '<img src="/page/picture?source=c.png" alt="Figure 1" loading="lazy">'),
        ("![[a b.png|300]]", '<img src="/page/picture?source=a b.png" alt="" loading="lazy" width="300">'),
        (
            "![beds|80](../a%20b.png)",
            '<img src="/page/picture?source=../a b.png" alt="beds" loading="lazy" width="80">',
        ),
        (
            "![far](https://a.example/b.png)",
            '<a class="picture" href="https://a.example/b.png" target="_blank" rel="noopener noreferrer">far</a>',
        ),
        ("![far](//a.example/b.png)", '<span class="picture">far</span>'),
        ("![](data:image/png;base64,AAAA)", '<span class="picture">png;base64,AAAA</span>'),
    ],
)
def test_a_picture_comes_from_this_server_or_is_a_link(text: str, expected: str) -> None:
    assert inline(text) == expected


def test_a_bare_address_is_a_link_and_what_only_looks_like_one_is_none() -> None:
    shown = inline("see https://a.example/b. or main.rs, me@a.example, `https://c.example` javascript:alert(1)")
    link = '<a href="https://a.example/b" target="_blank" rel="noopener noreferrer">https://a.example/b</a>'
    assert shown == f"see {link}. or main.rs, me@a.example, <code>https://c.example</code> javascript:alert(1)"


def test_a_callout_has_a_title_and_no_brackets() -> None:
    shown = html("> [!note]- Mind *this*\n> text\n\n> [!tip]\n> more\n\n> said")
    assert shown.replace("\n", "") == (
        '<blockquote class="callout"><p><strong>Mind <em>this</em></strong><br />text</p></blockquote>'
        '<blockquote class="callout"><p><strong>Tip</strong><br />more</p></blockquote>'
        "<blockquote><p>said</p></blockquote>"
    )


def test_a_line_breaks_where_html_says_so() -> None:
    assert inline("a<br>b<BR/>c <br onload=x> `<br>`") == ("a<br>b<br>c &lt;br onload=x&gt; <code>&lt;br&gt;</code>")


def test_a_badge_is_no_link_inside_of_a_link() -> None:
    shown = inline("[![badge](https://a.example/b.svg)](https://c.example)")
    assert [tag for tag, _ in Tags(shown).seen] == ["a", "span"]


def test_a_passage_has_no_links_and_no_pictures() -> None:
    around = NoteContext(find_word, keeps_links=False)
    shown = inline("[a](https://a.example) [[Beds]] ![b](c.png) ![d](https://e.example/f.png)", around)
    assert {tag for tag, _ in Tags(shown).seen} == {"span"}


def test_tasks_have_boxes_and_tables_keep_the_bars_of_links() -> None:
    assert html("- [ ] sow\n- [x] reap").count("<li>☐ sow</li>\n<li>☑ reap</li>") == 1
    assert '<td align="right"><a href="/?note=beds">there</a></td>' in html("|a|\n|-:|\n|[[Beds\\|there]]|")


def test_the_block_that_was_found_is_known_by_its_line() -> None:
    text = "# A\n\none\n\n- two\n- three\n\nfour"
    for line, found in ((1, "<h1"), (3, "<p"), (6, "<li"), (8, "<p")):
        (start,) = re.findall(r'(<\w+)[^>]* class="here"', html(text, NoteContext(find_word, line=line)))
        assert start == found
    assert '<span class="here">b</span>' in plain_html("a\nb", NoteContext(find_word, line=2))


def test_a_text_that_begins_inside_a_nested_list_is_a_list_and_code_stays_code() -> None:
    text = "    - _one_\n      two\n\n\t1. three\n  - four\n- five"
    shown = html(text, NoteContext(find_word, line=5))
    assert "<pre>" not in shown and "<em>one</em>\ntwo" in shown and '<li class="here">four' in shown
    for code in ("    x = 1\n    - y", "    -x", "    > - x"):
        assert html(code).startswith("<pre>")


def test_front_matter_and_comments_are_not_shown_and_lines_keep_their_numbers() -> None:
    text = "---\na: b\n---\nx <!-- c\nd --> y %% z %%\n```\n<!-- code -->\n```\nend <!-- open"
    outline = read_outline(kind_of("a.md"), text)
    shown = remove_comments(text, outline.front.body_offset, outline.fences)
    assert shown == "\n\n\nx \n y \n```\n<!-- code -->\n```\nend <!-- open"


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg/onload=alert(1)>",
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt&colon;alert(1))",
        "[a](\x01javascript:alert(1))",
        "<javascript:alert(1)>",
        "[[javascript:alert(1)]]",
        '[[a" onmouseover="alert(1)]]',
        '![a" onerror="alert(1)](b.png)',
        '![[a" onerror="alert(1).png]]',
        "[a](data:text/html;base64,PHNjcmlwdD4=)",
        "![a](data:image/svg+xml,<svg/onload=alert(1)>)",
        "[a](vbscript:alert(1)) [b](file:///etc/passwd)",
        '[a](https://b.example/"onclick="alert(1))',
        '```"><script>alert(1)</script>\nx\n```',
        '[a][b]\n\n[b]: javascript:alert(1) "c"',
        "&lt;script&gt;alert(1)&lt;/script&gt;",
    ],
)
def test_nothing_that_a_note_holds_runs_or_leads_astray(text: str) -> None:
    assert_harmless(html(text))
    assert_harmless(plain_html(text, AROUND))


PARTS = ("javascript:", "[[", "]]", "![", "](", "a.png", "onerror=", "script")


@given(st.lists(st.sampled_from([*"[]()!<>\"'|`*#&;:\\\n ", *PARTS])))
def test_no_mixture_of_marks_makes_anything_but_plain_html(pieces: list[str]) -> None:
    assert_harmless(html("".join(pieces)))
