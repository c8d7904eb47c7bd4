"""Built-in embedding model of each collection, by the main language of its notes.

The fact `model:COLLECTION` records another model than the default one, with the fingerprint of its vectors. It stays
when the package of that model is removed: the collection is then searched by words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.models.builtin import MULTILINGUAL, locate_builtin
from qmd.inference.models.weights import encoder_fingerprint
from qmd.records import Scope
from qmd.store.base import IndexReader, IndexWriter
from qmd.store.records import chosen_models


class UnreadCollection(Struct, frozen=True):
    """Collection whose vectors are of a model that does not read its main language."""

    name: str
    language: str
    n_chars: int
    """Characters to embed with the model that does."""


def choose_at_first(writer: IndexWriter, collection: str) -> None:
    """Choose the model of a collection whose first update is complete."""
    choose_again(writer, (collection,), force=True)


def choose_again(writer: IndexWriter, collections: Sequence[str], *, force: bool) -> tuple[UnreadCollection, ...]:
    """Choose the models of collections without vectors, by `force` of all; return those that another one would read."""
    known, folder, unread = chosen_models(writer.facts()), _find_package(), []
    for name in collections if folder or known else ():
        language = writer.main_language(Scope((name,))) if folder else None
        present = known.get(name, ("",))[0]
        if (present == MULTILINGUAL.name) == (language is not None):
            continue
        n_texts, n_chars = writer.count_pending("", (name,))
        if force or writer.count_pending(writer.vector_model(name), (name,))[0] == n_texts:
            found = encoder_fingerprint(folder, MULTILINGUAL, folder / "model.onnx") if folder and language else ""
            record_models(writer, (name,), MULTILINGUAL.name if found else "", found)
        elif language is not None:
            unread.append(UnreadCollection(name, language, n_chars))
    return tuple(unread)


def record_models(writer: IndexWriter, collections: Iterable[str], name: str, fingerprint: str) -> None:
    """Record whose vectors collections have; an empty name is the default model, or one that reads all of them."""
    known, value = writer.facts(), f"{name} {fingerprint}" if name else None
    changed = {f"model:{one}": value for one in collections if known.get(f"model:{one}") != value}
    if changed:
        writer.set_facts(changed)


def _find_package() -> Path | None:
    try:
        return locate_builtin(MULTILINGUAL)
    except ModelError:
        return None
