"""Version stamps: which version of the program made a part of the index, and what a newer one has to make again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

from msgspec import Struct

from qmd.analysis import ANALYSIS_VERSION
from qmd.chunking import CHUNKING_VERSION
from qmd.file_names import suffix_of
from qmd.plugins import KINDS, find, hooks
from qmd.store.base import IndexReader, IndexWriter


class Stamp(Struct, frozen=True):
    """A version, and the endings that it had to treat as plain text for want of a grammar or a row of `KINDS`.

    That of an analysis has the versions of readers among them (`.html=1`).
    """

    version: int
    plain: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """The stamp that `str` wrote; version 0 for none."""
        version, *plain = (text or "0").split()
        return cls(int(version), frozenset(plain))

    def __str__(self) -> str:
        return " ".join([str(self.version), *sorted(self.plain)])

    def outdated(self, version: int) -> Callable[[str], bool] | None:
        """Whether what was made of the file at a path under this stamp has to be made again by `version`.

        None where that is so of no file.
        """
        if self.version != version:
            return lambda _: True
        anew = self._regained() | (_readers() - self.plain)
        if not anew:
            return None
        suffixes = {one.partition("=")[0] for one in anew}
        return lambda path: suffix_of(path) in suffixes

    def still_plain(self, version: int) -> frozenset[str]:
        """Endings that nothing has changed for: same version, and the grammar is still missing."""
        return self.plain - self._regained() if self.version == version else frozenset()

    def _regained(self) -> frozenset[str]:
        """Endings whose grammar, or whose row, has been installed since."""
        return frozenset(suffix for suffix in self.plain if _is_reported(suffix))


def _is_reported(plain: str) -> bool:
    """Whether files with an ending have a row, and a grammar where that takes them for source code; or a new reader."""
    suffix, _, version = plain.partition("=")
    kind = find(KINDS, suffix)
    if kind is None or version:
        return kind is not None and version != str(kind.version)
    return not kind.is_source or hooks.has_grammar(f"x{suffix}")


def _readers() -> frozenset[str]:
    """The versions of readers in force, as the stamp of an analysis has them: `.html=1`."""
    return frozenset(f"{suffix}={kind.version}" for suffix, kind in KINDS.items() if kind.version)


def stamp_analysis(writer: IndexWriter, collection: str, plain: Iterable[str]) -> None:
    """Note that this version analysed all of a collection; `plain` as in `Stamp`."""
    writer.set_version_stamp(f"analysis:{collection}", str(Stamp(ANALYSIS_VERSION, _readers().union(plain))))


def forget_outdated_chunks(writer: IndexWriter, fingerprint: str) -> frozenset[str]:
    """Make pending again what another version cut, or cut without a grammar that is there now.

    Returns:
        Endings whose files remain cut as plain text.
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
    """Whether `forget_outdated_chunks` would find nothing to forget, nor to note."""
    stamp = Stamp.parse(reader.version_stamp(f"chunks:{fingerprint}"))
    return stamp == Stamp(CHUNKING_VERSION, stamp.still_plain(CHUNKING_VERSION))


def stamp_chunks(writer: IndexWriter, fingerprint: str, plain: Iterable[str]) -> None:
    """Note the endings whose files were cut as plain text for want of a grammar."""
    writer.set_version_stamp(f"chunks:{fingerprint}", str(Stamp(CHUNKING_VERSION, frozenset(plain))))


def may_add_chunks(writer: IndexWriter, fingerprint: str) -> bool:
    """Whether chunks of this version may be added to those of an index; one that has no vectors is stamped.

    Not beside those of another version, nor beside vectors of another model alone.
    """
    if writer.vector_coverage(fingerprint).has_vectors:
        return Stamp.parse(writer.version_stamp(f"chunks:{fingerprint}")).version == CHUNKING_VERSION
    if writer.status(None).vectors:
        return False
    forget_outdated_chunks(writer, fingerprint)
    return True
