"""Built-in embedding model of each collection, by the main language of its notes.

The fact `model:COLLECTION` records another model than the default one, with the fingerprint of its vectors. It stays
when the package of that model is removed: the collection is then searched by words.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from qmd.analysis.stopwords import LANGUAGES
from qmd.inference.models.builtin import MINILM, MULTILINGUAL, find_builtin
from qmd.inference.models.weights import encoder_fingerprint
from qmd.process import usable_cpus
from qmd.progress import duration_text
from qmd.records import Scope
from qmd.store.base import IndexWriter
from qmd.store.records import model_of

_CHARS_A_CORE_SECOND = 15_000
"""Characters that the multilingual model embeds on one core with byte products."""


def choose_models(writer: IndexWriter, collections: Sequence[str], *, force: bool = False) -> tuple[str, ...]:
    """Choose the models of collections without vectors, by `force` of all; return a line for others to embed again."""
    folder, lines = find_builtin(MULTILINGUAL), []
    facts = writer.facts()
    for name in collections if folder or any(key.startswith("model:") for key in facts) else ():
        language = writer.main_language(Scope((name,))) if folder else None
        if model_of(facts, name)[0] == (MULTILINGUAL.name if language else ""):
            continue
        n_texts, n_chars = writer.count_pending("", (name,))
        if force or writer.count_pending(writer.vector_model(name), (name,))[0] == n_texts:
            found = encoder_fingerprint(folder, MULTILINGUAL, folder / "model.onnx") if folder and language else ""
            writer.set_facts({f"model:{name}": f"{MULTILINGUAL.name} {found}" if found else None})
        elif language is not None:
            command = shlex.join(["qmd", "embed", "-c", name, "--force"])
            time = duration_text(n_chars / (_CHARS_A_CORE_SECOND * usable_cpus()))
            unread = f"mostly {LANGUAGES.get(language, language)}, which {MINILM.name} does not read"
            lines.append(f"{name}: {unread}; to embed again with {MULTILINGUAL.name}: {command} (about {time})")
    return tuple(lines)


def record_model(writer: IndexWriter, collections: Sequence[str], name: str, fingerprint: str) -> None:
    """Record whose vectors collections have; an empty name is that of the default model, or a configured one."""
    facts, value = writer.facts(), f"{name} {fingerprint}" if name else None
    wanted = {f"model:{one}": value for one in collections} | ({} if name else {"embedded_by": fingerprint})
    if changed := {key: one for key, one in wanted.items() if facts.get(key) != one}:
        writer.set_facts(changed)
