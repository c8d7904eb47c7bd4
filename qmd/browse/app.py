"""The screen: one line to type into, the list below it, the note that is chosen beside or beneath."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec.structs import replace
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Footer, Label, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import Worker, WorkerState

from qmd.browse.asking import LATEST, Answer, Turn, ask
from qmd.browse.preview import Page, Preview, lay_out
from qmd.browse.rows import Filter, Note, Row, connected_notes, draw_row, filter_text, hit_notes, offered_filters
from qmd.browse.widgets import Chip, FilterSuggester, Question, Results
from qmd.errors import NotFoundError, QmdError
from qmd.render.terminal import visible
from qmd.retrieval.query_parser import split_filters

if TYPE_CHECKING:
    from qmd.app.index import Index
    from qmd.app.searching import SearchRequest
    from qmd.records import SearchResponse

_RESTING_S = 0.05
"""How long a line must be chosen before its note is read: an arrow that is held down passes over it."""


class BrowseApp(App[Note]):
    """Searches as somebody types. As a picker it ends with the note that was chosen, else Enter opens it.

    Args:
        index: What is searched.
        request: How; its text is what the question begins with.
        open_note: Opens a note for reading or editing; None makes a picker.
        link: The address that is copied.
        is_light: Whether to begin with dark text on a light ground.
    """

    CSS_PATH = "browse.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Open"),
        Binding("tab", "connected", "Related", priority=True),
        Binding("ctrl+y", "copy", "Copy link", priority=True),
        Binding("y", "copy", show=False),
        Binding("ctrl+f", "filters", "Filter", priority=True),
        Binding("ctrl+p", "preview", "Preview", priority=True),
        Binding("ctrl+t", "light", "Light/dark", priority=True),
        Binding("escape", "back", "Back", priority=True),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("pagedown,shift+down", "page(1)", show=False, priority=True),
        Binding("pageup,shift+up", "page(-1)", show=False, priority=True),
        Binding("down", "down", show=False),
    ]

    class Answered(Message):
        """A stage of a question has its answer."""

        def __init__(self, turn: Turn, answer: Answer) -> None:
            super().__init__()
            self.turn, self.answer = turn, answer

    class Read(Message):
        """A note is laid out, or could not be read."""

        def __init__(self, turn: Turn, note: Note, page: Page | QmdError) -> None:
            super().__init__()
            self.turn, self.note, self.page = turn, note, page

    class Connected(Message):
        """What a note is connected with, or the filters that there are."""

        def __init__(self, title: str, rows: Sequence[Row] | QmdError) -> None:
            super().__init__()
            self.title, self.rows = title, rows

    def __init__(
        self,
        index: Index,
        request: SearchRequest,
        *,
        open_note: Callable[[Note], object] | None,
        link: Callable[[Note], str],
        is_light: bool = False,
    ) -> None:
        super().__init__()
        self._index, self._request, self._open_note, self._link = index, request, open_note, link
        words, filters = split_filters(request.text or "", is_ended=True)
        self._words = words
        self._chips = [*(filter_text("collection", name) for name in request.collections), *filters]
        self._turn, self._reading = Turn(), Turn()
        self._rows: Sequence[Row] = ()
        self._response: SearchResponse | None = None
        self._views: list[tuple[str, Sequence[Row]]] = []
        """What Escape goes back to."""
        self._title = ""
        self._offered: Sequence[Filter] = ()
        if is_light:
            self.theme = "textual-light"

    # --- the screen -------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """See `App`."""
        with Horizontal(id="ask"):
            yield Label("›", id="prompt")
            suggester = FilterSuggester(lambda: [one.key for one in self._offered])
            placeholder = "type to search" if self._open_note else "type to search, Enter chooses"
            yield Question(self._words, placeholder=placeholder, compact=True, suggester=suggester)
            yield Label("", id="status", markup=False)
        yield Horizontal(id="chips")
        with Container(id="body"):
            yield Results(compact=True, markup=False)
            yield Preview()
        yield Static("", id="message", markup=False)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """See `App`."""
        self._show_chips()
        self._ask()
        self.run_worker(self._look_for_filters, thread=True, exit_on_error=False)

    def on_resize(self) -> None:
        """See `App`."""
        self.call_after_refresh(self._read)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """See `App`: a line of the list is needed for what is done with one."""
        if action in ("choose", "connected", "copy"):
            return bool(self._rows) or None
        return True

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Nothing that a request dies of ends the program."""
        if event.state is WorkerState.ERROR:
            self._complain(QmdError(f"unexpected {type(event.worker.error).__name__}: {event.worker.error}"))

    # --- asking -----------------------------------------------------------------------------------

    @on(Question.Changed)
    def _typed(self, event: Question.Changed) -> None:
        words, filters = split_filters(event.value)
        if filters:
            words, filters = split_filters(event.value, is_ended=True)
            self._chips += [one for one in filters if one not in self._chips]
            self._show_chips()
            with self.prevent(Question.Changed):
                event.input.value = words
        self._words = words
        self._ask()

    def _ask(self) -> None:
        self._turn.leave()
        self._turn = turn = Turn()
        text = " ".join((self._words, *self._chips)).strip()
        request = replace(self._request, text=text or LATEST, collections=())
        tell = lambda answer: self.post_message(self.Answered(turn, answer))  # noqa: E731
        work = partial(ask, self._index, request, turn, tell, words_only=not self._words)
        self.run_worker(work, thread=True, exit_on_error=False)

    @on(Answered)
    def _take_answer(self, event: Answered) -> None:
        """Show an answer; one to an earlier question is dropped."""
        answer = event.answer
        if event.turn is not self._turn:
            return
        if answer.response is None:
            self._show_rows("", ())
            self._complain(answer.error or QmdError("no answer"))
            return
        self._response = response = answer.response
        has_moved = bool(self.query_one(Results).highlighted)
        rows = hit_notes(response.hits)
        if not self._views:
            self._show_rows("", rows, keep=has_moved)
        else:
            self._views[0] = ("", rows)
        self._tell_state(answer, response)

    def _tell_state(self, answer: Answer, response: SearchResponse) -> None:
        stage = answer.stage
        if stage == "reranked" and not any(one.stage == "rerank" for one in response.timings):
            stage = "meaning"
        going_on = "" if answer.is_last else " …"
        asked = bool(self._words or self._chips)
        self.query_one("#status", Label).update(f"{stage} · {answer.elapsed_ms:.0f} ms{going_on}" if asked else "latest")
        message = "" if response.hits else "No note matches." if answer.is_last or self._words else "No notes yet."
        notes = [message, *(response.warnings if answer.is_last else ())]
        self._say("  ".join(one for one in notes if one))

    # --- the list ---------------------------------------------------------------------------------

    def _show_rows(self, title: str, rows: Sequence[Row], *, keep: bool = False) -> None:
        """Show a list; with `keep` the line that was chosen stays so where it is still there."""
        results = self.query_one(Results)
        chosen = self.chosen
        before, self._rows, self._title = self._rows, rows, title
        if list(before) != list(rows):
            with self.prevent(OptionList.OptionHighlighted):
                results.set_options(Option(draw_row(row)) for row in rows)
        kept = next((at for at, row in enumerate(rows) if chosen and row.key == chosen.key), 0) if keep else 0
        results.border_title = Content(visible(title))
        results.highlighted = kept if rows else None
        self.query_one("#body").set_class(not rows, "-empty")
        self.refresh_bindings()
        self._read()

    @property
    def chosen(self) -> Row | None:
        """The line that is chosen."""
        at = self.query_one(Results).highlighted
        return None if at is None or at >= len(self._rows) else self._rows[at]

    @on(OptionList.OptionHighlighted)
    def _read(self) -> None:
        """Lay out the note that is chosen, without holding up the keys."""
        self._reading.leave()
        self._reading = turn = Turn()
        note, preview = self.chosen, self.query_one(Preview)
        width = preview.scrollable_content_region.width
        if not isinstance(note, Note) or width < 1:
            preview.show(Page())
            preview.border_title = ""
            return

        def read() -> None:
            if not turn.outlasts(_RESTING_S):
                return
            try:
                text = self._index.get(note.document.uri).text
            except QmdError as error:
                self.post_message(self.Read(turn, note, error))
                return
            self.post_message(self.Read(turn, note, lay_out(text, note.line, width, self._find)))

        self.run_worker(read, thread=True, exit_on_error=False)

    def _find(self, text: str) -> Sequence[tuple[int, int]]:
        return ()

    @on(Read)
    def _take_page(self, event: Read) -> None:
        if event.turn is not self._reading:
            return
        if isinstance(event.page, QmdError):
            self._complain(event.page)
            return
        preview = self.query_one(Preview)
        trail = f"  {event.note.detail}" if event.note.detail else ""
        preview.border_title = Content.assemble(visible(event.note.place), (visible(trail), "dim"))
        preview.show(event.page)

    # --- what keys do -----------------------------------------------------------------------------

    @on(Question.Submitted)
    @on(OptionList.OptionSelected)
    def action_choose(self) -> None:
        """Open the note, or end with it; put on the filter."""
        words, filters = split_filters(self.query_one(Question).value, is_ended=True)
        row = self.chosen
        if filters and not self._views:
            self.query_one(Question).value = " ".join((words, *filters, ""))
        elif isinstance(row, Filter):
            self._views.clear()
            self.query_one(Question).focus()
            self._put_on(row.key)
        elif row is not None and self._open_note is None:
            self.exit(row)
        elif row is not None:
            self._open(row)

    def _open(self, note: Note) -> None:
        try:
            with self.suspend():
                cast("Callable[[Note], object]", self._open_note)(note)
        except QmdError as error:
            self._complain(error)
        self.refresh()

    def action_connected(self) -> None:
        """List what the chosen note is connected with."""
        note = self.chosen
        if not isinstance(note, Note):
            return

        def look() -> None:
            try:
                uri = note.document.uri
                rows: Sequence[Row] | QmdError = connected_notes(self._index.links(uri), self._index.related(uri))
            except QmdError as error:
                rows = error
            self.post_message(self.Connected(f"Links and notes related to {note.document.title}", rows))

        self.run_worker(look, thread=True, exit_on_error=False)

    def action_filters(self) -> None:
        """List filters to choose from."""
        self.post_message(self.Connected("Filters", self._offered))

    @on(Connected)
    def _take_connected(self, event: Connected) -> None:
        if isinstance(event.rows, QmdError):
            self._complain(event.rows)
        elif not event.rows:
            self.notify("Nothing links here, and nothing is related.")
        else:
            self._views.append((self._title, self._rows))
            self._show_rows(event.title, event.rows)
            self.query_one(Results).focus()

    def action_copy(self) -> None:
        """Copy the link of the chosen note."""
        note = self.chosen
        if isinstance(note, Note):
            link = self._link(note)
            self.copy_to_clipboard(link)
            self.notify(visible(link), title="Copied", markup=False)

    def action_back(self) -> None:
        """Leave the related notes or filters, else the list, else the program."""
        if self._views:
            title, rows = self._views.pop()
            self._show_rows(title, rows)
            if not self._views:
                self.query_one(Question).focus()
        else:
            self._turn.leave()
            self.exit()

    def action_preview(self) -> None:
        """Show or hide the note."""
        self.query_one("#body").toggle_class("-without-preview")
        self.call_after_refresh(self._read)

    def action_light(self) -> None:
        """Change between dark and light."""
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_page(self, pages: int) -> None:
        """Scroll the note."""
        preview = self.query_one(Preview)
        preview.scroll_relative(y=pages * max(1, preview.size.height - 2), animate=False)

    def action_down(self) -> None:
        """From the question into the list."""
        results = self.query_one(Results)
        results.focus()
        results.action_cursor_down()

    @on(Results.Typed)
    def _type(self, event: Results.Typed) -> None:
        """Go on in the question, out of related notes too, with the key that was pressed in the list."""
        question = self.query_one(Question)
        question.focus()
        if event.key.is_printable and event.key.character:
            self._views.clear()
            question.insert_text_at_cursor(event.key.character)
        elif event.key.key == "backspace":
            self._views.clear()
            question.action_delete_left()

    # --- filters ----------------------------------------------------------------------------------

    def _look_for_filters(self) -> None:
        try:
            self._offered = offered_filters(self._index.collections(), self._index.documents())
        except QmdError:
            return  # the search tells of it

    def _put_on(self, text: str) -> None:
        if text not in self._chips:
            self._chips.append(text)
        self._show_chips()
        self._ask()

    @on(Chip.Removed)
    def _take_off(self, event: Chip.Removed) -> None:
        self._chips.remove(event.text)
        self._show_chips()
        self._ask()

    @on(Question.Emptied)
    def _take_last_off(self) -> None:
        if self._chips:
            self._chips.pop()
            self._show_chips()
            self._ask()

    def _show_chips(self) -> None:
        bar = self.query_one("#chips")
        bar.display = bool(self._chips)
        bar.remove_children()
        bar.mount_all(Chip(one) for one in self._chips)

    # --- messages ---------------------------------------------------------------------------------

    def _complain(self, error: QmdError) -> None:
        """Say what went wrong; an index that is not there yet is no mistake of anybody."""
        if isinstance(error, NotFoundError) and not self._index.path.exists():
            self._say("Nothing is indexed yet. Make notes searchable:  qmd index ~/notes")
            return
        self._say(" — ".join(part for part in (error.message, error.hint) if part))

    def _say(self, text: str) -> None:
        message = self.query_one("#message", Static)
        message.update(visible(text))
        message.display = bool(text)
