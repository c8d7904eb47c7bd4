"""fastembed's models as records: purpose, files and inputs.

The list is read from the installed package. Its import costs 0.4 s, so this module runs only when a name begins with
`fastembed:`, a folder of such a model exists, or the user asks for the list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from qmd.errors import ModelError, NotFoundError, nearest_name
from qmd.inference.models.catalogue import chunk_tokens, find_family
from qmd.inference.records import ModelFile, ModelFormat, ModelRecord, Role
from qmd.inference.runtime.sessions import import_runtime
from qmd.inference.settings import ENV_STEMS, WORK

PREFIX = "fastembed:"
"""Prefix of the names of fastembed's models."""

Kind = Literal["embedder", "cross-encoder", "late interaction"]

_ROLES: Mapping[Kind, Role] = {"embedder": "embed", "cross-encoder": "rerank", "late interaction": "rerank"}
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")
_SEE_ALL = "see: qmd models list --available"

_LONGEST_WINDOW = 512
"""Tokens of one run: longer windows blur the meaning of a passage and cost time by the square."""

_LANGUAGES: Mapping[str, str] = {"english": "en", "chinese": "zh", "german": "de", "spanish": "es"}
_SCRIPTS: Mapping[str, tuple[str, ...]] = {"en": ("LATIN",), "de": ("LATIN",), "es": ("LATIN",), "zh": ("CJK", "LATIN")}


class FastembedModel(Struct, frozen=True):
    """A model of fastembed's, as a record and with fastembed's own data."""

    record: ModelRecord
    kind: Kind
    description: str
    size_bytes: int
    """As fastembed states it, rounded."""

    @property
    def own_name(self) -> str:
        """The model's name in fastembed."""
        return self.record.name.removeprefix(PREFIX)


def fastembed_classes() -> Mapping[Kind, Any]:
    """Return fastembed's class for each kind of model.

    Raises:
        ModelError: fastembed or the runtime cannot be imported.
    """
    import_runtime()  # silenced, before fastembed loads it
    try:
        from fastembed import LateInteractionTextEmbedding, TextEmbedding
        from fastembed.rerank.cross_encoder import TextCrossEncoder
    except ImportError as exc:
        raise ModelError(f"fastembed cannot be imported: {exc}", "reinstall qmd") from exc
    classes = (TextEmbedding, TextCrossEncoder, LateInteractionTextEmbedding)
    return dict(zip(_ROLES, classes, strict=True))


def fastembed_models() -> tuple[FastembedModel, ...]:
    """Return every installed model of fastembed that can serve a role, in its order; raise as `fastembed_classes`."""
    return tuple(model for model in _all_models() if not _is_query_side(model))


def find_fastembed(name: str) -> FastembedModel | None:
    """Return the model that `fastembed:NAME` means, in any case, or None.

    Raises:
        ModelError: It can serve no role, or `fastembed_classes` fails.
    """
    wanted = name.strip().lower()
    found = next((model for model in _all_models() if model.record.name.lower() == wanted), None)
    if found is not None and _is_query_side(found):
        raise ModelError(f"'{found.own_name}' embeds queries alone, for another model's documents", _SEE_ALL)
    return found


def fastembed_record(name: str, role: Role | None = None) -> ModelRecord:
    """Return the record of `fastembed:NAME`, for a given or any role; raise as `EngineProvider.find_record`."""
    found = find_fastembed(name)
    if found is None:
        near = nearest_name(name.strip()[len(PREFIX) :], [model.own_name for model in fastembed_models()])
        hint = f"did you mean '{PREFIX}{near}'? {_SEE_ALL}" if near else _SEE_ALL
        if role is None:
            raise NotFoundError(f"fastembed has no model '{name}'", hint)
        raise ModelError("fastembed has no such model", hint)
    record = found.record
    if role is not None and role != record.role:
        article = "an" if found.kind == "embedder" else "a"
        kind = "late-interaction model" if found.kind == "late interaction" else found.kind
        raise ModelError(
            f"it is {article} {kind}, which serves {WORK[record.role]} and not {WORK[role]}",
            f"use it as {ENV_STEMS[record.role]}_MODEL={record.name}",
        )
    return record


def _all_models() -> list[FastembedModel]:
    lists = fastembed_classes().items()
    return [_model(kind, listed) for kind, models in lists for listed in models.list_supported_models()]


def _model(kind: Kind, listed: Mapping[str, Any]) -> FastembedModel:
    name, description, weights = str(listed["model"]), str(listed["description"]), str(listed["model_file"])
    languages = _languages(description)
    stated = re.search(r"(\d+) input tokens", description)
    context = min(int(stated[1]) if stated else _LONGEST_WINDOW, _LONGEST_WINDOW)
    # Some of fastembed's models want prompts, which it leaves to the caller.
    known = find_family([name], None) if kind == "embedder" else None
    sources = listed["sources"]
    # Fetch a graph's files with tensors at any path.
    more = [path for path in listed["additional_files"] if not path.startswith(weights)]
    record = ModelRecord(
        name=PREFIX + name,
        role=_ROLES[kind],
        tier="full",
        repository=str(sources["hf"] or sources["url"]),
        revision="main",
        licence=str(listed["license"]),
        languages=languages,
        scripts=tuple(dict.fromkeys(script for code in languages for script in _SCRIPTS.get(code, ()))),
        formats=(ModelFormat(Path(weights).suffix.lstrip("."), ModelFile(weights), "cpu"),),
        files=tuple(map(ModelFile, (*_FILES, *more))),
        context=context,
        max_tokens=chunk_tokens(context, "", context),
        dim=listed.get("dim"),
        document_prompt=known.document_prompt if known else "",
        query_prompt=known.query_prompt if known else "",
    )
    return FastembedModel(record, kind, description, round(float(listed["size_in_GB"]) * 1e9))


def _languages(description: str) -> tuple[str, ...]:
    """Return ISO codes from a description: `*` for many, none if it names no language."""
    text = description.lower()
    named = tuple(code for word, code in _LANGUAGES.items() if re.search(rf"\b{word}\b", text))
    return named or (("*",) if re.search(r"\bmulti-?lingual\b", text) else ())


def _is_query_side(model: FastembedModel) -> bool:
    return "query-side" in model.description.lower()
