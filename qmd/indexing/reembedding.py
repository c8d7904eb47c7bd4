"""Staging of vectors that replace others: the old ones serve until the new ones are complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qmd.records import Scope
from qmd.store.base import IndexWriter
from qmd.store.records import MODEL_FACTS, STAGING


def begin(writer: IndexWriter, fingerprint: str, only: Sequence[str] | None, *, force: bool, resumes: bool) -> str:
    """Return the fingerprint under which a run stores vectors: the model's, or a staging one, which no search uses.

    Staging is for vectors that replace another model's, or by `force` the model's own. A run continues existing staging
    also without `force`, but not if it only follows changes (`resumes`). `only` names the collections of the run.
    """
    (known, others), staging = _models(writer, only), STAGING + fingerprint
    has_begun = writer.vector_coverage(staging).has_vectors
    if not (force or (has_begun and not resumes) if fingerprint in known else known):
        return fingerprint
    if not has_begun:
        with writer.transaction():
            writer.keep_models({name: name for one in (*known, *others) for name in {one, STAGING + one} - {staging}})
            if only is not None:
                rest = Scope(collections=tuple(set(writer.collections_with_documents()) - set(only)))
                kept = {one.hash for one in writer.iter_documents(rest)}
                _copy(writer, fingerprint, staging, kept.__contains__, is_complete=True)
                writer.set_version_stamp(f"chunks:{staging}", writer.version_stamp(f"chunks:{fingerprint}") or "0")
    return staging


def finish(writer: IndexWriter, fingerprint: str, only: Sequence[str] | None, *, force: bool) -> tuple[str, ...]:
    """Make staged vectors those of the model, in one step; with `force` these collections keep no others.

    Change nothing, and return a warning, if they are of `only` some collections and another model has more.
    """
    staging = STAGING + fingerprint
    with writer.transaction():
        known, others = _models(writer, only)
        is_part = fingerprint not in known and only is not None
        if is_part and writer.count_pending(staging)[0] > writer.count_pending(known[-1])[0]:
            return ("the new model's vectors are not used before all collections have them; run 'qmd embed'",)
        # Texts that arrived meanwhile may have vectors from a search; the next run examines them again.
        _copy(writer, fingerprint, staging, bool, is_complete=False)
        gone = [one for one in known if one != fingerprint and force]
        kept = {*others, *map(STAGING.__add__, others), *known} - {fingerprint, *gone}
        writer.keep_models({staging: fingerprint, **{one: one for one in kept}})
        writer.set_facts({f"{fact}:{one}": None for fact in MODEL_FACTS for one in gone})
        writer.set_version_stamp(f"chunks:{fingerprint}", writer.version_stamp(f"chunks:{staging}") or "0")
    return ()


def _models(writer: IndexWriter, only: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the models of the index: those that a run of `only` some collections may replace, and those of others."""
    read = writer.vector_models().items()
    others = {one for one, own in read if only is not None and own is not None and set(own).isdisjoint(only)}
    known = [one.fingerprint for one in writer.models()]
    return [one for one in known if one not in others], [one for one in known if one in others]


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
