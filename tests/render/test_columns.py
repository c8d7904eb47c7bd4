"""Paths and tables that fit the terminal."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from qmd.render.columns import ElidedText, elide, elide_path, mark, tabulate
from qmd.render.drawing import Screen, draw
from qmd.render.terminal import without_sequences

PLAIN = Screen(width=40)
NAMES = st.text(st.sampled_from("ab/é会发🗂\u0301 ."), min_size=1, max_size=60)


@given(NAMES, st.integers(1, 60))
def test_an_elided_text_never_exceeds_its_width(text: str, width: int) -> None:
    for shown in (elide(text, width), elide_path(text, width)):
        assert cell_len(shown) <= width
        assert shown == text or "…" in shown


def test_folders_go_before_anything_of_the_name_does() -> None:
    assert elide_path("projects/2024/autumn/launch.md", 20) == "projects/…/launch.md"
    assert elide_path("projects/launch.md", 18) == "projects/launch.md"


def test_a_name_that_is_too_long_keeps_its_start_and_its_end() -> None:
    assert elide("meeting of the platform team.md", 16) == "meeti…rm team.md"


def test_wide_characters_count_twice() -> None:
    assert elide_path("会议记录/发布检查清单.md", 20) == "会…/发布检查清单.md"


def test_a_path_gives_way_and_a_number_does_not() -> None:
    row = ("1,234,567", ElidedText("~/a/long/way/down/to/the/notes/of/everyone"))
    table = tabulate(("Files", "Folder"), [row], right=("Files",), fold=("Folder",))
    head, line = draw(PLAIN, table).splitlines()
    assert head.split() == ["Files", "Folder"]
    assert line.startswith("1,234,567  ~/a/") and line.endswith("…/everyone") and cell_len(line) <= 40


def test_a_column_that_is_empty_throughout_is_left_out() -> None:
    drawn = draw(PLAIN, tabulate(("Line", "Note", "Shown as"), [("1", "a", ""), ("2", "b", "")]))
    assert drawn == "Line  Note\n1     a\n2     b\n"


def test_states_differ_without_colours() -> None:
    signs = [draw(PLAIN, mark(style)).strip() for style in ("good", "warning", "bad", "faint")]
    assert len(set(signs)) == 4


def test_sequences_take_no_room() -> None:
    drawn = draw(Screen(width=40, colours="256"), ElidedText("notes/a.md", "file:///notes/a.md", "title"))
    assert without_sequences(drawn) == "notes/a.md\n"
