"""Subtitles and tables of values: their text, and files made to break a reader."""

import pytest

from qmd.plugins.readers.texts import MAX_CHARACTERS
from tests.parsing import parse_document

SRT = """1
00:00:01,000 --> 00:00:04,200
<i>Good morning</i>, #bakers.
[[Welcome]]

2
00:00:04,500 --> 00:00:06,000
{\\an8}Heat &amp; steam.

x
3
01:12:40,000 --> 01:12:41,000 X1:10
That   is all.
"""

VTT = """WEBVTT - talk

STYLE
::cue { color: red }

NOTE unsaid

intro
02:04.000 --> 02:05.000 align:start
<v.loud Ana Maria>We <c.red>knead</c>
it

02:05.000 --> 02:06.000
it
twice <00:02:05.500>1 < 2
"""


def test_subtitles_are_paragraphs_that_begin_with_their_time() -> None:
    document = parse_document("talk.srt", SRT.replace("\n", "\r\n").encode())
    assert document.text == ("[00:00:01] Good morning, #bakers. [[Welcome]] Heat & steam.\n\n[01:12:40] That is all.\n")
    assert (document.title, document.links, document.metadata) == ("talk", (), {})
    assert parse_document("talk.vtt", VTT.encode()).text == "[00:02:04] Ana Maria: We knead it twice 1 < 2\n"


def test_a_paragraph_of_subtitles_is_no_longer_than_can_be_found_again() -> None:
    cues = [f"{i}\n00:{i:02}:00,000 --> 00:{i + 1:02}:00,000\n{'word ' * 50}{i}\n" for i in range(9)]
    lines = parse_document("a.srt", "\n".join(cues).encode()).text.split("\n\n")
    assert [line[:10] for line in lines] == ["[00:00:00]", "[00:03:00]", "[00:06:00]"]


def test_a_table_of_values_is_one_of_markdown() -> None:
    raw = 'Bread;"Price; net";Note\r\n"Rye ""dark""";4,20;"a|b\r\n[[c]] #d"\r\n\r\nSpelt;5\r\n'
    document = parse_document("prices.csv", raw.encode("cp1252"))
    assert document.text == (
        "| Bread | Price; net | Note |\n| --- | --- | --- |\n"
        '| Rye "dark" | 4,20 | a\\|b \\[\\[c]] \\#d |\n| Spelt | 5 |\n'
    )
    assert (document.title, document.links, document.metadata, document.headings) == ("prices", (), {}, ())
    assert parse_document("p.TSV", b"a, b\tc\n1\t2\n").text == "| a, b | c |\n| --- | --- |\n| 1 | 2 |\n"
    assert parse_document("list.csv", b"# one\n---\n\ntwo").text == "| # one |\n| --- |\n| --- |\n| two |\n"
    assert parse_document("empty.csv", b"").text == ""


def test_a_table_that_a_mark_leaves_open_is_read_as_plain_text() -> None:
    document = parse_document("open.csv", b'a,b\n"' + b"1,2\n" * 100_000)
    assert document.text.startswith('a,b\n"1,2\n1,2\n')
    assert document.warnings == ("read as plain text: field larger than field limit (131072)",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "raw", "size"),
    [
        ("cells.csv", b"1," * 1_000_000, MAX_CHARACTERS),
        ("rows.csv", b"1\n" * 200_000, 1_200_008),
        ("cues.srt", b"00:00:01,0 --> 00:00:02,0\nab\n\n" * 200_000, 20),
        ("long.vtt", b"00:01.0 --> 00:02.0\n" + b"a " * 4_500_000, MAX_CHARACTERS),
        ("latin.srt", "00:01.0 --> 00:02.0\nBrötchen".encode("latin-1"), 22),
        ("half.csv", "a,b\nBr\ud800,c".encode("utf-16", "surrogatepass"), 30),
    ],
)
def test_a_file_of_a_million_cells_or_broken_letters_is_read(path: str, raw: bytes, size: int) -> None:
    assert abs(len(parse_document(path, raw).text) - size) < 10
