"""A real index of a few notes: it opens in milliseconds, so no test needs a stand-in for it."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from qmd.indexing.embed import embed_pending
from qmd.indexing.reading import stored_form
from qmd.inference.base import Embedder
from qmd.records import Collection, MetadataValue, SearchResponse, StoredDocument
from qmd.store.sqlite.opening import open_writer
from qmd.store.sqlite.writer import SqliteWriter
from tests.parsing import parse_document


@cache
def _empty_index() -> bytes:
    """A file without notes: to copy it takes a tenth of the time that it takes to make it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index.sqlite"
        open_writer(path).close()
        return path.read_bytes()


class NoteIndex(SqliteWriter):
    """An index in a folder of its own, gone with the object. Vectors are those of `embedder`; without one, none."""

    def __init__(self, embedder: Embedder | None = None) -> None:
        self._folder = TemporaryDirectory()
        path = Path(self._folder.name) / "index.sqlite"
        path.write_bytes(_empty_index())
        super().__init__(open_writer(path).database)
        self.embedder = embedder

    def set_context(self, text: str | None, **prefixes: Mapping[str, str]) -> None:
        """The user's notes: on everything, and by path prefix for each collection named."""
        known = [replace(one, context=prefixes.get(one.name, one.context)) for one in self.collections()]
        self.mirror_config(known, text, "test")

    def add(
        self,
        path: str,
        text: str,
        *,
        collection: str = "notes",
        title: str | None = None,
        modified_at: str = "2026-01-01T00:00:00Z",
        metadata: Mapping[str, MetadataValue] | None = None,
        embed: bool = True,
    ) -> StoredDocument:
        """Add a markdown file and return it as stored; without `embed` it waits for vectors."""
        known: Sequence[Collection] = self.collections()
        if collection not in [one.name for one in known]:
            added = Collection(collection, Path("/srv") / collection)
            self.mirror_config([*known, added], self.global_context(), "test")
        parsed = parse_document(path, text.encode("utf-8", "surrogatepass"))
        document = replace(parsed, metadata={**parsed.metadata, **(metadata or {})})
        stored = replace(stored_form(document, len(document.text), 0, 0, 0), title=title or document.title)
        self.put_documents(collection, [replace(stored, created_at=modified_at, modified_at=modified_at)])
        if embed and self.embedder is not None:
            embed_pending(self, self.embedder, collections=[collection])
        found = self.find_path(collection, path)
        assert found is not None
        return found


def paths(answer: SearchResponse) -> list[str]:
    """The notes that a search found, the best first."""
    return [hit.document.path for hit in answer.hits]
