"""Books: the text of an EPUB, and archives made to break a reader."""

from io import BytesIO
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile

import pytest

from qmd.errors import UnindexableFileError
from qmd.plugins.readers.texts import MAX_CHARACTERS
from tests.parsing import parse_document

CONTAINER = (
    '<?xml version="1.0"?><c:container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></c:container>'
)
PACKAGE = """<package><metadata><dc:title id="t">Bread &amp; steam</dc:title><dc:title>Other</dc:title>
<dc:creator/><dc:creator>Ana</dc:creator></metadata><manifest><item id="a" href="one.xhtml"/>
<item href="sub/t%20wo.xhtml" id="b"/><item id="c" href="../../../etc/passwd"/>
</manifest><spine><itemref idref="b"/><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/>
<itemref idref="d"/></spine></package>
"""
ONE = "<head><title>One</title></head><h1>One</h1><p>Rye <a href='t wo.xhtml#x'>two</a> <img src=a.png alt=A>"
TWO = '<h1>Two</h1><p>Spelt <a href="https://example.org">web</a>'


def book(files: dict[str, str | bytes], kind: int = ZIP_DEFLATED) -> bytes:
    raw = BytesIO()
    with ZipFile(raw, "w", kind) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return raw.getvalue()


FILES: dict[str, str | bytes] = {
    "META-INF/container.xml": CONTAINER, "OEBPS/book.opf": PACKAGE, "OEBPS/one.xhtml": ONE, "OEBPS/sub/t wo.xhtml": TWO
}  # fmt: skip


def test_a_book_is_its_chapters_in_their_order() -> None:
    document = parse_document("a.epub", book(FILES))
    assert document.text == (
        '---\ntitle: "Bread & steam"\nauthor: "Ana"\n---\n\n'
        "# Two\n\nSpelt [web](https://example.org)\n\n# One\n\nRye two A\n"
    )
    assert (document.title, document.links) == ("Bread & steam", ())
    assert document.warnings == (
        "skipped a chapter: \"There is no item named '../../etc/passwd' in the archive\"",
        "skipped a chapter: \"There is no item named 'OEBPS' in the archive\"",
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"PK\3\4" + b"\0" * 100,
        book({}),
        book({"META-INF/container.xml": "<rootfile>"}),
        book({"META-INF/container.xml": CONTAINER}),
        book(FILES, ZIP_BZIP2),
        book(FILES)[:-30],
        book(FILES).replace(b"OEBPS/book.opf", b"OEBPS/cook.opf"),
        book({"META-INF/container.xml": b"\0\1"}),
    ],
)
def test_a_file_that_is_not_a_book_is_one_line_of_error(raw: bytes) -> None:
    with pytest.raises(UnindexableFileError) as caught:
        parse_document("a.epub", raw)
    assert caught.value.message.startswith("'a.epub' cannot be read as a book: ")
    assert "\n" not in caught.value.message and len(caught.value.message) < 200


def test_a_book_that_unpacks_to_too_much_is_read_to_a_bound() -> None:
    files = {**FILES, "OEBPS/sub/t wo.xhtml": b"<p>" + b" " * 100_000_000, "OEBPS/book.opf": PACKAGE + " " * 9_000_000}
    document = parse_document("a.epub", book(files))
    assert document.text.endswith("---\n")
    assert document.warnings[0] == "skipped a chapter: it unpacks to too much"
    long = parse_document("a.epub", book({**FILES, "OEBPS/sub/t wo.xhtml": "<p>" + "word " * 1_000_000}))
    assert len(long.text) == MAX_CHARACTERS + 1


def test_a_book_of_many_chapters_that_are_one_is_read_once() -> None:
    items = "".join(f'<item id="i{i}" href="{"./" * (i % 9)}one.xhtml"/><itemref idref="i{i}"/>' for i in range(9_000))
    document = parse_document("a.epub", book({**FILES, "OEBPS/book.opf": items + '<itemref idref="i0"/>' * 9_000}))
    assert document.text.count("# One") == 1
