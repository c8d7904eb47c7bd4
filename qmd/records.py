"""Frozen records passed between stages. Each stage hands on a later type instead of filling optional fields.

Offsets are code-point offsets into `Document.text`; lines and ranks start at 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from qmd.conditions import Condition
from qmd.file_names import to_disk
from qmd.masks import DEFAULT_PATTERN
from qmd.times import parse_time

if TYPE_CHECKING:
    from qmd.dates.days import DateSpan

MetadataValue = str | int | float | bool | tuple[str, ...]
SubQueryKind = Literal["lex", "vec", "hyde"]
Verdict = Literal["good", "weak", "none"]
Sort = Literal["relevance", "date", "-date"]
"""Order of hits; `date` is newest first, `-date` oldest first."""


class Collection(Struct, frozen=True):
    """A named folder (or single file's folder) with the mask that selects its files."""

    name: str
    path: Path
    pattern: str = DEFAULT_PATTERN
    ignore: tuple[str, ...] = ()
    context: Mapping[str, str] = field(default_factory=dict)
    """Path prefix (`"/"` or `""` = whole collection) → user's note."""
    update_command: str | None = None
    include_by_default: bool = True
    gitignore: bool = True


class FileEntry(Struct, frozen=True, gc=False):
    """A file found by the scan. `path` is POSIX, relative to `folder`, as text (see `qmd.file_names`)."""

    path: str
    folder: Path
    size_bytes: int
    mtime_ns: int
    is_prose: bool = False
    """True if a mask of prose selects it, so that templates and licences are skipped."""

    @property
    def absolute(self) -> Path:
        """Path on disk; computed on demand, as most scanned files are never opened."""
        return self.folder / to_disk(self.path)


class Heading(Struct, frozen=True, gc=False):
    """One heading: `level` 1-6, plain `text`, `offset` of its line's first character."""

    level: int
    text: str
    offset: int


class Link(Struct, frozen=True, gc=False, array_like=True):
    """A link as the note writes it: `target` names a note or its path, and is empty for `[[#Heading]]`.

    An index keeps the links of a note as one JSON array of such arrays.
    """

    target: str
    fragment: str
    """A heading, or `^` and the name of a block; empty without."""
    text: str
    """Text that is displayed instead of the target; empty where the target is."""
    line: int
    is_embed: bool = False


class Document(Struct, frozen=True):
    """A parsed file. `text` is the whole decoded file; `body_offset` is where prose starts, after front matter."""

    path: str
    name: str
    """The name of its file without folder and ending: what a wiki link calls the note."""
    title: str
    title_source: Literal["front matter", "heading", "file"]
    text: str
    hash: str
    """sha-256 hex of `text` in UTF-8."""
    body_offset: int
    headings: tuple[Heading, ...]
    metadata: Mapping[str, MetadataValue]
    """Typed front matter, keys lower-case; lists as tuples of strings."""
    aliases: tuple[str, ...] = ()
    """Other names from its front matter."""
    labels: tuple[str, ...] = ()
    """Names of places in it that links refer to."""
    date: str | None = None
    """Day (`2024-02-02`) or month (`2024-02`) of its subject; None where it is unknown."""
    dates: tuple[DateSpan, ...] = ()
    """Every date in its path, front matter and headings."""
    links: tuple[Link, ...] = ()
    warnings: tuple[str, ...] = ()
    unread_line: int | None = None
    """The line that could not be read, where it is known."""


class Chunk(Struct, frozen=True):
    """A piece `text[start:end]` of a document, the unit that is embedded."""

    seq: int
    start: int
    end: int
    text: str
    heading_path: tuple[str, ...]
    """Enclosing headings, outermost first."""


class IndexTerms(Struct, frozen=True):
    """Terms of a document: one analysed string per FTS5 column (see `qmd.analysis`)."""

    title: str
    headings: str
    path: str
    body: str
    extra: str
    """Derived terms that the text does not contain literally: identifier parts, symbols, dates."""


class LexicalTerm(Struct, frozen=True):
    """Query term for BM25, from `qmd.analysis`.

    `fts` is an FTS5 expression that is safe to join (quoted string, quoted prefix, phrase, or parenthesised OR).
    """

    text: str
    fts: str
    required: bool = False
    excluded: bool = False
    is_part: bool = False
    """Whether it is a part of another term's word (`get` of `getUser`) that was not typed by itself."""


class SubQuery(Struct, frozen=True):
    """One typed line of a query document."""

    kind: SubQueryKind
    text: str
    line: int = 1


class TagFilter(Struct, frozen=True, tag=True):
    """Documents with a tag, or one nested in it; folded case, without `#`."""

    name: str
    is_negated: bool = False


class TextFilter(Struct, frozen=True, tag=True):
    """Documents whose title contains a text, whose path contains a text or matches a mask, or of one collection."""

    column: Literal["title", "path", "collection"]
    value: str
    is_negated: bool = False


class DateFilter(Struct, frozen=True, tag=True):
    """Documents dated after or before a day, or on one from `first` to `last`; ISO dates, whole or their start."""

    relation: Literal["after", "before", "on"]
    first: str
    last: str
    is_negated: bool = False


class FieldFilter(Struct, frozen=True, tag=True):
    """Documents whose front matter meets a condition."""

    condition: Condition
    is_negated: bool = False


Filter = TagFilter | TextFilter | DateFilter | FieldFilter


class Scope(Struct, frozen=True):
    """Documents that a search may find, applied before any cut-off; `collections` None means all, empty none."""

    collections: tuple[str, ...] | None = None
    path_prefix: str | None = None
    filters: tuple[Filter, ...] = ()


class Query(Struct, frozen=True):
    """A parsed query. `subqueries` is empty for plain text; then `text` drives the whole pipeline."""

    text: str
    subqueries: tuple[SubQuery, ...] = ()
    intent: str | None = None
    scope: Scope = Scope()
    sort: Sort = "relevance"


NameKind = Literal["file", "title", "alias"]


class Candidate(Struct, frozen=True):
    """One document in one ranking. `score` is comparable only inside that ranking, larger is better."""

    document_id: int
    score: float
    chunk_start: int | None = None
    """Span of the chunk that matched (dense retrieval), else None."""
    chunk_end: int | None = None


class Ranking(Struct, frozen=True):
    """Candidates of one retriever for one sub-query, best first, documents unique."""

    source: Literal["bm25", "dense"]
    kind: Literal["original", "lex", "vec", "hyde"]
    query: str
    candidates: tuple[Candidate, ...]


class StoredDocument(Struct, frozen=True):
    """Document in the index, without its text."""

    id: int
    collection: str
    path: str
    title: str
    hash: str
    modified_at: str
    size: int
    """Length of the text in code points."""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    date: str | None = None
    """Day (`2024-02-02`) or month (`2024-02`) of the note's subject; None where it is unknown."""

    @property
    def day(self) -> str:
        """Its date, else the local day on which its file was written."""
        return self.date or str(parse_time(self.modified_at).astimezone().date())

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of its front matter, without `#`."""
        values = [self.metadata.get(key) for key in ("tag", "tags")]
        lists = [(value,) if isinstance(value, str) else value for value in values]
        return tuple(str(tag).lstrip("#") for tags in lists if isinstance(tags, list | tuple) for tag in tags if tag)

    @property
    def docid(self) -> str:
        """`#` and the first six hex digits of the content hash."""
        return "#" + self.hash[:6]

    @property
    def uri(self) -> str:
        """`qmd://collection/path`, path characters literal."""
        return f"qmd://{self.collection}/{self.path}"


class Passage(Struct, frozen=True):
    """Lines shown for a hit: `text` without header, first and last line number, and the best-matching line."""

    text: str
    start_line: int
    end_line: int
    line: int
    lines_before: int
    lines_after: int
    heading_trail: tuple[str, ...] = ()
    """Headings above the best line, outermost first, without the document's title."""
    is_code: bool = False
    """Whether all of it is code: from a source file, or from inside a fence without its marks."""


class Contribution(Struct, frozen=True):
    """Contribution of one ranking to the fused score of a hit."""

    source: str
    kind: str
    query: str
    rank: int | None
    score: float
    weight: float
    contribution: float


class Explanation(Struct, frozen=True):
    """Scores of a hit in each stage, its place by relevance, and whether a few lines contain all words."""

    contributions: tuple[Contribution, ...]
    fused_rank: int
    fused_score: float
    rerank_score: float | None
    blended_score: float
    relevance: float
    place: int
    judged: float
    """Relevance by its own evidence; `relevance` never rises from one hit to the next."""
    words: Mapping[str, str]
    """Word of the query → first of title, path, aliases, heading and text that has it, else empty."""
    is_close: bool


class Mention(Struct, frozen=True):
    """Line of another note, and its words: a link to a note without prose, or where an item of minutes goes on."""

    document: StoredDocument
    line: int
    text: str


class Hit(Struct, frozen=True):
    """A result. `relevance` is calibrated, in [0, 1], and means the same in every command."""

    document: StoredDocument
    relevance: float
    passage: Passage
    context: str | None
    body: str | None = None
    """Whole text, only when asked for."""
    explanation: Explanation | None = None
    also_in: tuple[str, ...] = ()
    """Addresses of other found documents with the same text."""
    passages: tuple[Passage, ...] = ()
    """`passage` extended to its section, and other passages for parts of the query that it lacks, in order."""
    mention: Mention | None = None
    """Only for a note whose text is empty, or a template."""
    continues: Mention | None = None
    """Place in the next session of dated minutes where the item of the hit goes on; only for the first hits."""
    written_context: str | None = None
    """The context for JSON, if `context` quotes it because the project of its author is not trusted."""
    is_missing: bool = False
    """True if the folder of its collection is missing."""

    @property
    def score(self) -> float:
        """`relevance`, by its name in JSON."""
        return self.relevance

    @property
    def all_passages(self) -> tuple[Passage, ...]:
        """`passages`, or `passage` alone where there are none."""
        return self.passages or (self.passage,)


class StageTiming(Struct, frozen=True):
    """Wall time of one pipeline stage in milliseconds."""

    stage: str
    elapsed_ms: float


class Budget(Struct, frozen=True):
    """Token budget of an answer (o200k), by an estimate that is never too low."""

    of: int
    """Tokens that the answer may have."""
    used: int
    left: int = 0
    """Results that did not fit."""
    cursor: str | None = None
    next: str | None = None
    """Docid of the best result, where none fitted."""


class SearchResponse(Struct, frozen=True):
    """Hits, best first; `warnings` contain every reason why the answer is incomplete."""

    query: Query
    hits: tuple[Hit, ...]
    verdict: Verdict
    warnings: tuple[str, ...] = ()
    expansions: tuple[SubQuery, ...] = ()
    dropped_expansions: tuple[tuple[str, str], ...] = ()
    """(text, reason) of every rejected expansion."""
    timings: tuple[StageTiming, ...] = ()
    models: tuple[str, ...] = ()
    """Names of the models that answered, e.g. `all-MiniLM-L6-v2 int8 (built-in)`."""
    terms: tuple[LexicalTerm, ...] = ()
    """Lexical terms of the search, misspelt ones corrected; `qmd.retrieval.matching` finds them in a text."""
    refreshed: int = 0
    """Changed files that were indexed before the search."""
    is_fresh: bool = False
    """Whether the searched files are known to be unchanged since they were indexed."""
    before: tuple[Hit, ...] = ()
    """Hits that an earlier answer has shown, where the request has its cursor."""
    budget: Budget | None = None
