"""HTML as markdown: the text of a page, the targets of its lines and links, and pages made to break a reader."""

from pathlib import Path

import pytest

from qmd.errors import UnindexableFileError
from qmd.plugins.readers.texts import MAX_CHARACTERS
from qmd.records import Heading
from tests.parsing import parse_document
from tests.program import Qmd, write_notes

PAGE = """<!DOCTYPE html>
<html><head><title>Oven guide | Bakery</title><style>b { color: red }</style>
<script>var secret = '<p>scripted</p>';</script></head><body>
<header><nav><ul><li><a href="index.html">Home</a></ul></nav></header><!-- <p>commented</p> -->
<div aria-hidden="true">unseen</div><div role="navigation">aside <div>deeper</div></div>
<main><h1>Oven <em>guide</em></h1>
<p>Heat &amp; steam:&nbsp; see <a href="bread.html#rise">how bread
 rises</a>, <a href="javascript:alert(1)">bad</a>.<br># no heading
<ul><li>one<li><p>two</p><ol><li>first<li>second</ol></ul>
<table><caption>Heat</caption><tr><th>Bread<th>&deg;C<tr><td>Rye | dark<td><p>230</p><p>up</table>
<pre><code class="language-python">def f():
    return "&lt;x&gt;"</code></pre>
<blockquote>Quoted<br>twice</blockquote>
<table><tr><td><h2>Care</h2><td>Let it cool</table>
<p>Run <code>oven --on</code> <img src="a.png" alt="An oven"><img src="data:x" alt="Dot"></main>
<footer>Imprint</footer>"""

MARKDOWN = """# Oven guide

Heat & steam: see [how bread rises](bread.html#rise), bad.
\\# no heading

- one
- two
    1. first
    2. second

Heat

| Bread | °C |
| --- | --- |
| Rye \\| dark | 230 up |

```python
def f():
    return "<x>"
```

> Quoted
> twice

## Care

Let it cool

Run `oven --on` ![An oven](a.png)Dot
"""


def text_of(page: str) -> str:
    return parse_document("page.html", page.encode()).text


def test_a_page_is_read_as_the_markdown_that_it_shows() -> None:
    document = parse_document("page.html", PAGE.encode())
    assert document.text == MARKDOWN
    assert (document.title, document.title_source) == ("Oven guide", "heading")
    assert [heading.text for heading in document.headings] == ["Oven guide", "Care"]
    assert [(link.target, link.fragment, link.text, link.line, link.is_embed) for link in document.links] == [
        ("bread.html", "rise", "how bread rises", 3, False),
        ("a.png", "", "An oven", 29, True),
    ]


def test_the_title_of_a_page_names_it_where_no_heading_does() -> None:
    document = parse_document("page.html", b'<title>Prices "2026": \n all</title><p>Rye: 4')
    assert (document.title, document.warnings) == ('Prices "2026": all', ())
    assert document.text == '---\ntitle: "Prices \\"2026\\": all"\n---\n\nRye: 4\n'
    titled = parse_document("page.html", b"<h1>First</h1><p>x<h1>Second</h1>")
    assert (titled.title, titled.headings[1]) == ("First", Heading(1, "Second", 12))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("<meta charset=windows-1251><p>хлеб".encode("cp1251"), "хлеб"),
        ('<?xml version="1.0" encoding="iso-8859-1"?><p>“Brötchen”'.encode("cp1252"), "“Brötchen”"),
        ("<p>Brötchen".encode("utf-16"), "Brötchen"),
        ("\ufeff<meta charset=shift_jis><p>Brötchen".encode(), "Brötchen"),
        ("<meta charset=punycode><p>Brötchen".encode(), "Brötchen"),
        ("<meta charset=unicode-escape><p>\\x41 Brötchen".encode(), "\\x41 Brötchen"),
        (b"<meta charset=rot13><p>Br\xf6tchen", "Br\ufffdtchen"),
    ],
)
def test_the_encoding_of_a_page_is_the_one_it_names_if_it_is_one_of_texts(raw: bytes, said: str) -> None:
    assert parse_document("page.html", raw).text == f"{said}\n"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<p>kept<!-- open <p>gone", "kept\n"),
        ("<p>kept<script>gone", "kept\n"),
        ("<p>kept<a href='open <p>gone", "kept\n"),
        ("<p>1 < 2 &lt;b&gt; & &bogus; &#0; &#1114112;", "1 < 2 \\<b> & \\&bogus; \ufffd \ufffd\n"),
        ("<script/><title/><p>kept", "kept\n"),
        ("<pre>a\n  b", "```\na\n  b\n```\n"),
        ("<pre>```</pre>", "````\n```\n````\n"),
        ("</table></ul></pre></main></blockquote></li><td>kept", "kept\n"),
        ("<table><tr><td>a<td>b", "a\n\nb\n"),
        ("<table><tr><td>a<table><tr><th>b<th>c</table></table>", "a\n\n| b | c |\n| --- | --- |\n"),
        ("<p>---<p>12. x<p>- y<p>```", "\\---\n\n12\\. x\n\n\\- y\n\n\\`\\`\\`\n"),
        ("<!DOCTYPE x [<!ENTITY a '&b;'>]><p>&a;", "]>\n\n\\&a;\n"),
        ("<a href='x) [y](z'>t</a>", "[t](<x) [y](z>)\n"),
        ("<li>a<li>b<p>c", "- a\n\n- b\n\nc\n"),
        ("", ""),
    ],
)
def test_what_is_damaged_or_hostile_is_read_as_browsers_do(page: str, said: str) -> None:
    assert text_of(page) == said


def test_the_text_of_a_page_is_not_a_mark_of_markdown() -> None:
    said = "Vec<T> 2*3*4 [x](y) ![[z]] #tag _it_ snake_case C:\\Users"
    html = said.replace("<", "&lt;")
    page = f"<title>{html}</title><h1>{html}</h1><p>{html}<p>Run <code>a*b [[c]]<p>[[d]]"
    document = parse_document("page.html", page.encode())
    assert document.text.endswith("\n\nRun `a*b [[c]]`\n\n\\[\\[d]]\n")
    assert (document.title, document.headings[0].text, document.links, document.metadata) == (said, said, (), {})
    titled = parse_document("page.html", f"<title>{html}</title><p>x".encode())
    assert titled.title == said


def test_a_page_of_bytes_is_no_page() -> None:
    with pytest.raises(UnindexableFileError, match=r"'page.html' is binary"):
        parse_document("page.html", b"<p>\0\1")


def test_the_text_of_a_page_is_bounded() -> None:
    document = parse_document("page.html", b"<p>" + b"word " * 900_000)
    assert len(document.text) == MAX_CHARACTERS + 1
    assert document.warnings == (f"only the first {MAX_CHARACTERS:,} characters are taken",)


def test_a_page_is_found_shown_and_opened_as_a_note(qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "vim")
    folder = tmp_path / "site"
    write_notes(
        folder, {"oven.html": PAGE, "bread.html": "<h1>Bread</h1><h2>rise</h2><p>Slowly.", "a.md": "# A\n\nb\n"}
    )
    assert "3 notes" in qmd("index", str(folder), "--glob", "**/*.{md,html}", "--no-embed").out
    assert "oven.html" in qmd("search", "steam", "--files").out
    assert qmd("search", "scripted", "--json").out.strip() == "[]"
    assert "2. second" in qmd("get", "oven.html:9:1").out
    assert "Slowly." in qmd("get", "bread.html#rise").out
    assert "bread.html" in qmd("links", "oven.html").out
    # The file's own lines are others.
    assert "+1 " in qmd("open", "oven.html:9", "--print").out
    assert "+2 " in qmd("open", "a.md:2", "--print").out
