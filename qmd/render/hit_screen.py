"""Search results on a terminal: a few lines for each hit, with matches in colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.escapes import LONG_CHARS, one_line, visible
from qmd.file_names import file_name
from qmd.ingest.markdown import plain_text
from qmd.render.columns import elide, shown
from qmd.render.drawing import NARROWEST, Screen, draw, shorten, wrap
from qmd.render.formats import HitOptions, Row, make_rows
from qmd.render.prose import choose_rows, read_blocks
from qmd.render.terminal import Styled
from qmd.render.text import VERDICT_NOTES, continues_parts, count_tail, worth_showing
from qmd.retrieval.calibration import strength
from qmd.retrieval.matching import find_spans

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from qmd.records import LexicalTerm, SearchResponse, StoredDocument

PASSAGE_ROWS = 4
"""Rows of a passage, so that five hits fit 40 rows."""

NOTE_ROWS = 2
"""Rows of a context, or of a mention in another note."""

_BAR = 5


def draw_hits(response: SearchResponse, options: HitOptions, screen: Screen) -> Styled:
    """Draw the hits, best first; without a good match only the closest, with short passages."""
    from rich.text import Text

    answer = response if options.shows_all else worth_showing(response)
    folded = 0 if options.shows_all else count_tail(answer)
    rows = make_rows(replace(answer, hits=answer.hits[: len(answer.hits) - folded]), options)
    next_step: list[RenderableType] = []
    if options.next_step is not None:
        command, purpose = options.next_step
        next_step = [Text(), Text.assemble("Next: ", shown(command, "command"), shown(f"  {purpose}", "faint"))]
    if not rows:
        return draw(screen, Text(options.empty_note), *next_step)
    parts: list[RenderableType] = []
    if response.verdict in VERDICT_NOTES:
        closest = " The closest:" if response.verdict == "none" else ""
        parts.append(Text(f"{VERDICT_NOTES[response.verdict].capitalize()}.{closest}", style="warning"))
    shown_contexts: set[str] = set()
    width = max(screen.text_width, NARROWEST)
    for number, row in enumerate(rows, start=1):
        context = row.hit.context if row.hit.context not in shown_contexts else None
        shown_contexts.update([context] if context else [])
        parts += [*([Text()] if parts else []), _Hit(number, row, context, response.terms, options, width)]
    if folded:
        best = round(100 * max(hit.relevance for hit in answer.hits[-folded:]))
        noun = "match" if folded == 1 else "matches"
        parts += [Text(), Text(f"{folded:,} weaker {noun}, best {best} % (--all)", style="faint")]
    return draw(screen, *parts, *next_step)


class _Hit(Struct, frozen=True):
    """One hit: name, relevance, address and passage."""

    number: int
    row: Row
    context: str | None
    terms: Sequence[LexicalTerm]
    options: HitOptions
    width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lead = f"{self.number}  "
        inner = self.width - len(lead)
        yield _unwrapped(lead, self._name(inner))
        for line in self._rows(inner):
            yield _unwrapped(" " * len(lead), line)

    def _rows(self, width: int) -> Iterator[Text]:
        hit, options = self.row.hit, self.options
        yield self._address(width)
        if hit.also_in:
            yield self._note_rows("also in ", ", ".join(map(_short_address, hit.also_in)), width, 1)[0]
        if self.context:
            yield from self._note_rows("", self.context, width, NOTE_ROWS)
        yield from self._passage(width)
        if hit.continues:
            place, words = continues_parts(replace(hit.continues, text=plain_text(hit.continues.text)))
            place = elide(place, max(width // 3, width - len(f"continues: {words}")))
            yield shorten(self._linked(hit.continues.document, "continues: ", place, words, "note"), width)
        if options.explain and hit.explanation:
            from qmd.render.explain import explanation_rows

            yield from explanation_rows(hit.explanation, self.number, width, full=options.explain_full)

    def _name(self, width: int) -> Text:
        """Return title and headings on the left, relevance on the right."""
        from rich.text import Text

        hit = self.row.hit
        word = strength(hit.relevance)
        filled = max(round(hit.relevance * _BAR), 1)
        bar = Text.assemble(("▰" * filled, word), ("▱" * (_BAR - filled), "faint"), (f" {word:6}", word))
        if not self.terms:  # a list by date, without relevance
            bar = Text()
        trail = [one_line(heading) for heading in hit.passage.heading_trail]
        title = one_line(hit.document.title.strip() or file_name(hit.document.path))
        name = self._marked(Text(title, style="title"))
        room = width - bar.cell_len - 2
        if len(trail) > 1 and name.cell_len + sum(len(one) + 3 for one in trail) > room:
            trail = ["…", trail[-1]]
        for heading in trail:
            name = Text.assemble(name, (" › ", "faint"), self._marked(Text(heading)))
        shorten(name, room)
        return Text.assemble(name, " " * (width - name.cell_len - bar.cell_len), bar)

    def _address(self, width: int) -> Text:
        """Return path and line of the passage, docid and date."""
        hit, docid = self.row.hit, self.row.docid
        rest = "".join(f"  {one}" for one in (docid, hit.document.date, "file not found" * hit.is_missing) if one)
        where = self.row.identifier if docid is None else _short_address(hit.document.uri)
        place = elide(f"{one_line(where)}:{hit.passage.line}", width - len(rest))
        return self._linked(hit.document, "", place, rest, "path")

    def _linked(self, document: StoredDocument, before: str, place: str, after: str, style: str) -> Text:
        """Return a row in which the place in a note is a link to it."""
        from rich.style import Style
        from rich.text import Text

        link = self.options.links.get(document.uri)
        return Text.assemble(before, Text(place, Style(link=link) if link else ""), after, style=style)

    def _note_rows(self, lead: str, text: str, width: int, most: int) -> list[Text]:
        """Wrap a faint line to at most `most` rows."""
        from rich.text import Text

        rows = wrap(Text(one_line(lead + text, LONG_CHARS), style="note"), width)
        if len(rows) > most:
            rows = [*rows[: most - 1], shorten(Text(rows[most - 1].plain + " …", style="note"), width)]
        return rows

    def _passage(self, width: int) -> Iterator[Text]:
        hit, options = self.row.hit, self.options
        passage = hit.passage
        if hit.mention and not options.full:
            lead = f"{_short_address(hit.mention.document.uri)}:{hit.mention.line} mentions it: "
            yield from self._note_rows(lead, plain_text(hit.mention.text), width, NOTE_ROWS)
            return
        if options.line_numbers:
            yield from self._numbered(width)
            return
        text = (hit.body or "") if options.full else passage.text
        blocks = read_blocks(text, hit.document.path, width, self._marked, is_code=passage.is_code)
        if options.full:
            yield from (row for block in blocks for row in block.rows)
            return
        above = {*map(visible, (*hit.passage.heading_trail, hit.document.title))}
        shown = [block for block in blocks if block.heading not in above] or blocks
        yield from choose_rows(shown, passage.line - passage.start_line, PASSAGE_ROWS, width)

    def _numbered(self, width: int) -> Iterator[Text]:
        """Yield the unformatted lines, each after its number."""
        from rich.text import Text

        hit, passage = self.row.hit, self.row.hit.passage
        first, text = (1, hit.body or "") if self.options.full else (passage.start_line, passage.text)
        lines = visible(text.replace("\r\n", "\n")).removesuffix("\n").expandtabs(4).split("\n")
        gutter = len(str(first + len(lines) - 1))
        for number, line in enumerate(lines, start=first):
            for part, row in enumerate(wrap(self._marked(Text(line)), width - gutter - 2)):
                yield Text.assemble((f"{'' if part else number:>{gutter}}  ", "faint"), row)

    def _marked(self, text: Text) -> Text:
        for start, end in find_spans(text.plain, self.terms):
            text.stylize("match", start, end)
        return text


def _unwrapped(lead: str, line: Text) -> Text:
    """Return a line that needs no wrapping, which takes time."""
    from rich.text import Text

    return Text.assemble((lead, "faint" if lead.strip() else ""), line, no_wrap=True, overflow="ignore")


def _short_address(uri: str) -> str:
    """Shorten an address to a form that `qmd get` accepts."""
    return uri.removeprefix("qmd://")
