"""Widgets for the query, the list and the active filters, and an app with background threads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from rich.cells import cell_len
from textual import events
from textual.app import App
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Label, OptionList, Static
from textual.worker import Worker, WorkerState

from qmd.errors import QmdError
from qmd.escapes import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Found = TypeVar("Found")
Result = TypeVar("Result")


class ThreadedApp(App[Result]):
    """App that runs slow work in threads, so that no key waits for it."""

    @property
    def is_complete(self) -> bool:
        """Whether all widgets of the screen exist."""
        raise NotImplementedError

    def show_error(self, error: QmdError) -> None:
        raise NotImplementedError

    def work(
        self,
        job: Callable[[], Found],
        on_result: Callable[[Found], object],
        on_error: Callable[[QmdError], object] | None = None,
    ) -> None:
        """Run `job` in a thread, and deliver its result or its error to the screen."""

        def work() -> None:
            try:
                found = job()
            except QmdError as error:
                self.call_later(self.deliver, on_error or self.show_error, error)
            else:
                self.call_later(self.deliver, on_result, found)

        self.run_worker(work, thread=True, exit_on_error=False)

    def deliver(self, on_result: Callable[..., object], *found: object) -> None:
        """Pass a result of a thread to the screen, unless the screen is closing."""
        if self.is_complete:
            on_result(*found)

    def on_print(self, event: events.Print) -> None:
        """Show warnings on stderr, which the screen would hide."""
        if event.text.strip():
            self.notify(visible(event.text.strip()), severity="warning", markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show an unexpected error of a thread; the program goes on."""
        if event.state is WorkerState.ERROR:
            self.show_error(QmdError(f"unexpected {type(event.worker.error).__name__}: {event.worker.error}"))


class Resized(Message):
    """The width of lines has changed."""


class Question(Input):
    """Input for the query. Backspace before the first character removes the last filter."""

    class QueryCleared(Message):
        """Backspace was pressed, but there is no character to delete."""

    @property
    def is_at_end(self) -> bool:
        """Whether Right would have no effect."""
        return self.cursor_position == len(self.value) and not self._suggestion

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """See `Widget`: `?` is a key only in an empty input."""
        return (character != "?" or bool(self.value)) and super().check_consume_key(key, character)

    def action_delete_left(self) -> None:
        if self.cursor_position == 0 and self.selection.is_empty:
            self.post_message(self.QueryCleared())
        super().action_delete_left()


class Results(OptionList):
    """List of rows. A click highlights a row, a second one chooses it; typed characters go to the query."""

    class QueryTyped(Message):
        """A key for the query was pressed in the list."""

        def __init__(self, key: events.Key) -> None:
            super().__init__()
            self.key = key

    def on_resize(self) -> None:
        self.post_message(Resized())

    def on_click(self, event: events.Click) -> None:
        at = event.style.meta.get("option")
        if at is not None and event.chain < 2:
            self.highlighted = at
            event.prevent_default()

    def on_key(self, event: events.Key) -> None:
        is_text = event.is_printable and event.key != "y"
        if is_text or event.key == "backspace" or (event.key == "up" and not self.highlighted):
            self.post_message(self.QueryTyped(event))
            event.stop()
            event.prevent_default()


class Notices(Static):
    """Notices on one line below the list; the help lists them whole."""

    notices: Sequence[str] = ()

    def show(self, *notices: str) -> None:
        self.notices, self.display = [*map(visible, notices)], bool(notices)
        self.on_resize()

    def on_resize(self) -> None:
        """Show the notices; where they do not fit, the first words of as many as do. An empty screen shows all."""
        shown, parts = " · ".join(self.notices), [re.split("[.:;] ", one)[0] for one in self.notices]
        while parts and cell_len(shown) > self.app.size.width - 2 and not self.screen.has_class("-empty"):
            shown = " · ".join((*parts, "F1: more"))
            parts.pop()
        self.update(shown)


class Chips(Horizontal):
    """Active filters; a click removes one."""

    class Changed(Message):
        """A filter was added or removed."""

    def __init__(self, *filters: str) -> None:
        super().__init__()
        self.filters = list(filters)

    def on_mount(self) -> None:
        self._show()

    def add_filters(self, *filters: str) -> None:
        self.filters += [one for one in filters if one not in self.filters]
        self._show()
        self.post_message(self.Changed())

    def remove_filter(self, at: int = -1) -> None:
        """Remove a filter, by default the last one."""
        if self.filters:
            del self.filters[at]
            self._show()
            self.post_message(self.Changed())

    def on_click(self, event: events.Click) -> None:
        if event.widget is not None and event.widget is not self:
            self.remove_filter(self.children.index(event.widget))

    def _show(self) -> None:
        self.display = bool(self.filters)
        self.remove_children()
        self.mount_all(Label(f"{one_line(one)} ×", markup=False) for one in self.filters)


class FilterSuggester(Suggester):
    """Suggester that completes a filter at the end of the query; Right accepts it."""

    def __init__(self, offered: Callable[[], Sequence[str]]) -> None:
        super().__init__(use_cache=False)
        self._offered = offered

    async def get_suggestion(self, value: str) -> str | None:
        word = value.rpartition(" ")[2]
        if ":" not in word and not word.startswith("@"):
            return None
        return next((value + one[len(word) :] for one in self._offered() if one.startswith(word) and one != word), None)
