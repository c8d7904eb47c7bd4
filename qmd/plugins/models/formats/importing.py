"""Conversion of a GGUF file or a safetensors folder on this machine into a model: graph, tokenizer, record.

Nothing is fetched. Weights keep their values, but those of encoders in `int8` are rounded to 7 bits. An existing model
of that name stays until the new one is complete and has answered.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from msgspec import Struct

from qmd import __version__
from qmd.errors import ModelError, UsageError
from qmd.files import make_private_folder
from qmd.foreign import file_below, fold_name, reading, short
from qmd.inference.models.catalogue import chunk_tokens, find_model
from qmd.inference.models.folders import (
    Manifest,
    check_space,
    map_os_errors,
    measure_file,
    read_manifest,
    sha256_of,
    staged,
    write_manifest,
)
from qmd.inference.models.imported import (
    IMPORT_FILE,
    OWNER,
    ImportedModel,
    Source,
    imported_models,
    is_model_name,
    read_imported,
    write_imported,
)
from qmd.inference.models.prepared import ImportForm
from qmd.inference.records import ModelFile, ModelFormat, ModelRecord, Role
from qmd.inference.runtime.pieces import index_pieces
from qmd.inference.runtime.sessions import open_session
from qmd.inference.runtime.tokenization import load_tokenizer
from qmd.plugins import hooks
from qmd.plugins.models.formats.bert_graph import BertWriter
from qmd.plugins.models.formats.gemma_graph import GemmaWriter
from qmd.plugins.models.formats.graph_writer import GraphForm, Head
from qmd.plugins.models.formats.graphs import OUTPUT, StoredWriter
from qmd.plugins.models.formats.networks import Network, read_network
from qmd.plugins.models.formats.number_formats import FORMATS, NumberFormat
from qmd.plugins.models.formats.sources import model_name
from qmd.plugins.models.formats.stored_weights import StoredWeights
from qmd.plugins.models.formats.vocabulary import tokenizer_json

_GRAPH = "model.onnx"
_CONTEXT = {"embed": 1024, "rerank": 1024, "expand": 2048}
"""Tokens in one run, as the full set's models have."""
_MAX_TOKENS = {"rerank": 800, "expand": 2048}
_TRIED = "a word 語\U0001f9ff"
"""Text with letters that a vocabulary may lack."""
_COPIED = ("tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json")
"""Files copied from a folder of safetensors."""


class ImportReport(Struct, frozen=True):
    model: ImportedModel
    folder: Path
    size_bytes: int
    is_new: bool
    note: str | None = None
    """Parts of the makers' model that the file lacks."""


def import_weights(
    path: Path,
    models_dir: Path,
    *,
    address: str | None = None,
    name: str | None = None,
    role: Role | None = None,
    form: ImportForm | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Make a model from a GGUF file or a folder with safetensors.

    Args:
        address: Name of the source, if not its path.
        name: Name of the model; None takes the file's.
        role: The role to serve; None reads it from the file.
        form: None keeps that of an existing model; a new one gets the fastest.
        on_progress: Called with (bytes read, bytes in all).

    Raises:
        UsageError: The name is another model's, or no valid folder name; or the network has no such form.
        BusyError: If another process imports it.
        ModelError: The source is damaged or unsupported, the disk is full, or the new model does not run.
    """
    name = name or (path.resolve().name if path.is_dir() else model_name(path))
    _check_name(name, models_dir)
    with map_os_errors(path), reading(path.name):
        network = read_network(path, role, name)
    folder = models_dir / f"{OWNER}--{name}"
    with map_os_errors(models_dir), reading(path.name):
        make_private_folder(models_dir)
        with staged(models_dir, folder.name) as staging:
            before = _made_before(folder)
            record = _record(name, network, _choose_form(name, network, form, before))
            if before is None or before.record != record:
                check_space(models_dir, _graph_bytes(network))  # before reading a possible terabyte of zeros
            source = _source(path, address or str(path.resolve()))
            if before is not None and before.source.sha256 == source.sha256 and before.record == record:
                return ImportReport(before, folder, source.size_bytes, False, _note(network))
            check_space(models_dir, _graph_bytes(network))
            model = ImportedModel(record, source, __version__, network.number_formats)
            files = _make(staging / "ready", network, model, on_progress)
            if folder.exists():
                # Deleted with the rest: a process that has the old model open keeps its files.
                folder.rename(staging / "replaced")
            (staging / "ready").rename(folder)
    size = sum(file.size_bytes or 0 for file in files)
    return ImportReport(model, folder, size, True, _note(network))


def _make(
    place: Path, network: Network, model: ImportedModel, on_progress: Callable[[int, int], None] | None
) -> tuple[ModelFile, ...]:
    """Write the model into a new folder, test it, and write its manifest; return the listed files."""
    make_private_folder(place)
    _write_graph(place / _GRAPH, network, model.record.formats[0].name == "int8", on_progress)
    _write_tokenizer(place, network)
    write_imported(place, model)
    _try(place, model.record)
    if network.role == "embed" and (index := index_pieces((place / "tokenizer.json").read_bytes())):
        (place / "tokenizer.pieces").write_bytes(index)
    files = tuple(measure_file(place, item.name) for item in sorted(place.iterdir()))
    write_manifest(place, Manifest(model.record.repository, None, files))
    return files


def _note(network: Network) -> str | None:
    if network.gemma is None or "dense" in network.made:
        return None
    return (
        f"'{network.source.name}' lacks the dense layers behind pooling that EmbeddingGemma was trained with; llama.cpp"
        " leaves them out as well"
    )


def _check_name(name: str, models_dir: Path) -> None:
    if not is_model_name(name):
        raise UsageError(f"'{short(name)}' cannot be the name of a model", "choose another one: --name NAME")
    others = {model.record.name for model in imported_models(models_dir)} - {name}
    if find_model(name) is not None or fold_name(name) in map(fold_name, others):
        raise UsageError(f"'{name}' is the name of another model", "choose another one: --name NAME")


def _choose_form(name: str, network: Network, form: ImportForm | None, before: ImportedModel | None) -> ImportForm:
    """Return the form asked for, else that of the model before, else the fastest: the same on every machine."""
    blocks: ImportForm = "q4" if FORMATS[network.number_formats[0]].bits == 4 else "q8"
    forms: tuple[ImportForm, ...] = ("int8", blocks) if network.context else (blocks,)
    if form is not None and form not in forms:
        raise UsageError(f"'{short(name)}' has no form '{form}'", f"import it with --form {' or '.join(forms)}")
    wanted = form or (before and before.record.formats[0].name)
    return next((one for one in forms if one == wanted), forms[0])


def _record(name: str, network: Network, form: ImportForm) -> ModelRecord:
    context = network.context or _CONTEXT[network.role]
    return ModelRecord(
        name=name,
        role=network.role,
        tier="full",
        repository=f"{OWNER}/{name}",
        revision="local",
        licence="unknown",
        languages=("*",),
        scripts=(),
        formats=(ModelFormat(form, ModelFile(_GRAPH), "cpu"),),
        files=(ModelFile("tokenizer.json"), ModelFile(IMPORT_FILE)),
        context=context,
        max_tokens=_MAX_TOKENS.get(network.role) or chunk_tokens(context, network.document_prompt),
        dim=network.sizes.hidden if network.role == "embed" else None,
        pooling=network.pooling,
        document_prompt=network.document_prompt,
        query_prompt=network.query_prompt,
        is_fused=True,
    )


def _source(path: Path, address: str) -> Source:
    files = sorted(filter(Path.is_file, path.glob("*.safetensors"))) if path.is_dir() else [path]
    digests = [sha256_of(file) for file in files]
    # Of several files the digest of their digests.
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return Source(address, str(path.resolve()), sum(file.stat().st_size for file in files), digest)


def _made_before(folder: Path) -> ImportedModel | None:
    """Return the complete model that is in the folder, or None."""
    try:
        model, manifest = read_imported(folder), read_manifest(folder)
    except ModelError:
        return None
    files = manifest.files if manifest is not None else ()
    return model if files and all((folder / file.path).is_file() for file in files) else None


def _graph_bytes(network: Network) -> int:
    def bits(layout: NumberFormat) -> float:
        return max(layout.bits, 8 if network.context else 0) + 32 / layout.run * (1 if layout.middle is None else 2)

    return sum(int(np.prod(tensor.shape) * bits(tensor.format) / 8) for tensor in network.tensors.values())


def _write_graph(path: Path, network: Network, is_int8: bool, on_progress: Callable[[int, int], None] | None) -> None:
    sizes = {name: tensor.rows.nbytes for name, tensor in network.tensors.items()}
    done = 0

    def count(weight: str) -> None:
        nonlocal done
        done += sizes.get(weight, 0)
        if on_progress is not None:
            on_progress(done, sum(sizes.values()))

    weights = StoredWeights(network.tensors, network.made, network.source.name)
    if network.gemma is not None:
        GemmaWriter(path, network.gemma, weights, count).write()
        return
    heads: dict[Role, Head] = {"embed": "hidden", "rerank": "score", "expand": "lm"}
    writer = BertWriter if network.context else StoredWriter
    form = GraphForm("int8" if is_int8 else "q8", head=heads[network.role])
    writer(path, network.sizes, form, weights, count).write()


def _write_tokenizer(place: Path, network: Network) -> None:
    if network.gguf is None:
        for name in _COPIED:
            if (network.source / name).is_file():
                shutil.copyfile(file_below(network.source, name, network.source.name), place / name)
        return
    # Qwen3-Embedding and EmbeddingGemma were trained on texts with an end token; older files do not state it.
    content = tokenizer_json(network.gguf, ends_by_default=network.role == "embed")
    (place / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    settings = network.gguf.settings
    ends = {settings.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot")}
    listed = sorted(int(index) for index in ends if index is not None)
    (place / "config.json").write_text(json.dumps({"rope_theta": network.sizes.rope_theta}), "utf-8")
    (place / "generation_config.json").write_text(json.dumps({"eos_token_id": listed}), "utf-8")


def _try(place: Path, record: ModelRecord) -> None:
    """Run the new model once; a ModelError if it does not load, read a word and answer with numbers."""
    graph, format = place / _GRAPH, record.formats[0].name
    if record.role == "embed":
        session = open_session(graph, format=format, threads=1, allow_gpu=False, fuse=False)
        rows = np.array([load_tokenizer(place / "tokenizer.json").encode(_TRIED).ids], np.int64)
        feeds = {one.name: rows if one.name == "input_ids" else np.ones_like(rows) for one in session.ort.get_inputs()}
        answer = session.run([OUTPUT], feeds)[0]
    else:
        (answer,) = hooks.prompt_logits(place, graph, format, [("a word", "")], 1)
    if not np.isfinite(answer).all():
        raise ModelError(f"the new model '{record.name}' returns values that are not numbers", "is it damaged?")
