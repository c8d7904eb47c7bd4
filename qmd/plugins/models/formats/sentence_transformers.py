"""Embedding rules of a model folder, from the files that sentence-transformers writes.

The files come first. A rule that they do not state comes from the table of well-known models, else from the defaults of
sentence-transformers, except that a decoder's pooling is never the default mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import path_below, read_json_file, short
from qmd.inference.models.catalogue import MAX_CONTEXT, Family, chunk_tokens, find_family
from qmd.inference.models.folders import read_pooling, read_prompts
from qmd.inference.models.weights import file_size
from qmd.inference.records import EmbedOverrides, FolderRules, ModelFile, ModelFormat, ModelRecord, Pooling
from qmd.inference.runtime.tokenization import read_json

_DEFAULT_CONTEXT = 512

_FORMAT_BY_FILE = {
    "model_quantized.onnx": "int8",
    "model_int8.onnx": "int8",
    "model_q4f16.onnx": "q4f16",
    "model_fp16.onnx": "fp16",
    "model.onnx": "fp32",
}
"""Usual file names and their formats. No `*_uint8`: unsigned weights run no faster than fp32."""

_OFFSET_TYPES = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Types of models that count positions from behind the padding token's number."""


class _Folder(Struct, frozen=True):
    path: Path
    config: Mapping[str, Any]
    modules: Sequence[Mapping[str, Any]]
    known: Family | None

    def module(self, name: str) -> Path | None:
        """Return the folder of the first module of a class, by the class's name, or None."""
        return next((self.place(one) for one in self.modules if class_of(one) == name), None)

    def place(self, module: Mapping[str, Any]) -> Path:
        """Return the folder of a module; the first one is often that of the model itself."""
        words = str(module.get("path", ""))
        return path_below(self.path, words, "modules.json") if words.strip("./") else self.path

    @property
    def table(self) -> str:
        """Name of the table as an origin."""
        return f"known as {self.known.name}" if self.known else ""


def describe_folder(folder: Path, overrides: EmbedOverrides = EmbedOverrides()) -> ModelRecord:
    """Return a record for a folder with an embedding model outside the catalogue.

    Weights are searched under the usual names, here and in `onnx/`. All scripts are trusted.

    Raises:
        ModelError: There are none, or another file is damaged or has unknown contents.
    """
    formats = tuple(
        ModelFormat(name, ModelFile(prefix + file), "cuda" if name in ("fp16", "fp32", "q4f16") else "cpu")
        for file, name in _FORMAT_BY_FILE.items()
        for prefix in ("", "onnx/")
        if file_size(folder / (prefix + file))
    )
    if not formats:
        is_other = any(folder.glob("*.safetensors"))
        hint = f"qmd models import {folder}" if is_other else f"expected one of: {', '.join(_FORMAT_BY_FILE)}"
        raise ModelError(f"no ONNX model in '{folder}'", hint)
    read = _read(folder)
    _check_similarity(read)
    pooling, pooling_from, only_in_graph, pools_prompt = _pooling(read)
    query_prompt, document_prompt, prompts_from = _prompts(read, overrides)
    limit, length_from, is_lower_case = _length_limit(read)
    context = min(limit, MAX_CONTEXT)
    length_from = length_from if context == limit else f"{length_from} allows {limit}"
    return ModelRecord(
        name=folder.name,
        role="embed",
        tier="full",
        repository=str(folder),
        revision="local",
        licence="unknown",
        languages=("*",),
        scripts=(),
        formats=formats,
        files=(ModelFile("tokenizer.json"),),
        context=context,
        max_tokens=chunk_tokens(context, document_prompt),
        pooling=pooling,
        document_prompt=document_prompt,
        query_prompt=query_prompt,
        rules=FolderRules(
            origins=(("pooling", pooling_from), ("prompts", prompts_from), ("length", length_from)),
            only_in_graph=only_in_graph,
            is_lower_case=is_lower_case,
            pools_prompt=pools_prompt,
            end_token=_end_token(read),
            kept_dim=overrides.dim,
        ),
    )


def class_of(module: Mapping[str, Any]) -> str:
    """Return the name of a module's class, without its package: `Pooling`."""
    return str(module.get("type", "")).rpartition(".")[2]


def _read(folder: Path) -> _Folder:
    config = read_json(folder / "config.json")
    path = folder / "modules.json"
    try:
        modules = read_json_file(path)
    except FileNotFoundError:
        modules = []
    except (OSError, ValueError) as exc:
        raise ModelError(f"model file '{path}' cannot be read: {short(exc)}", "copy the folder again") from exc
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
        raise ModelError(f"model file '{path}' is not a list of modules", "copy the folder again")
    # The hub's cache calls a model's folder `models--OWNER--NAME/snapshots/COMMIT`.
    cached = [folder.parents[1].name] if folder.parent.name == "snapshots" else []
    names = [folder.name, *cached, str(config.get("_name_or_path", ""))]
    return _Folder(folder, config, modules, find_family(names, config.get("model_type")))


def _check_similarity(read: _Folder) -> None:
    """Raise a ModelError for vectors that are not compared by their angle, the only comparison of an index."""
    named = read_json(read.path / "config_sentence_transformers.json").get("similarity_fn_name")
    is_unit = read.module("Normalize") is not None
    if named is None and read.known is not None and read.known.is_dot_product:
        named = "dot"
    if named not in (None, "cosine") and not (is_unit and named in ("dot", "euclidean")):
        raise ModelError(f"its vectors are compared by '{named}', qmd compares by cosine", "use another model")


def _pooling(read: _Folder) -> tuple[Pooling, str, tuple[str, ...], bool]:
    """Return the pooling, its origin, steps that only the graph can do, and whether a prompt's tokens count."""
    known = read.known
    module = read.module("Pooling") or read.path / "1_Pooling"
    config = read_json(module / "config.json")
    extra = tuple(
        f"module '{one.get('path') or class_of(one)}'"
        for one in read.modules[1:]
        if class_of(one) not in ("Pooling", "Normalize", "Dropout")
    )
    if config:
        origin = f"{module.name}/config.json"
        pools_prompt = bool(config.get("include_prompt", True))
        pooling, named = read_pooling(config)
        unknown = (f"pooling '{named}' of '{origin}'",) if pooling == "none" else ()
        return pooling, origin, (*unknown, *extra), pools_prompt
    if known is not None:
        return known.pooling, read.table, (*extra, *((known.only_in_graph,) if known.only_in_graph else ())), True
    architectures = [str(name) for name in read.config.get("architectures") or ()]
    if any(name.endswith("ForCausalLM") for name in architectures):
        return "none", "no file", ("a pooling that no file of the folder names", *extra), True
    return "mean", "no file sets it", extra, True


def _prompts(read: _Folder, overrides: EmbedOverrides) -> tuple[str, str, str]:
    """Return the prompts of queries and of documents, and their origin."""
    query, document, origin = _own_prompts(read, overrides)
    given = (overrides.query_prompt, overrides.document_prompt)
    if given == (None, None):
        return query, document, origin
    query, document = (own if word is None else word for word, own in zip(given, (query, document), strict=True))
    return query, document, f"your settings, else {origin}" if None in given else "your settings"


def _own_prompts(read: _Folder, overrides: EmbedOverrides) -> tuple[str, str, str]:
    file = "config_sentence_transformers.json"
    query, document, prompts = read_prompts(read_json(read.path / file))
    if query or document:
        return query, document, file
    if read.known is not None:
        return read.known.query_prompt, read.known.document_prompt, read.table
    if prompts and overrides.query_prompt is None and overrides.document_prompt is None:
        named = ", ".join(f"'{name}'" for name in prompts)
        raise ModelError(
            f"none of the prompts {named} in '{file}' is known as one for queries or documents",
            "choose one: set QMD_EMBED_QUERY_PROMPT and QMD_EMBED_DOCUMENT_PROMPT",
        )
    return "", "", "no file names one"


def _length_limit(read: _Folder) -> tuple[int, str, bool]:
    """Return the makers' most tokens of a text, its origin, and whether texts are lower-cased."""
    transformer = read.place(read.modules[0]) if read.modules else read.path
    # `sentence_bert_config.json`, or with the name of another architecture.
    files = sorted(transformer.glob("sentence_*_config.json"))
    stated = read_json(files[0]) if files else {}
    limits = {files[0].name: _count(stated.get("max_seq_length"))} if files else {}
    if not any(limits.values()):
        limits["tokenizer_config.json"] = _count(read_json(read.path / "tokenizer_config.json").get("model_max_length"))
        limits[read.table] = read.known.max_length if read.known else 0
    limits["config.json"] = _positions(read.config)
    limit, origin = min(
        ((count, name) for name, count in limits.items() if count), default=(_DEFAULT_CONTEXT, "no file sets it")
    )
    return limit, origin, bool(stated.get("do_lower_case"))


def _positions(config: Mapping[str, Any]) -> int:
    """Return a model's positions, 0 for unknown."""
    count = next((n for key in ("max_position_embeddings", "n_positions") if (n := _count(config.get(key)))), 0)
    if count and config.get("model_type") in _OFFSET_TYPES:
        count -= int(config.get("pad_token_id") or 0) + 1
    return count


def _count(value: object) -> int:
    """Return a number of tokens, 0 for none; tokenizers write a huge one for no limit."""
    return int(value) if isinstance(value, int | float) and 0 < value < 10_000_000 else 0


def _end_token(read: _Folder) -> str | None:
    config = read_json(read.path / "tokenizer_config.json")
    token = config.get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    if config.get("add_eos_token") and token:
        return str(token)
    return read.known.end_token if read.known else None
