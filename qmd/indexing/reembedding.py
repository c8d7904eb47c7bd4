"""Vectors that are to replace others: computed beside those, which serve until the new ones are complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qmd.records import Scope
from qmd.store.base import IndexWriter
from qmd.store.records import STAGING


def begin(writer: IndexWriter, fingerprint: str, only: Sequence[str] | None, *, force: bool, resumes: bool) -> str:
    """The fingerprint under which a run is to store vectors: the model's, or another one, which no search chooses.

    The latter where they replace another model's, or by `force` its own. What was begun is continued without `force`,
    too, but not by a run that only keeps up with changes (`resumes`). `only` names the collections of the run.
    """
    known, beside = [one.fingerprint for one in writer.models()], STAGING + fingerprint
    has_begun = writer.vector_coverage(beside).has_vectors
    if not (force or (has_begun and not resumes) if fingerprint in known else known):
        return fingerprint
    if not has_begun:
        with writer.transaction():
            writer.keep_models({name: name for name in known})
            if only is not None:
                others = Scope(collections=tuple(set(writer.collections_with_documents()) - set(only)))
                kept = {one.hash for one in writer.iter_documents(others)}
                _copy(writer, fingerprint, beside, kept.__contains__, is_complete=True)
                writer.set_version_stamp(f"chunks:{beside}", writer.version_stamp(f"chunks:{fingerprint}") or "0")
    return beside


def finish(writer: IndexWriter, fingerprint: str, only: Sequence[str] | None, *, force: bool) -> tuple[str, ...]:
    """Let vectors computed beside others be those of the model, in one step; by `force` the index keeps no others.

    Nothing is changed, and that is told, where they are `only` of some collections and another model has more.
    """
    beside = STAGING + fingerprint
    with writer.transaction():
        known = [one.fingerprint for one in writer.models()]
        is_part = fingerprint not in known and only is not None
        if is_part and writer.count_pending(beside)[0] > writer.count_pending(known[-1])[0]:
            return ("the new model's vectors are not used before all collections have them; run 'qmd embed'",)
        # Texts that came meanwhile may have got theirs from a search; the next run looks at them again.
        _copy(writer, fingerprint, beside, bool, is_complete=False)
        writer.keep_models({beside: fingerprint, **{name: name for name in known if name != fingerprint and not force}})
        writer.set_version_stamp(f"chunks:{fingerprint}", writer.version_stamp(f"chunks:{beside}") or "0")
    return ()


def _copy(
    writer: IndexWriter, source: str, target: str, is_chosen: Callable[[str], bool], *, is_complete: bool
) -> None:
    """Give chosen texts that lack vectors under one fingerprint those of another."""
    dims = {one.fingerprint: one.dim for one in writer.models()}
    for sets in writer.chunk_sets(source):
        contents = {name: sets[name] for name in writer.without_vectors(target, list(sets)) if is_chosen(name)}
        keys = {chunk.key for chunks in contents.values() for chunk in chunks}
        writer.put_vectors(target, dims[source], writer.vectors(source, list(keys)))
        writer.put_chunks(target, dims[source], contents, is_complete=is_complete)
