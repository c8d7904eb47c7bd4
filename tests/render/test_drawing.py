"""Text drawn for a terminal."""

from rich.style import Style
from rich.table import Table
from rich.text import Text

from qmd.render.drawing import STYLES, Screen, draw, theme

COLOURED = Screen(width=80, colours="256")


def test_a_text_is_drawn_in_the_colours_of_the_terminal() -> None:
    assert draw(COLOURED, Text("notes", style="bold red")) == "\x1b[1;31mnotes\x1b[0m\n"


def test_a_terminal_without_colours_gets_no_sequence() -> None:
    link = Style(link="file:///notes", bold=True)
    assert draw(Screen(colours=None), Text("notes", style=link)) == "notes\n"


def test_nothing_inside_a_text_steers_the_terminal() -> None:
    drawn = draw(COLOURED, Text("a\x1b]52;c;x\x9cb\u202e", style="bold"))
    assert drawn == "\x1b[1ma\\x1b]52;c;x\\u009cb\\u202e\x1b[0m\n"


def test_a_link_cannot_end_its_sequence_early() -> None:
    drawn = draw(COLOURED, Text("notes", style=Style(link="file:///a\x07\x1b[2Jb")))
    assert drawn == "\x1b]8;;file:///a%07%1B[2Jb\x07notes\x1b]8;;\x07\n"


def test_lines_end_where_their_text_ends() -> None:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_row("a", "b")
    table.add_row("a long one", "")
    assert all(not line.endswith(" ") for line in draw(Screen(width=60), table).splitlines())


def test_wide_characters_take_two_columns() -> None:
    lines = draw(Screen(width=40), Text("发布检查清单" * 10)).splitlines()
    assert [len(line) for line in lines] == [20, 20, 20]


def test_no_named_style_needs_a_dark_or_a_light_background() -> None:
    styles = [theme().styles[name] for name in STYLES]
    assert not [str(style) for style in styles if style.bgcolor is not None]
    unsafe = ("black", "white", "bright_")
    assert not [str(style) for style in styles if style.color is not None and style.color.name.startswith(unsafe)]


def test_inline_code_has_the_background_of_the_terminal() -> None:
    assert draw(COLOURED, Text("qmd", style="markdown.code")) == "\x1b[36mqmd\x1b[0m\n"
