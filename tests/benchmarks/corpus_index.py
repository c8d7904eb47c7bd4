"""Index of a test collection's documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qmd.indexing.embed import embed_pending
from qmd.indexing.reading import stored_form
from qmd.inference.base import Embedder
from qmd.progress import Progress
from qmd.records import Collection, StoredDocument
from qmd.store.opening import open_writer
from qmd.store.records import NewDocument
from tests.benchmarks.judged import CorpusText, read_corpus
from tests.parsing import parse_document

COLLECTION = "corpus"
SUFFIX = ".md"
"""Entries are indexed as markdown files, so that their titles are headings as in a folder of notes."""


def index_corpus(
    folder: Path,
    database: Path,
    embedder: Embedder | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Index the corpus of a BEIR folder, each entry as a markdown file; existing entries are kept.

    Args:
        folder: Contains `corpus.jsonl` or `corpus.jsonl.gz`.
        database: The index file, created if missing.
        embedder: Computes vectors; None skips them.
        on_progress: Gets the characters done and left.

    Raises:
        NotFoundError: No corpus.
        UsageError: A line cannot be read.
    """
    database.parent.mkdir(parents=True, exist_ok=True)
    with open_writer(database) as writer:
        if not writer.count_documents():
            writer.mirror_config([Collection(COLLECTION, folder.absolute())], None, "bench")
            with writer.transaction():
                writer.put_documents(COLLECTION, map(_as_markdown, read_corpus(folder)))
        if embedder is not None:
            embed_pending(writer, embedder, on_progress=on_progress)


def entry_id(document: StoredDocument) -> str:
    """Return the corpus's own name of a document of its index."""
    return document.path.removesuffix(SUFFIX)


def _as_markdown(entry: CorpusText) -> NewDocument:
    source = f"# {entry.title}\n\n{entry.text}\n" if entry.title else f"{entry.text}\n"
    raw = source.encode("utf-8", "replace")
    path = entry.id + SUFFIX
    document = parse_document(path, raw)
    return stored_form(document, len(raw), 0, 0, 0)
