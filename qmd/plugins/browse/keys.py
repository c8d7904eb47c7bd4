"""What keys do on the screen, and the page that tells of them."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from qmd.render.terminal import visible

KEYS: tuple[Binding, ...] = (
    Binding("down", "down", show=False, tooltip="Down, Up  choose a note; letters still change the question"),
    Binding(
        "ctrl+n,ctrl+j", "move(1)", show=False, priority=True, tooltip="Ctrl+N, Ctrl+J  the next note, while you type"
    ),
    Binding(
        "ctrl+p,ctrl+k",
        "move(-1)",
        show=False,
        priority=True,
        tooltip="Ctrl+P, Ctrl+K  the note before, while you type",
    ),
    Binding("enter", "choose", "Open", priority=True, tooltip="Enter  open the note at the passage"),
    Binding("right", "passages", "Passages", priority=True, tooltip="Right  list the lines of the note that match"),
    Binding("tab", "connected", "Related", priority=True, tooltip="Tab  links from and to the note, related notes"),
    Binding("ctrl+f", "filters", "Filter", priority=True, tooltip="Ctrl+F  saved searches, and filters with counts"),
    Binding("ctrl+y", "copy", "Copy link", priority=True, tooltip="Ctrl+Y  copy the link of the note; in the list, y"),
    Binding("y", "copy", show=False),
    Binding("ctrl+o", "preview", "Preview", priority=True, tooltip="Ctrl+O  hide or show the preview"),
    Binding(
        "pagedown,shift+down", "page(1)", show=False, priority=True, tooltip="PageDown, PageUp  scroll the preview"
    ),
    Binding("pageup,shift+up", "page(-1)", show=False, priority=True),
    Binding("ctrl+t", "light", show=False, priority=True, tooltip="Ctrl+T  switch between light and dark"),
    Binding(
        "f1,question_mark",
        "help",
        "Help",
        priority=True,
        tooltip="F1, ?  these keys; ? where nothing is typed, or in the list",
    ),
    Binding("escape", "leave", "Back", priority=True, tooltip="Esc  go back; from the first list, quit"),
    Binding("ctrl+c", "quit", show=False, priority=True),
)


class Help(ModalScreen[None]):
    """The keys, and in full what is said in the corner; any key or click leads back.

    Args:
        notices: What is said.
    """

    BINDINGS: ClassVar = []

    def __init__(self, notices: str) -> None:
        super().__init__()
        self._notices = notices

    def compose(self) -> ComposeResult:
        """See `Screen`."""
        rows = [key.tooltip.partition("  ") for key in KEYS if key.tooltip]
        width = max(len(names) for names, _, _ in rows)
        lines = [Content.assemble((f"{names:<{width}}  ", "bold $accent"), what) for names, _, what in rows]
        notices = [Content(""), Content(visible(self._notices))] if self._notices else []
        yield Static(Content("\n").join([*lines, *notices]))

    def on_key(self, event: events.Key) -> None:
        """See the class."""
        event.stop()
        self.dismiss()

    def on_click(self) -> None:
        """See the class."""
        self.dismiss()
