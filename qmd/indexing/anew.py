"""Vectors that are to replace others: computed beside those, which serve until the new ones are complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qmd.records import Scope
from qmd.store.base import IndexWriter
from qmd.store.records import ANEW


def is_begun(writer: IndexWriter, fingerprint: str) -> bool:
    """Whether a run that was ended has left such vectors of a model."""
    return writer.vector_coverage(ANEW + fingerprint).has_vectors


def begin(
    writer: IndexWriter, fingerprint: str, collections: Sequence[str] | None, *, force: bool, resumes: bool
) -> str:
    """The fingerprint under which a run is to store vectors of a model: its own, or one that no search chooses.

    The latter where they replace another model's, or by `force` its own. What was begun is continued without `force`,
    too, but not by a run that only keeps up with changes (`resumes`).
    """
    known, beside = [one.fingerprint for one in writer.models()], ANEW + fingerprint
    has_begun = is_begun(writer, fingerprint)
    if not (force or (has_begun and not resumes) if fingerprint in known else known):
        return fingerprint
    if not has_begun:
        with writer.transaction():
            writer.keep_models({name: name for name in known})
            if collections is not None:
                others = set(writer.collections_with_documents()) - set(collections)
                kept = {one.hash for one in writer.iter_documents(Scope(collections=tuple(others)))}
                _copy(writer, fingerprint, beside, lambda content: content in kept, is_complete=True)
                _copy_stamp(writer, fingerprint, beside)
    return beside


def finish(writer: IndexWriter, fingerprint: str, collections: Sequence[str] | None, *, force: bool) -> bool:
    """Let vectors computed beside others be those of the model, in one step; by `force` the index keeps no others.

    False, with nothing changed, where they are of some collections only and another model has those of more texts.
    """
    beside = ANEW + fingerprint
    with writer.transaction():
        known = [one.fingerprint for one in writer.models()]
        is_new = fingerprint not in known and collections is not None
        if is_new and writer.count_pending(beside)[0] > writer.count_pending(known[-1])[0]:
            return False
        # Texts that came meanwhile may have got theirs from a search; the next run looks at them again.
        _copy(writer, fingerprint, beside, lambda _: True, is_complete=False)
        kept = {} if force else {name: name for name in known if name != fingerprint}
        writer.keep_models({**kept, beside: fingerprint})
        _copy_stamp(writer, beside, fingerprint)
    return True


def _copy(
    writer: IndexWriter, source: str, target: str, is_chosen: Callable[[str], bool], *, is_complete: bool
) -> None:
    """Give a model's chunks and vectors to those chosen texts that lack them under another fingerprint."""
    dims = {one.fingerprint: one.dim for one in writer.models()}
    for sets in writer.chunk_sets(source):
        chosen = filter(is_chosen, writer.without_vectors(target, list(sets)))
        contents = {content: sets[content] for content in chosen}
        keys = {chunk.key for chunks in contents.values() for chunk in chunks}
        writer.put_vectors(target, dims[source], writer.vectors(source, list(keys)))
        writer.put_chunks(target, dims[source], contents, is_complete=is_complete)


def _copy_stamp(writer: IndexWriter, source: str, target: str) -> None:
    writer.set_version_stamp(f"chunks:{target}", writer.version_stamp(f"chunks:{source}") or "0")
