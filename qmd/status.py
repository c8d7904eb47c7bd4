"""Index status records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from qmd.escapes import address_line, message_line
from qmd.file_names import to_text


class CollectionStatus(Struct, frozen=True):
    """Counts of one collection in the index."""

    name: str
    path: Path
    pattern: str
    documents: int
    updated_at: str | None
    include_by_default: bool
    language: str | None = None
    """Main language, if it is not English."""
    model: str | None = None
    """Built-in model that it has instead of the default one."""


INDEXED = "indexed"
"""Value of `program` for a file that is in the index, but not completely."""

COUNTED = TEMPLATE, LICENCE, BINARY, NO_READER = "template", "licence or requirements file", "binary file", "no reader"
"""Messages of skipped files that are counted, not listed: a folder may have thousands."""


class SkippedFile(Struct, frozen=True, rename={"message": "reason"}):
    """File that a collection selects but the index does not contain as it is now, or not completely."""

    collection: str
    path: str
    message: str
    """One line that names the file; of an indexed file, the part that could not be read."""
    size_bytes: int = -1
    mtime_ns: int = -1
    """Size and time of the skipped file; an equal one need not be tried again. -1 for always."""
    program: str = ""
    """Version of the program that could not read it; another one may. `INDEXED` if the index has the rest."""
    line: int | None = None
    """Line that could not be read, if it is known."""

    @property
    def is_indexed(self) -> bool:
        """Whether the file is in the index, without the part that could not be read."""
        return self.program == INDEXED

    @property
    def reason(self) -> str:
        """Message on one line, with ` (line 4)` if the line is known."""
        return message_line(self.message if self.line is None else f"{self.message} (line {self.line})")

    @property
    def as_grep_line(self) -> str:
        """`path:4: message`, in the form of grep."""
        line = "" if self.line is None else f":{self.line}"
        return f"{address_line(self.path)}{line}: {message_line(self.message)}"


Runner = Literal["embed", "watch", "server", "cleanup", "copy"]
"""Tasks that take the embedding lock of an index."""


class EmbeddingTask(Struct, frozen=True):
    """Task that takes the embedding lock."""

    program: str
    """Text before its process, for people."""
    work: str = "computing vectors for"
    """Description of its work on the index."""
    yields: bool = False
    """Whether it ends for a command with the same task, and continues afterwards."""
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
    """Process that has the embedding lock of an index; mostly a run that computes vectors."""

    pid: int
    started_at: str
    done: int = 0
    """Characters."""
    total: int = 0
    """Characters of the texts that lacked vectors; 0 while the model is being loaded."""
    left_s: float | None = None
    """Seconds until its end; None while unknown."""
    is_paused: bool = False
    """Whether its process is briefly busy with other work."""
    by: Runner = "embed"

    @property
    def task(self) -> EmbeddingTask:
        """Task of `by`."""
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
        """Its progress: `43 % done, 1 min 15 s left`."""
        from qmd.progress import duration_text

        left = "" if self.left_s is None else f", {duration_text(self.left_s)} left"
        return f"{self.percent} % done{left}" if self.total else "just started"


class IndexStatus(Struct, frozen=True):
    """State of an index."""

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
    """Skipped files; a store includes files that are indexed, which are in `problems` of an index."""
    problems: tuple[SkippedFile, ...] = ()
    """Files that could not be read, or not completely."""
    holder: EmbeddingRun | None = None
    """Process that has the embedding lock now."""
    address: str | None = None
    """Address of an index that is no file."""
    others: str | None = None
    """Files of other kinds in the folders, which no collection indexes: `212 .png, 31 .canvas`."""
    missing: tuple[str, ...] = ()
    """Collections with a missing folder: `notes (/home/me/notes)`."""
    copies: int = 0
    """Files with the text of another file."""
    advice: str | None = None
    """Model for the language of its notes, if the built-in one does not read it."""

    @property
    def embedding(self) -> EmbeddingRun | None:
        """Run that computes vectors now."""
        return self.holder if self.holder is not None and self.holder.task.computes else None

    @property
    def place(self) -> str:
        """Its place as a user reads it."""
        return self.address or to_text(self.path)


class Fact(Struct, frozen=True):
    """One line of `status`, in each of its forms: text, screen, JSON, and the MCP tool's."""

    key: str
    """Key in JSON."""
    value: Callable[[IndexStatus], int | str | None]
    label: str = ""
    """Label before the value; empty if each form has its own words."""
    is_for_tool: bool = False
    """Whether the MCP tool returns it, too."""


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
    Fact("missingFolders", lambda index: ", ".join(index.missing) or None, "Missing"),
    Fact("problems", lambda index: len(index.problems) or None, "Problems"),
    Fact("copies", lambda one: f"{one.copies:,} with the text of another file" if one.copies else None, "Copies"),
    Fact(
        "collectionModels",
        lambda one: ", ".join(f"{c.name} ({c.model})" for c in one.collections if c.model) or None,
        "Models",
    ),
    Fact("modelAdvice", lambda index: index.advice, "Model"),
)
"""A row with a label is one more line in every form; the stores' `read_status` counts its values."""


def fact_values(index: IndexStatus, *, is_for_tool: bool) -> dict[str, int | str | None]:
    """Return the facts by key: those of the tool that have a value, or all others."""
    values = {fact.key: fact.value(index) for fact in FACTS if fact.is_for_tool == is_for_tool}
    return {key: value for key, value in values.items() if value is not None or not is_for_tool}


def fact_lines(index: IndexStatus, *, is_for_tool: bool = False) -> list[tuple[str, str]]:
    """Return (label, value) of the facts that have a label and a value, of all or of those of the tool."""
    facts = [fact for fact in FACTS if fact.label and (fact.is_for_tool or not is_for_tool)]
    return [(fact.label, str(value)) for fact in facts if (value := fact.value(index)) is not None]
