"""Files with one piece repeated: every reader takes time in proportion to them."""

import time
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from qmd.errors import UnindexableFileError
from tests.parsing import parse_document

HTML = (
    *(
        "<!--",
        "<!-",
        "<![CDATA[",
        "<a ",
        "<a =",
        "<a b='",
        "<a href=x>y",
        "<div>",
        "<div hidden ",
        "</p>",
        "<nav>",
        "<",
    ),
    *("<table>", "<table><tr><td>", "<ul><li>x", "<ul><li>x<br>", "<blockquote>x", "<pre>x", "<pre/>", "<title>", "&"),
    *(
        "&#99999999;",
        "<script>",
        "<script></scrip",
        "<img alt='x ",
        "  \n ",
        "<br>\n",
        "<td>x<p>x",
        "`<code>",
        "<p>1. ",
    ),
)
RST = (
    *("==\n", "a\n==\n", "==\n a\n==\n", "::\n", "::\n ", " :: ", "`a <", "`a<b>`_\n", ":doc:`x`\n", ".. toctree::\n"),
    *(
        ".. toctree::\n  x\n",
        "  x\n",
        "  *\n",
        ".. _",
        "x\n.. _a:\n",
        ":a:`",
        "  ::\n",
        " \n",
        "\t \n",
        "```",
        " " * 50 + "::\n",
    ),
)
ORG = (
    *("* a\n", "* :a", "* :a:b:\n", "#+begin_src\n", "#+begin_src\n#+end_src\n", "[[", "[[a][", "[[a]]\n", "[[file:"),
    *(
        "#+title: a\n",
        ":id: a\n",
        "  :id: ",
        "#+filetags: ::::\n",
        ':roam_aliases: "a',
        '"a" ',
        "[#A] ",
        "TODO ",
        "  \n",
    ),
)
CUE = "00:00:01,0 --> 00:00:02,0\n"
SUBTITLES = [CUE + "a\n", CUE + "\n", CUE[:-1], "\n", "<", "<v ", "<v.a", "<a>", "{\\", "{\\a}", "&amp;"]
SUBTITLES += ["00:01.0 -", "a\n"]
TABLE = ('"', '""', '",', '","', ",", "a\n", '"\n', "\\|", "[[a", "`", "&a;", "#a", "_a", "\r", "\r\n")
PARTS = "Content-Type: multipart/mixed; boundary=b\n\n"
MAIL = (
    *(
        "\n",
        " ",
        "\n--b",
        "\n--b\n",
        "\n--b\n\nx",
        "\n--b\n" + PARTS,
        "\n--b\nContent-Type: text/html\n\n<p>",
        "a: b\n",
    ),
    *(
        "Subject: a\n",
        "\n a",
        ";",
        ";a=b",
        '"',
        "=?",
        "=?utf-8?q?a?= ",
        "=?utf-8?b?YQ==?=",
        "=3D",
        "A",
        "name*0=a;",
        "(",
        ",",
    ),
    "Subject: x\nContent-Type: message/rfc822\n\n",
)
FIELDS = ("Content-Type: a/b; name=", "Subject: ", "Date: ", "Content-Transfer-Encoding: base64\n\n", PARTS)
SAID = r"<skill> <system-reminder> <ide_a><ide_b> password token=a eyJ- sk- ://a: Ab\nC:\n bearer\u0020 \\nAKIA"
SAID_LINES = [r"-----BEGIN\u0020", r"-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAK", r"## turn1\n", r"# Context from my\n"]
TURN = '{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"'
BOOK = ("<item/>", "<itemref idref='a'/>", "<item ", "<a b='", "<dc:title>", "<!--", "&")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "start", "units"),
    [
        *(("a.html", start, HTML) for start in ("", "<table><tr><td>", "<a x='", "<pre>", "<nav>")),
        *(("a.rst", start, RST) for start in ("", "==\n", ".. toctree::\n", "::\n")),
        *(("a.org", start, ORG) for start in ("", "* ", "#+filetags: ")),
        *(("a.srt", start, SUBTITLES) for start in ("", CUE)),
        *(("a.csv", start, TABLE) for start in ("", 'a,"')),
        *(("a.eml", start, MAIL) for start in ("", *FIELDS)),
        ("a.jsonl", TURN, [*SAID.split(), *SAID_LINES]),
        ("a.epub", "", BOOK),
    ],
)
def test_time_grows_no_faster_than_the_file(path: str, start: str, units: Sequence[str]) -> None:
    """Quadratic behaviour would take sixteen times as long for four times the file."""

    def seconds(unit: str, n: int) -> float:
        raw = (start + unit * (n // len(unit))).encode() + b"</table></a></pre>" * path.endswith(".html")
        raw += b'"}}' * path.endswith(".jsonl")
        raw = book(raw) if path.endswith(".epub") else raw
        begun = time.process_time()
        with suppress(UnindexableFileError):
            parse_document(path, raw)
        return time.process_time() - begun

    slow = []
    for unit in units:
        if seconds(unit, 100_000) < 0.1:
            continue
        small, large = (min(seconds(unit, n) for _ in range(3)) for n in (100_000, 400_000))
        if large > 8 * small:
            slow.append((unit, small, large))
    assert slow == []


def book(contents: bytes) -> bytes:
    raw = BytesIO()
    with ZipFile(raw, "w", ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/container.xml", "<rootfile full-path='b.opf'/>")
        archive.writestr("b.opf", contents)
    return raw.getvalue()
