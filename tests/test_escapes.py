"""Foreign text becomes one line, ends no line of ours, and hides nothing from its reader."""

import string
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from qmd.errors import QmdError
from qmd.escapes import address_line, message_line, one_line, visible
from qmd.render.text import number_lines

SEPARATORS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
HOSTILE = st.text(st.sampled_from(SEPARATORS + "\t\x1b\x9b\u202e\U000e0041" + string.ascii_letters) | st.characters())


@given(HOSTILE, st.integers(1, 300))
def test_foreign_words_become_one_printable_line_of_bounded_length(words: str, most: int) -> None:
    line = one_line(words, most)
    assert len(line) <= most and len(line.splitlines()) <= 1
    assert not set(line) & set(SEPARATORS + "\t\x1b\x9b\u202e\U000e0041")


def test_separators_become_spaces_and_control_characters_escapes() -> None:
    assert one_line("a\r\nb\u2028c\td") == "a b c d"
    assert one_line("\x1b[2J\x9b\u202e\U000e0041") == r"\x1b[2J\u009b\u202e\U000e0041"
    assert one_line("Grüße 发布 👩‍👩‍👧") == "Grüße 发布 👩‍👩‍👧"
    assert one_line("abcdef", 4) == "abc…"


@given(HOSTILE)
def test_a_shown_text_has_the_lines_of_its_line_feeds(text: str) -> None:
    assert len(visible(text).replace("\r\n", "\n").splitlines()) == len([*text.split("\n")]) - (text[-1:] in ("\n", ""))


@given(HOSTILE)
def test_a_numbered_text_starts_a_line_at_line_feeds_alone(text: str) -> None:
    lines = number_lines(text, 7).replace("\r\n", "\n").splitlines()
    assert [line.partition(": ")[0] for line in lines] == [str(7 + at) for at in range(len(lines))]
    assert len(lines) == max(len(text.removesuffix("\n").split("\n")), 1)


@given(HOSTILE, st.integers(1, 500))
def test_every_line_of_an_error_is_bounded_whatever_it_quotes(words: str, times: int) -> None:
    error = QmdError(f"'{words * times}' is wrong", f"see: {words * times}", details=(words * times, "last"))
    lines = [*error.message.split("\n"), error.hint or ""]
    assert len(lines) == 4 and str(error) == error.message
    assert lines == [message_line(line) for line in lines]
    assert all(len(line) <= 1_000 and len(line.splitlines()) <= 1 for line in lines)
    assert (lines[0][:1], lines[0][-9:]) == ("'", " is wrong")


def test_a_long_value_in_a_message_keeps_its_ends() -> None:
    line = message_line(f"file '/first/{'d/' * 900}last.md' is missing: {'word ' * 400}end")
    assert line.startswith("file '/first/d/") and "…" in line and "/last.md' is missing: word" in line
    assert line.endswith("word end") and len(line) <= 1_000


@given(HOSTILE)
def test_an_address_of_one_line_is_decoded_to_the_address(address: str) -> None:
    line = address_line(address)
    assert len(line.splitlines()) <= 1 and not set(line) & set(SEPARATORS + "\t\x1b\x9b\u202e\U000e0041")
    assert line == address or unquote(line) == address
