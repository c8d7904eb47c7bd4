"""What an index holds, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from qmd.file_names import to_text
from qmd.records import Collection


class CollectionStatus(Struct, frozen=True):
    """Counts of one collection in the index."""

    name: str
    path: Path
    pattern: str
    documents: int
    updated_at: str | None
    include_by_default: bool

    @classmethod
    def of(cls, collection: Collection, documents: int, updated_at: str | None) -> CollectionStatus:
        """What the index holds of a configured collection."""
        chosen = collection.include_by_default
        return cls(collection.name, collection.path, collection.pattern, documents, updated_at, chosen)


INDEXED = "indexed"
"""In place of a version: the file is in the index, without what could not be read of it."""


class SkippedFile(Struct, frozen=True, rename={"message": "reason"}):
    """A file that a collection selects but the index does not hold as it is now, or not all of it."""

    collection: str
    path: str
    message: str
    """One line that names the file; of an indexed file, the part that could not be read."""
    size_bytes: int = -1
    mtime_ns: int = -1
    """Size and time of the file that was left out; an equal one need not be tried again. -1 for always."""
    program: str = ""
    """Version of the program that could not take it; another one may. `INDEXED` where the index holds the rest."""
    line: int | None = None
    """The line that could not be read, where it is known."""

    @property
    def is_indexed(self) -> bool:
        """Whether the file is in the index, without what could not be read of it."""
        return self.program == INDEXED

    @property
    def reason(self) -> str:
        """The message, with ` (line 4)` where the line is known."""
        return self.message if self.line is None else f"{self.message} (line {self.line})"

    @property
    def as_grep_line(self) -> str:
        """`path:4: message`, as programs that jump to a place read it."""
        line = "" if self.line is None else f":{self.line}"
        return f"{self.path}{line}: {self.message}"


Runner = Literal["embed", "watch", "server", "cleanup", "copy"]
"""What takes the embedding lock of an index."""


class EmbeddingTask(Struct, frozen=True):
    """Work that takes the embedding lock."""

    program: str
    """Before its process, where people read it."""
    work: str = "computing vectors for"
    """What it does with the index."""
    yields: bool = False
    """Whether it ends for a command that was asked to do the same, and continues afterwards."""
    computes: bool = True
    """Whether it computes vectors."""


EMBEDDING_TASKS: Mapping[Runner, EmbeddingTask] = {
    "embed": EmbeddingTask(""),
    "watch": EmbeddingTask("qmd watch, ", yields=True),
    "server": EmbeddingTask("a server, ", yields=True),
    "cleanup": EmbeddingTask("qmd cleanup, ", "cleaning", computes=False),
    "copy": EmbeddingTask("qmd store copy, ", "filling", computes=False),
}


class EmbeddingRun(Struct, frozen=True):
    """Who has the vectors of an index just now, in whatever process; mostly a run that computes them."""

    pid: int
    started_at: str
    done: int = 0
    """Characters."""
    total: int = 0
    """Characters of the texts that lacked vectors; 0 while the model is being loaded."""
    left_s: float | None = None
    """Seconds that it will still take; None while that is not known."""
    is_paused: bool = False
    """Whether its process does something else for a moment."""
    by: Runner = "embed"

    @property
    def task(self) -> EmbeddingTask:
        """The work of `by`."""
        return EMBEDDING_TASKS[self.by]

    @property
    def who(self) -> str:
        """Its process: `qmd watch, process 77`."""
        return f"{self.task.program}process {self.pid}"

    @property
    def percent(self) -> int:
        """Whole percent done."""
        return 100 * self.done // self.total if self.total else 0

    @property
    def state(self) -> str:
        """How far it is: `43 % done, 1 min 15 s left`."""
        from qmd.progress import duration_text

        left = "" if self.left_s is None else f", {duration_text(self.left_s)} left"
        return f"{self.percent} % done{left}" if self.total else "just started"


class IndexStatus(Struct, frozen=True):
    """What the index holds."""

    path: Path
    size_bytes: int
    documents: int
    embedded_documents: int
    pending_documents: int
    """Distinct active contents without a complete set of vectors for the current model."""
    chunks: int
    vectors: int
    updated_at: str | None
    fingerprint: str | None
    collections: tuple[CollectionStatus, ...]
    left_out: tuple[SkippedFile, ...] = ()
    """Of a store also files that are indexed, which `problems` has of an index."""
    problems: tuple[SkippedFile, ...] = ()
    """Files that could not be read, or not all of them."""
    holder: EmbeddingRun | None = None
    """Who has its vectors now."""
    address: str | None = None
    """Where an index lies that is no file."""
    others: str | None = None
    """Files of other kinds in the folders, which no collection takes: `212 .png, 31 .canvas`."""
    advice: str | None = None
    """Which model reads its notes, where the built-in one does not."""

    @property
    def embedding(self) -> EmbeddingRun | None:
        """The run that computes vectors now."""
        return self.holder if self.holder is not None and self.holder.task.computes else None

    @property
    def place(self) -> str:
        """Where it lies, as a person is told."""
        return self.address or to_text(self.path)


class Fact(Struct, frozen=True):
    """One thing that `status` says of an index, in each of its forms: the text, the screen, JSON, and the tool's."""

    key: str
    """In JSON."""
    value: Callable[[IndexStatus], int | str | None]
    label: str = ""
    """What people read before the value; empty where each form has words of its own for it."""
    is_for_tool: bool = False
    """Whether programs that ask the MCP tool get it, too."""


FACTS = (
    Fact("totalDocuments", lambda index: index.documents, is_for_tool=True),
    Fact("needsEmbedding", lambda index: index.pending_documents, is_for_tool=True),
    Fact("hasVectorIndex", lambda index: index.vectors > 0, is_for_tool=True),
    Fact("sizeBytes", lambda index: index.size_bytes),
    Fact("embeddedDocuments", lambda index: index.embedded_documents),
    Fact("chunks", lambda index: index.chunks),
    Fact("vectors", lambda index: index.vectors),
    Fact("updatedAt", lambda index: index.updated_at),
    Fact("fingerprint", lambda index: index.fingerprint),
    Fact("notTaken", lambda index: index.others, "Not taken", is_for_tool=True),
    Fact("problems", lambda index: len(index.problems) or None, "Problems"),
    Fact("modelAdvice", lambda index: index.advice, "Model"),
)
"""A row with a label is a line more in every form; what it counts comes from the stores' `read_status`."""


def fact_values(index: IndexStatus, *, is_for_tool: bool) -> dict[str, int | str | None]:
    """The facts by key, those of the tool as far as there is something to say, or those beside them."""
    values = {fact.key: fact.value(index) for fact in FACTS if fact.is_for_tool == is_for_tool}
    return {key: value for key, value in values.items() if value is not None or not is_for_tool}


def fact_lines(index: IndexStatus, *, is_for_tool: bool = False) -> list[tuple[str, str]]:
    """(label, value) of the facts that have a label and a value, of all or of those of the tool."""
    facts = [fact for fact in FACTS if fact.label and (fact.is_for_tool or not is_for_tool)]
    return [(fact.label, str(value)) for fact in facts if (value := fact.value(index)) is not None]
