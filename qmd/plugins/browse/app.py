"""Screen of the full-screen search: query line, list of rows, preview of the chosen note."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual import on
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widgets import Footer, Label, OptionList
from textual.widgets.option_list import Option

from qmd.errors import NotFoundError, QmdError
from qmd.escapes import one_line
from qmd.plugins.browse.keys import KEYS
from qmd.plugins.browse.pending_search import NOTHING_YET, Answer, PendingSearch, search_in_stages
from qmd.plugins.browse.preview import FIRST_CHARACTERS, Page, Preview, lay_out
from qmd.plugins.browse.rows import (
    Filter,
    Note,
    Row,
    connected_notes,
    draw_row,
    hit_notes,
    latest_notes,
    matching_lines,
    offered_filters,
)
from qmd.plugins.browse.widgets import Chips, FilterSuggester, Notices, Question, Resized, Results, ThreadedApp
from qmd.render.drawing import wrap
from qmd.retrieval.matching import find_spans
from qmd.retrieval.query_filters import filter_text, split_filters

if TYPE_CHECKING:
    from qmd.app.index import Index
    from qmd.records import SearchResponse
    from qmd.retrieval.request import SearchRequest

LATEST = "sort:date"
"""Query for the notes to show before the user types."""

_TALL_ROWS = 30
"""Rows of a screen from which notes have two lines in the list."""

_RESTING_S = 0.05
"""Time before the note of a chosen row is read, so that a repeated arrow key skips it."""


class BrowseApp(ThreadedApp[Note]):
    """Full-screen search as the user types.

    Args:
        request: Options of the search; its text is the initial query.
        open_note: Opens a note for reading or editing, while the screen is suspended.
        link: Returns the address to copy.
        saved: Name → query of the saved searches to offer.
        is_light: Start with the light theme.
    """

    CSS_PATH = "browse.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*KEYS]

    def __init__(
        self,
        index: Index,
        request: SearchRequest,
        *,
        open_note: Callable[[Note], object],
        link: Callable[[Note], str],
        saved: Mapping[str, str] = {},
        is_light: bool = False,
    ) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-short"), (_TALL_ROWS, "-tall")]
        self._index, self._request, self._open_note, self._link = index, request, open_note, link
        self._words, filters = split_filters(request.text or "", is_ended=True)
        self._chips = Chips(*(filter_text("collection", name) for name in request.collections), *filters)
        self._pending, self._pending_page = PendingSearch(), PendingSearch()
        self._response: SearchResponse | None = None
        self._title, self._rows = "", list[Row]()
        self._previewed: object = None
        """Contents of the preview, now or soon: a later stage with the same note does not lay it out again."""
        self._views: list[tuple[str, list[Row]]] = []
        """Lists to which Escape returns; the first one contains the hits."""
        self._offered = [Filter(f"@{name}", query=query) for name, query in saved.items()]
        if is_light:
            self.theme = "textual-light"

    def compose(self) -> ComposeResult:
        suggester = FilterSuggester(lambda: [one.key for one in self._offered])
        with Horizontal(id="ask"):
            yield Label("›", id="prompt")
            yield Question(
                self._words, placeholder="type to search", compact=True, suggester=suggester, select_on_focus=False
            )
            yield Label("", id="status", markup=False)
        yield self._chips
        with Container(id="body"):
            yield Results(compact=True, markup=False)
            yield Preview()
        yield Notices(id="message", markup=False)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.begin_capture_print(self, stdout=False)
        with suppress(NotImplementedError, RuntimeError):
            # SIGTERM must restore the terminal; Windows has no such signal.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        if not self.is_headless:  # without a signal, Textual would wait at a closed terminal
            self.set_interval(1, lambda: None if sys.stdin.isatty() else self.exit())
        self._show_rows("", [])
        self._start_search()
        # The search itself reports an unreadable index.
        self.work(
            lambda: offered_filters(self._index.collections(), self._index.documents()),
            self._offered.extend,
            lambda _: None,
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """See `App`: some actions need a row, and Right may belong to the query."""
        question = self.query(Question)
        if action == "passages" and question and question[0].has_focus and not question[0].is_at_end:
            return False
        return bool(self._rows) or None if action in ("connected", "copy", "passages") else True

    @property
    def is_complete(self) -> bool:
        """Whether all widgets exist; at the end they disappear one by one."""
        return len(self.query("Results, Preview, #status, #message")) == 4

    @on(Question.Changed)
    def _handle_input(self, event: Question.Changed) -> None:
        self._words, filters = split_filters(event.value)
        if filters:
            self._words, filters = split_filters(event.value, is_ended=True)
            with self.prevent(Question.Changed):
                event.input.value = self._words
            self._chips.add_filters(*filters)
        else:
            self._start_search()

    @on(Chips.Changed)
    def _start_search(self) -> None:
        self._pending.cancel()
        self._pending = pending = PendingSearch()
        text = " ".join((self._words, *self._chips.filters)).strip()
        request = replace(self._request, text=text or LATEST, collections=())
        if not self._words.strip():
            # Filters alone need no models.
            request = replace(request, mode="lexical")
        report = partial(self.call_later, self.deliver, self._show_answer, pending)
        self.work(lambda: search_in_stages(self._index, request, pending, report), lambda _: None)

    @on(Question.QueryCleared)
    def _remove_filter(self) -> None:
        self._chips.remove_filter()

    @property
    def _has_query(self) -> bool:
        return bool(self._words.strip() or self._chips.filters)

    def _show_answer(self, pending: PendingSearch, answer: Answer) -> None:
        """Show the result of a stage, unless it belongs to an earlier query."""
        if pending is not self._pending:
            return
        self._response = answer.response
        rows = (hit_notes if self._has_query else latest_notes)(answer.response.hits)
        if self._views:
            self._views[0] = ("", rows)
        else:
            self._show_rows("", rows, keep=bool(self.query_one(Results).highlighted))
        self.query_one("#status", Label).update(answer.state if self._has_query else "latest notes", layout=False)
        self.query_one(Notices).show(*answer.notices(is_asked=self._has_query, has_words=bool(self._words.strip())))

    @property
    def chosen(self) -> Row | None:
        at = self.query_one(Results).highlighted
        return None if at is None or at >= len(self._rows) else self._rows[at]

    def _show_rows(self, title: str, rows: list[Row], *, keep: bool = False) -> None:
        """Show a list; with `keep`, the chosen row stays chosen if the list contains it."""
        results, chosen, self._title = self.query_one(Results), self.chosen, title
        if rows != self._rows:
            self._rows = rows
            self._draw_rows()
        kept = next((at for at, row in enumerate(rows) if chosen and row.key == chosen.key), 0) if keep else 0
        results.border_title = Content(one_line(title))
        results.highlighted = kept if rows else None
        self.screen.set_class(bool(rows) and isinstance(rows[0], Filter), "-filters")
        if self.screen.has_class("-empty") == bool(rows):
            self.screen.set_class(not rows, "-empty")
            self.refresh_bindings()
        self._show_preview()

    @on(Resized)
    def _draw_rows(self) -> None:
        """Draw the list at its width; on a low screen a note has one line."""
        if not self.is_complete:
            return
        results, is_low = self.query_one(Results), self.size.height < _TALL_ROWS
        width, at = results.scrollable_content_region.width, results.highlighted
        with self.prevent(OptionList.OptionHighlighted):
            results.set_options(Option(draw_row(row, width, is_low=is_low)) for row in self._rows)
            results.highlighted = at

    @on(Resized)
    @on(OptionList.OptionHighlighted)
    def _show_preview(self) -> None:
        """Lay out the chosen note in a thread."""
        if not self.is_complete:
            return
        note, preview = self.chosen, self.query_one(Preview)
        width = preview.scrollable_content_region.width
        terms = self._response.terms if self._response else ()
        wanted = (note.place if isinstance(note, Note) else None, width, terms)
        if wanted == self._previewed:
            return
        self._previewed = wanted
        self._pending_page.cancel()
        self._pending_page = pending = PendingSearch()
        if not isinstance(note, Note) or width < 1:
            preview.show("", Page())
            return

        def read() -> Page:
            if not pending.is_current_after(_RESTING_S):
                return Page()
            found = self._index.get(note.document.uri)
            part = partial(lay_out, found, note.line, width, partial(find_spans, terms=terms))
            if len(found.text) > FIRST_CHARACTERS:
                self.call_later(self.deliver, show, part(FIRST_CHARACTERS))
            return part()

        def show(page: Page) -> None:
            if pending is self._pending_page:
                preview.show(" › ".join((note.place, *note.trail)), page)

        self.work(read, show)

    @on(OptionList.OptionSelected)
    def action_choose(self) -> None:
        """Open the note, or add the filter; a typed filter is now complete."""
        question, row = self.query_one(Question), self.chosen
        words, filters = split_filters(question.value, is_ended=True)
        if filters and not self._views:
            question.value = words
            self._chips.add_filters(*filters)
        elif isinstance(row, Filter):
            self.action_leave()
            if row.key.startswith("@"):
                question.value = f"{row.query} "
            elif not row.query:
                self._chips.add_filters(row.key)
        elif row is not None:
            self.choose_note(row)

    def choose_note(self, note: Note) -> None:
        """Open the chosen note."""
        with ExitStack() as screen:
            with suppress(SuspendNotSupported):
                screen.enter_context(self.suspend())
            try:
                self._open_note(note)
            except QmdError as error:
                self.show_error(error)
        self.refresh()

    def action_connected(self) -> None:
        """List links and related notes of the chosen note."""
        note = self.chosen
        if isinstance(note, Note):
            uri, title = note.document.uri, f"{note.document.title}: links and related notes"
            self.work(
                lambda: connected_notes(self._index.links(uri), self._index.related(uri)), partial(self._push, title)
            )

    def action_passages(self) -> None:
        """List the lines of the chosen note that match."""
        note, find = self.chosen, partial(find_spans, terms=self._response.terms if self._response else ())
        if isinstance(note, Note) and not note.text:
            uri, title = note.document.uri, f"{note.document.title}: lines that match"
            self.work(
                lambda: matching_lines(note, self._index.get(uri), find), partial(self._push, title, line=note.line)
            )

    def action_filters(self) -> None:
        if not self.screen.has_class("-filters"):
            self._push("Filters", self._offered)

    def _push(self, title: str, rows: Sequence[Row], line: int = 0) -> None:
        """Show another list until Escape, and choose the row of a line."""
        if not rows:
            self.notify("Nothing to show.", timeout=2)
            return
        self._views.append((self._title, self._rows))
        self._show_rows(title, list(rows))
        at = next((at for at, row in enumerate(rows) if isinstance(row, Note) and row.line == line), 0)
        self.query_one(Results).focus().highlighted = at

    def action_leave(self) -> None:
        """Return to the list before; from the first list, quit."""
        if not self._views:
            self._pending.cancel()
            self.exit()
            return
        self._show_rows(*self._views.pop())
        if not self._views:
            self.query_one(Question).focus()

    def action_copy(self) -> None:
        note = self.chosen
        if isinstance(note, Note):
            link = self._link(note)
            self.copy_to_clipboard(link)
            self.notify(f"Copied {one_line(link)}", markup=False)

    def action_preview(self) -> None:
        self.screen.toggle_class("-without-preview")

    def action_light(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_page(self, pages: int) -> None:
        preview = self.query_one(Preview)
        preview.scroll_relative(y=pages * max(1, preview.size.height - 2), animate=False)

    def action_move(self, by: int) -> None:
        """Choose the next or the previous row, whichever widget has the focus."""
        results = self.query_one(Results)
        (results.action_cursor_down if by > 0 else results.action_cursor_up)()

    def action_help(self) -> None:
        """List the keys, and the notices."""
        if self._title != "Keys":
            keys = [key.tooltip.partition("  ") for key in KEYS if key.tooltip]
            rows = [Filter(f"{names:<16}", query=what) for names, _, what in keys]
            for one in self.query_one(Notices).notices:
                rows += [Filter(line.plain) for line in wrap(Text(f"• {one}"), max(self.size.width - 4, 20))]
            self._push("Keys", rows)

    def action_down(self) -> None:
        """Move the focus from the query to the list."""
        self.query_one(Results).focus().action_cursor_down()

    @on(Results.QueryTyped)
    def _type(self, event: Results.QueryTyped) -> None:
        """Apply a key from the list to the query, and leave other lists."""
        question = self.query_one(Question)
        question.focus()
        if event.key.key != "up":
            del self._views[:]
            if event.key.character and event.key.is_printable:
                question.insert_text_at_cursor(event.key.character)
            else:
                question.action_delete_left()

    def show_error(self, error: QmdError) -> None:
        """Show an error; a missing index is not an error, but gets its own message."""
        is_missing = isinstance(error, NotFoundError) and not self._index.exists()
        text = ". ".join(filter(None, (error.message, error.hint)))
        self.query_one(Notices).show(NOTHING_YET if is_missing else text)


class Picker(BrowseApp):
    """Search that ends with the chosen note."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Pick", priority=True)]

    def choose_note(self, note: Note) -> None:
        """End and return the note."""
        self._pending.cancel()
        self.exit(note)
