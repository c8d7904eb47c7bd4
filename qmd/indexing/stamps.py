"""Version stamps: the version that made a part of the index, and the parts that a newer one has to make again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import filterfalse
from typing import Self

from msgspec import Struct

from qmd.analysis import ANALYSIS_VERSION, SIMILAR_VERSION
from qmd.batching import batches
from qmd.chunking import CHUNKING_VERSION
from qmd.file_names import suffix_of
from qmd.plugins import KINDS, find, hooks
from qmd.records import Scope
from qmd.store.base import IndexReader, IndexWriter


class Stamp(Struct, frozen=True):
    """Version that made a part of the index, and the readers installed then."""

    version: int
    plain: frozenset[str] = frozenset()
    """Suffixes treated as plain text, because a grammar or a row of `KINDS` was missing."""
    readers: Mapping[str, int] = {}
    """Suffix → version of its reader; of an analysis alone."""

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Return the stamp that `str` wrote (`5 .html=1 .py`), or version 0 for None."""
        version, *others = (text or "0").split()
        readers = {suffix: int(number) for suffix, _, number in (one.partition("=") for one in others) if number}
        return cls(int(version), frozenset(one for one in others if "=" not in one), readers)

    def __str__(self) -> str:
        readers = [f"{suffix}={version}" for suffix, version in self.readers.items()]
        return " ".join([str(self.version), *sorted([*self.plain, *readers])])

    def outdated(self, version: int, others: Iterable[str] = ()) -> Callable[[str], bool] | None:
        """Return a test of paths that `version` has to analyse again, `others` among them; None if no file needs it."""
        if self.version not in (version, SIMILAR_VERSION):
            return lambda _: True
        changed = {suffix for suffix, _ in self.readers.items() ^ _readers().items() if find(KINDS, suffix)}
        suffixes, paths = changed | set(filter(_is_installed, self.plain)), frozenset(others)
        return (lambda path: path in paths or suffix_of(path) in suffixes) if suffixes or paths else None

    def still_plain(self, version: int) -> frozenset[str]:
        """Return the suffixes for which nothing has changed: same version, and the grammar is still missing."""
        return frozenset(filterfalse(_is_installed, self.plain)) if self.version == version else frozenset()


def _is_installed(suffix: str) -> bool:
    """Return whether files of this suffix have a row, and a grammar if they are source code."""
    kind = find(KINDS, suffix)
    return kind is not None and (not kind.is_source or hooks.has_grammar(f"x{suffix}"))


def _readers() -> dict[str, int]:
    return {suffix: kind.version for suffix, kind in KINDS.items() if kind.version}


def analysed_otherwise(reader: IndexReader, collection: str, stamp: Stamp) -> Iterator[str]:
    """Yield the paths of documents to which `SIMILAR_VERSION` gave other terms, after reading the texts of all."""
    if stamp.version != SIMILAR_VERSION:
        return
    from qmd.analysis.index import is_analysed_otherwise

    for part in batches(list(reader.iter_documents(Scope(collections=(collection,)))), 64):
        texts = reader.texts([one.hash for one in part])
        yield from (one.path for one in part if is_analysed_otherwise(one.path, texts.get(one.hash, "")))


def stamp_analysis(writer: IndexWriter, collection: str, plain: Iterable[str]) -> None:
    """Note that this version analysed all of a collection; `plain` as in `Stamp`."""
    writer.set_version_stamp(f"analysis:{collection}", str(Stamp(ANALYSIS_VERSION, frozenset(plain), _readers())))


def forget_outdated_chunks(writer: IndexWriter, fingerprint: str) -> frozenset[str]:
    """Make texts pending that another version split, or that were split without a grammar that is installed now.

    Returns:
        Endings whose files remain split as plain text.
    """
    stamp = Stamp.parse(writer.version_stamp(f"chunks:{fingerprint}"))
    remaining = stamp.still_plain(CHUNKING_VERSION)
    if stamp != Stamp(CHUNKING_VERSION, remaining):
        suffixes = sorted(stamp.plain - remaining) if stamp.version == CHUNKING_VERSION else None
        with writer.transaction():
            writer.forget_chunks(fingerprint, suffixes)
            stamp_chunks(writer, fingerprint, remaining)
    return remaining


def are_chunks_current(reader: IndexReader, fingerprint: str) -> bool:
    """Return whether `forget_outdated_chunks` would change nothing."""
    stamp = Stamp.parse(reader.version_stamp(f"chunks:{fingerprint}"))
    return stamp == Stamp(CHUNKING_VERSION, stamp.still_plain(CHUNKING_VERSION))


def stamp_chunks(writer: IndexWriter, fingerprint: str, plain: Iterable[str]) -> None:
    """Store the endings of files that were split as plain text, because a grammar is missing."""
    writer.set_version_stamp(f"chunks:{fingerprint}", str(Stamp(CHUNKING_VERSION, frozenset(plain))))


def may_add_chunks(writer: IndexWriter, fingerprint: str) -> bool:
    """Return whether chunks of this version may be added to an index; stamp one that has no vectors.

    They may not mix with chunks of another version, nor with vectors of another model alone.
    """
    if writer.vector_coverage(fingerprint).has_vectors:
        return Stamp.parse(writer.version_stamp(f"chunks:{fingerprint}")).version == CHUNKING_VERSION
    if fingerprint not in writer.vector_models() and writer.status(None).vectors:
        return False
    forget_outdated_chunks(writer, fingerprint)
    return True
