"""The read side of an index in an SQLite file.

It inherits the methods that plain searches need and imports the modules of other methods on first use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from qmd.records import Candidate, Scope, StoredDocument
from qmd.store.sqlite.chunks import Chunks
from qmd.store.sqlite.lexical import Lexical

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.status import IndexStatus
    from qmd.store.sqlite.dense import VectorCache
    from qmd.store.sqlite.links import SqliteLinks


class SqliteReader(Lexical, Chunks):
    """The read side: opened read-only, any number at a time, never runs DDL."""

    def links(self) -> SqliteLinks:
        from qmd.store.sqlite.links import SqliteLinks

        return SqliteLinks(self.database)

    def similar_terms(self, term: str, limit: int = 5, scope: Scope = Scope()) -> Sequence[str]:
        from qmd.store.sqlite import spelling

        return spelling.similar_terms(self, term, limit, scope)

    def search_dense(
        self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str
    ) -> Sequence[Candidate]:
        with self.database.snapshot():
            return self._vectors[fingerprint].search(vector, k, scope, fingerprint)

    def dense_scores(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> Mapping[int, Candidate]:
        with self.database.snapshot():
            return self._vectors[fingerprint].score(vector, document_ids, fingerprint)

    def search_like(self, document: StoredDocument, k: int, scope: Scope) -> Sequence[Candidate]:
        with self.database.snapshot():
            model = self.vector_model(document.collection)
            return self._vectors[model].search_like(document.id, k, scope, model)

    def vectors(self, fingerprint: str, keys: Sequence[bytes]) -> Mapping[bytes, npt.NDArray[np.float32]]:
        from qmd.store.sqlite import vectors

        with self.database.snapshot():
            return vectors.read_vectors(self.database, fingerprint, keys)

    def all_vectors(self, fingerprint: str) -> Iterator[Mapping[bytes, npt.NDArray[np.float32]]]:
        from qmd.store.sqlite import vectors

        return vectors.all_vectors(self.database, fingerprint)

    def status(self, fingerprint: str | None) -> IndexStatus:
        from qmd.store.sqlite import health

        with self.database.snapshot():
            return health.read_status(self, fingerprint)

    def check(self, *, thorough: bool = True) -> Sequence[str]:
        from qmd.store.sqlite import health

        return health.check(self.database, thorough=thorough)

    @cached_property
    def _vectors(self) -> dict[str, VectorCache]:
        """Cache of each model by fingerprint."""
        from qmd.store.sqlite.dense import VectorCache

        return defaultdict(lambda: VectorCache(self.database))
