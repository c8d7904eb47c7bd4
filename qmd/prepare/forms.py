"""Makes the forms of a model that run best on this machine, from the published file, and checks them against it.

The forms are our own graphs (`qmd.prepare.graphs`): 8-bit blocks with a shared prefix for the reranker, 4-bit blocks
for the decoder. A form is put in place only when it agrees with the published file on a few prompts; without it the
published file runs through the same interface.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict, replace

from qmd import __version__
from qmd.errors import ModelError, UsageError
from qmd.inference.engines.cross_encoder import RerankPrompt
from qmd.inference.engines.rerank_runs import BatchRunner
from qmd.inference.models.catalogue import ModelRecord
from qmd.inference.models.folders import (
    check_space,
    file_list,
    folder_size,
    locked,
    mapped_os_errors,
    measure_file,
    sha256_of,
)
from qmd.inference.models.weights_choice import MANIFEST, PREPARED_FOLDER, has_byte_products
from qmd.inference.runtime.chat_tokens import ChatTokenizer, load_chat_tokenizer
from qmd.inference.runtime.decoder_signature import read_signature
from qmd.inference.runtime.sessions import import_runtime, open_session
from qmd.prepare.graph_weights import GraphWeights, require_onnx
from qmd.prepare.graph_writer import GraphForm
from qmd.prepare.graphs import Qwen3Writer, graph_bytes
from qmd.prepare.self_check import CHECK_PAIRS, Agreement, compare_logits, compare_scores

FormName = Literal["q8", "w8a8", "q4", "fp32"]

_MAX_POSITIONS = 4096
_SOURCE_ORDER = ("fp32", "fp16", "q4f16", "q4")
"""The most exact published weights first."""


class PreparedForm(Struct, frozen=True):
    """What `prepare_model` made, or refused to keep."""

    name: FormName
    path: Path
    agreement: Agreement
    size_bytes: int
    is_kept: bool
    reason: str | None = None


def forms_for(record: ModelRecord) -> tuple[FormName, ...]:
    """The forms that can be made of a model; the first is the default one, the fastest exact enough on this machine."""
    if record.role == "expand":
        return ("q4", "q8")
    if record.role == "embed":
        return ()
    return ("q8", "w8a8", "fp32") if has_byte_products() else ("fp32", "w8a8", "q8")


def graph_forms(name: FormName, record: ModelRecord, hidden: int) -> tuple[GraphForm, ...]:
    """How a form may compute, best first; the next is tried where the self-check refuses one.

    Blocks of 128 are 20-25 % faster than 32 on a CPU. The table, which is also the decoder's head, stays at 8 bits: its
    rows are what every answer is chosen from. `fp32` keeps every weight as it is and gains by the shared prefix and the
    single score alone: without VNNI that is 1.4 times the speed of 8-bit blocks. W8A8 keeps the down projection in
    8-bit blocks, for its inputs have outliers, and has a second try with 7-bit weights, for processors whose 16-bit
    sums saturate.
    """
    block = next(size for size in (128, 64, 32, 16) if hidden % size == 0)
    head: Literal["lm", "score"] = "score" if record.role == "rerank" else "lm"
    if name == "fp32":
        return (GraphForm(linear="fp", table="fp", head=head),)
    form = GraphForm(linear=name, block=block, table="q8", head=head)
    if name != "w8a8":
        return (form,)
    mixed = replace(form, down="q8")
    return mixed, replace(mixed, row_levels=63)


def prepare_model(
    record: ModelRecord,
    folder: Path,
    *,
    forms: Sequence[str] | None = None,
    threads: int | None = None,
    on_step: Callable[[str], None] | None = None,
) -> tuple[PreparedForm, ...]:
    """Make forms of the model in `folder` and keep those that agree with the published file.

    Takes minutes, most of them for the checks, and three times the published file's size in memory.
    What was there stays until the new form is whole and checked.

    Args:
        forms: Names; None takes the default one.
        on_step: Gets what is being done, in a few words.

    Raises:
        UsageError: If the model has no such form.
        BusyError: If another process prepares it.
        ModelError: If `onnx` is missing, the disk is full, no published file is there, or it is not a graph this code
            can read.
    """
    chosen = _chosen_forms(record, forms)
    # Before the published file is opened, which takes seconds.
    require_onnx()
    source, source_format = _source(record, folder)
    tokenizer = load_chat_tokenizer(folder)
    lock = folder / ".prepare.lock"
    # Two runs would take the memory of both, and one would clear away what the other writes.
    with mapped_os_errors(folder), locked(lock, f"model '{record.name}' is being prepared by another process"):
        place = folder / PREPARED_FOLDER
        place.mkdir(exist_ok=True)
        for left in place.glob(".*"):
            # What an interrupted run left; the lock says that nobody writes it.
            shutil.rmtree(left, ignore_errors=True)
        tell = on_step or (lambda step: None)
        tell(f"running the published {source.name} on the check prompts")
        expected = _probe(source, source_format, record, tokenizer, threads)
        weights = GraphWeights(source)
        shape = replace(weights.shape, max_positions=_MAX_POSITIONS)
        origin = {
            "source": source.relative_to(folder).as_posix(),
            "source_bytes": source.stat().st_size,
            "source_sha256": sha256_of(source),
            "qmd": __version__,
            "onnxruntime": import_runtime().__version__,
        }

        def make(name: FormName, form: GraphForm) -> PreparedForm:
            tell(f"writing {name}")
            check_space(place, graph_bytes(shape, form))
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=place) as staging:
                # A folder of its own, so that the temporary one is still there for its clean-up.
                staged = Path(staging) / name
                staged.mkdir()
                Qwen3Writer(staged / "model.onnx", shape, form, weights).write()
                tell(f"checking {name}")
                got = _probe(staged / "model.onnx", name, record, tokenizer, threads)
                agreement = (compare_scores if record.role == "rerank" else compare_logits)(expected, got)
                reason = agreement.refusal(name)
                made = PreparedForm(name, place / name, agreement, folder_size(staged), reason is None, reason)
                if made.is_kept:
                    _install(staged, made, origin)
            return made

        return tuple(_first_kept(make, name, graph_forms(name, record, weights.shape.hidden)) for name in chosen)


def _chosen_forms(record: ModelRecord, names: Sequence[str] | None) -> list[FormName]:
    possible = {str(name): name for name in forms_for(record)}
    for name in names or ():
        if name not in possible:
            listed = ", ".join(possible) or "none"
            raise UsageError(f"model '{record.name}' has no form '{name}'", f"possible: {listed}")
    return [possible[name] for name in dict.fromkeys(names or ())] or list(possible.values())[:1]


def _first_kept(
    make: Callable[[FormName, GraphForm], PreparedForm], name: FormName, tries: Sequence[GraphForm]
) -> PreparedForm:
    """The first form that the self-check keeps, else the last one."""
    for form in tries:
        made = make(name, form)
        if made.is_kept:
            break
    return made


def _install(staged: Path, made: PreparedForm, origin: Mapping[str, object]) -> None:
    files = file_list(measure_file(staged, path.name) for path in sorted(staged.iterdir()))
    manifest = {"form": made.name, **origin, "agreement": asdict(made.agreement), "files": files}
    (staged / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
    if made.path.exists():
        # A process that has the form open keeps its files. The old form goes with the temporary folder: deleting it
        # under its name could leave half of it there.
        made.path.rename(staged.with_name("replaced"))
    staged.rename(made.path)
    # A running server notices new forms by the time of the model's folder.
    os.utime(made.path.parents[1])


def _source(record: ModelRecord, folder: Path) -> tuple[Path, str]:
    found = {item.name: folder / item.weights.path for item in record.formats}
    for name in sorted(found, key=lambda name: _SOURCE_ORDER.index(name) if name in _SOURCE_ORDER else 9):
        if found[name].is_file():
            return found[name], name
    raise ModelError(f"'{folder}' holds no published file of '{record.name}'", f"qmd models pull {record.name}")


def _probe(
    path: Path, format: str, record: ModelRecord, tokenizer: ChatTokenizer, threads: int | None
) -> npt.NDArray[np.float32]:
    """Logits of the check prompts' last tokens, shape (prompts, width), each prompt run alone and on the CPU."""
    session = open_session(path, format=format, threads=threads, allow_gpu=False)
    runner = BatchRunner(session, read_signature(session), 0, batch_tokens=0)
    prompt = RerankPrompt(tokenizer)
    # A vocabulary's logits say more than one score: fewer prompts do.
    pairs = CHECK_PAIRS[:12] if record.role == "expand" else CHECK_PAIRS
    prompts = [[*prompt.prefix(query), *prompt.ending(passage)] for query, passage in pairs]
    return np.concatenate([runner.logits([tokens], "right") for tokens in prompts])
