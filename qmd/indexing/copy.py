"""Copy an index to another one that answers the same, without reading a file or computing a vector again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import GrammarError, QmdError, UsageError
from qmd.file_names import suffix_of
from qmd.indexing.reading import failure_line, stored_form, with_declarations
from qmd.indexing.stamps import stamp_analysis
from qmd.ingest.document import parse_text
from qmd.ingest.outline import kind_of
from qmd.store.base import IndexReader, IndexWriter
from qmd.store.opening import unfinished_source, unfinished_state
from qmd.store.records import MODEL_FACTS, KnownFile, NewDocument, OtherFiles, StoredFile

OnProgress = Callable[[str, int, int], None]
"""Receives the copied part (`Texts`, `Vectors`), the number done and the total."""


class CopyReport(Struct, frozen=True):
    """Counts of a copy."""

    documents: int
    vectors: int
    models: int
    warnings: tuple[str, ...] = ()


def begin_copy(writer: IndexWriter, source: str, target: str) -> None:
    """Mark an empty index as an unfinished copy, which only another copy of the same source opens.

    Args:
        writer: A new index, or one with an interrupted copy.
        source: The source, as messages name it.
        target: The new index, as messages name it.

    Raises:
        UsageError: The target contains something else.
    """
    begun = unfinished_source(writer)
    if begun is None and (writer.collections_with_documents() or writer.collections()):
        raise UsageError(
            f"index '{target}' already contains documents or collections", "choose another name or place for the copy"
        )
    if begun is not None and begun != source:
        raise UsageError(
            f"index '{target}' is an unfinished copy of '{begun}'", f"finish that one: qmd store copy {begun} {target}"
        )
    writer.mirror_config((), None, unfinished_state(source))


def copy_index(reader: IndexReader, writer: IndexWriter, on_progress: OnProgress | None = None) -> CopyReport:
    """Write the contents of an index to one for which `begin_copy` was called; this completes the copy.

    The parts that an interrupted copy has written are not written again. Every commit is small, so no engine has to
    keep a whole index in memory. The words are analysed again, by this version, from the stored texts.

    Args:
        reader: The index to be copied.
        writer: The new one.
        on_progress: Receives the progress.
    """
    on_progress = on_progress or (lambda *_: None)
    with reader.snapshot():
        texts = _Texts(writer, on_progress)
        texts.copy(reader)
        n_vectors = _copy_vectors(reader, writer, on_progress)
        for collection in reader.collections():
            _copy_collection_facts(reader, writer, collection.name, texts.plain[collection.name])
        for status in reader.status(None).collections:
            if status.updated_at is not None:
                writer.mark_updated(status.name, status.updated_at)
        writer.mirror_config(reader.collections(), reader.global_context(), reader.config_hash() or "")
        return CopyReport(writer.count_documents(), n_vectors, len(reader.models()), tuple(texts.warnings))


class _Texts:
    """Copier of documents, with warnings about those that could not be analysed completely."""

    def __init__(self, writer: IndexWriter, on_progress: OnProgress) -> None:
        self._writer = writer
        self._on_progress = on_progress
        self.plain: defaultdict[str, set[str]] = defaultdict(set)
        """Collection → endings of source files whose grammar is missing."""
        self.warnings: list[str] = []

    def copy(self, reader: IndexReader) -> None:
        """Make the documents of the target those of the source, in the same order, which decides between equal hits."""
        names = [collection.name for collection in reader.collections()]
        others: dict[str, dict[str, KnownFile]] = {
            name: dict(self._writer.known_files(name)) for name in {*names, *self._writer.collections_with_documents()}
        }
        done, total = 0, reader.count_documents()
        for files in reader.stored_files():
            files = [file for file in files if file.collection in names]
            new = [file for file in files if not _is_same(others[file.collection].pop(file.path, None), file)]
            self._put(reader, new)
            done += len(files)
            self._on_progress("Texts", done, total)
        for name, known in others.items():
            self._writer.remove_documents(name, known)

    def _put(self, reader: IndexReader, files: Sequence[StoredFile]) -> None:
        texts = reader.texts(list({file.hash for file in files}))
        with self._writer.transaction():
            for collection, part in groupby(files, key=attrgetter("collection")):
                made = [new for file in part if (new := self._new_document(file, texts[file.hash])) is not None]
                self._writer.put_documents(collection, made)

    def _new_document(self, file: StoredFile, text: str) -> NewDocument | None:
        try:
            kind = kind_of(file.path)
            document = parse_text(file.path, kind, text)
            try:
                document = with_declarations(document, kind)
            except GrammarError:
                self.plain[file.collection].add(suffix_of(file.path))
            # The parser received blanks for unsupported characters.
            document = replace(document, text=text, hash=file.hash)
            new = stored_form(document, file.size_bytes, file.mtime_ns, 0, 0)
        except (QmdError, MemoryError):
            raise
        # One text with a parser error must not prevent the copy of all others; the next update reads its file.
        except Exception as exc:
            self.warnings.append(failure_line(f"{file.collection}/{file.path}", "was skipped", exc))
            return None
        return replace(new, created_at=file.created_at, modified_at=file.modified_at)


def _is_same(known: KnownFile | None, file: StoredFile) -> bool:
    return known is not None and known == KnownFile(known.document_id, file.hash, file.size_bytes, file.mtime_ns)


def _copy_vectors(reader: IndexReader, writer: IndexWriter, on_progress: OnProgress) -> int:
    """Copy the vectors of all models, then the chunks that refer to them; return the number of vectors."""
    done = 0
    models = reader.models()
    total = sum(reader.status(model.fingerprint).vectors for model in models)
    for model in models:
        for vectors in reader.all_vectors(model.fingerprint):
            writer.put_vectors(model.fingerprint, model.dim, vectors)
            done += len(vectors)
            on_progress("Vectors", done, total)
        for contents in reader.chunk_sets(model.fingerprint):
            writer.put_chunks(model.fingerprint, model.dim, contents)
        facts, names = reader.facts(), [f"{fact}:{model.fingerprint}" for fact in MODEL_FACTS]
        writer.set_facts({name: facts.get(name) for name in names})
    return done


def _copy_collection_facts(reader: IndexReader, writer: IndexWriter, name: str, plain: set[str]) -> None:
    with writer.transaction():
        writer.put_skipped(name, reader.left_out(name))
        writer.record_folders(name, reader.recorded_folders(name))
        facts = reader.facts()
        writer.set_facts(OtherFiles(OtherFiles.of(facts, name).counts, frozenset()).as_facts(name))
        writer.set_facts({f"model:{name}": facts.get(f"model:{name}")})
        writer.settle(name)
        stamp_analysis(writer, name, plain)
