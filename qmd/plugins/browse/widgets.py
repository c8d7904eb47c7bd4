"""The line that is typed into, the list, the filters that are on, and work in threads: what Textual's own lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from textual import events
from textual.app import App
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Label, OptionList
from textual.worker import Worker, WorkerState

from qmd.errors import QmdError
from qmd.render.terminal import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Found = TypeVar("Found")
Result = TypeVar("Result")


class WorkingApp(App[Result]):
    """Does what takes long in threads, so that no key waits for it."""

    @property
    def is_whole(self) -> bool:
        """Whether no part of the screen is missing."""
        raise NotImplementedError

    def complain(self, error: QmdError) -> None:
        """Say what went wrong."""
        raise NotImplementedError

    def work(
        self,
        job: Callable[[], Found],
        take: Callable[[Found], object],
        fail: Callable[[QmdError], object] | None = None,
    ) -> None:
        """Do `job` in a thread, and hand what it finds, or why it fails, to the screen."""

        def work() -> None:
            try:
                found = job()
            except QmdError as error:
                self.call_later(self.hand_over, fail or self.complain, error)
            else:
                self.call_later(self.hand_over, take, found)

        self.run_worker(work, thread=True, exit_on_error=False)

    def hand_over(self, take: Callable[..., object], *found: object) -> None:
        """Have the screen take what a thread found, unless it is being taken down."""
        if self.is_whole:
            take(*found)

    def on_print(self, event: events.Print) -> None:
        """What is written to stderr meanwhile, warnings say, would be lost below the screen."""
        if event.text.strip():
            self.notify(visible(event.text.strip()), severity="warning", markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Nothing that a request dies of ends the program."""
        if event.state is WorkerState.ERROR:
            self.complain(QmdError(f"unexpected {type(event.worker.error).__name__}: {event.worker.error}"))


class Resized(Message):
    """Lines have another width now."""


class Question(Input):
    """What is typed. Backspace before the first character takes the last filter off."""

    class QueryCleared(Message):
        """Backspace was pressed where there is nothing left to delete."""

    @property
    def is_at_end(self) -> bool:
        """Whether Right would do nothing here."""
        return self.cursor_position == len(self.value) and not self._suggestion

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """See `Widget`: `?` is a character where something is typed."""
        return (character != "?" or bool(self.value)) and super().check_consume_key(key, character)

    def action_delete_left(self) -> None:
        if self.cursor_position == 0 and self.selection.is_empty:
            self.post_message(self.QueryCleared())
        super().action_delete_left()


class Results(OptionList):
    """The list. A click shows a line and a second one chooses it; typing goes on in the question."""

    class QueryTyped(Message):
        """A key that is not for the list."""

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


class Chips(Horizontal):
    """The filters that are on; a click takes one off."""

    class Changed(Message):
        """There is one more, or one less."""

    def __init__(self, *filters: str) -> None:
        super().__init__()
        self.filters = list(filters)

    def on_mount(self) -> None:
        self._show()

    def put_on(self, *filters: str) -> None:
        """Add filters."""
        self.filters += [one for one in filters if one not in self.filters]
        self._show()
        self.post_message(self.Changed())

    def take_off(self, at: int = -1) -> None:
        """Remove one, if there is any."""
        if self.filters:
            del self.filters[at]
            self._show()
            self.post_message(self.Changed())

    def on_click(self, event: events.Click) -> None:
        if event.widget is not None and event.widget is not self:
            self.take_off(self.children.index(event.widget))

    def _show(self) -> None:
        self.display = bool(self.filters)
        self.remove_children()
        self.mount_all(Label(f"{visible(one)} ×", markup=False) for one in self.filters)


class FilterSuggester(Suggester):
    """Completes a filter at the end of what is typed; Right takes the proposal."""

    def __init__(self, offered: Callable[[], Sequence[str]]) -> None:
        super().__init__(use_cache=False)
        self._offered = offered

    async def get_suggestion(self, value: str) -> str | None:
        word = value.rpartition(" ")[2]
        if ":" not in word and not word.startswith("@"):
            return None
        return next((value + one[len(word) :] for one in self._offered() if one.startswith(word) and one != word), None)
