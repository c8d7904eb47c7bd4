"""Makes the forms of a model that run best on this machine, from the published file, and checks them against it.

The forms are our own graphs (`qmd.inference.graphs`): 8-bit blocks with a shared prefix for the reranker, 4-bit blocks
for the decoder. A form is put in place only when it agrees with the published file on a few prompts; without it the
published file runs through the same interface.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from qmd import __version__
from qmd.errors import ModelError, UsageError
from qmd.inference.catalogue import ModelRecord
from qmd.inference.chat_tokens import ChatTokenizer, load_chat_tokenizer
from qmd.inference.cross_encoder import RerankOptions, prompt_tokens
from qmd.inference.decoder_signature import read_signature
from qmd.inference.graph_weights import GraphWeights
from qmd.inference.graph_writer import GraphForm
from qmd.inference.graphs import build_qwen3
from qmd.inference.model_folders import mapped_os_errors, sha256_of
from qmd.inference.rerank_runs import BatchRunner
from qmd.inference.self_check import CHECK_PAIRS, Agreement, compare_logits, compare_scores
from qmd.inference.sessions import import_runtime, open_session
from qmd.inference.weights_choice import MANIFEST, PREPARED_FOLDER

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FormName = Literal["q8", "w8a8", "q4"]

_MAX_POSITIONS = 4096
_SOURCE_ORDER = ("fp32", "fp16", "q4f16", "q4")
"""The most exact published weights first."""


@dataclass(frozen=True, slots=True)
class PreparedForm:
    """What `prepare_model` made, or refused to keep."""

    name: FormName
    path: Path
    agreement: Agreement
    is_kept: bool
    reason: str | None = None


def forms_for(record: ModelRecord) -> tuple[FormName, ...]:
    """The forms that can be made of a model; the first is the default one."""
    return {"rerank": ("q8", "w8a8"), "expand": ("q4", "q8"), "embed": ()}[record.role]  # type: ignore[return-value]


def graph_forms(name: FormName, record: ModelRecord, hidden: int) -> tuple[GraphForm, ...]:
    """How a form may compute, best first; the next is tried where the self-check refuses one.

    Blocks of 128 are 20-25 % faster than 32 on a CPU. The table, which is also the decoder's head, stays at 8 bits: its
    rows are what every answer is chosen from. W8A8 keeps the down projection in 8-bit blocks, for its inputs have
    outliers, and has a second try with 7-bit weights, for processors whose 16-bit sums saturate.
    """
    block = next(size for size in (128, 64, 32, 16) if hidden % size == 0)
    head: Literal["lm", "score"] = "score" if record.role == "rerank" else "lm"
    form = GraphForm(linear=name, block=block, table="q8", head=head)
    if name != "w8a8":
        return (form,)
    mixed = replace(form, down="q8")
    return mixed, replace(mixed, row_levels=63)


def prepare_model(
    record: ModelRecord,
    folder: Path,
    *,
    forms: Sequence[FormName] | None = None,
    threads: int | None = None,
    on_step: Callable[[str], None] | None = None,
) -> tuple[PreparedForm, ...]:
    """Make forms of the model in `folder` and keep those that agree with the published file.

    Takes about a minute and three times the published file's size in memory for a model of 0.6 billion weights.

    Args:
        record: The model.
        folder: Its folder.
        forms: Names; None takes the default one.
        threads: For the checks.
        on_step: Told what is being done, in a few words.

    Raises:
        UsageError: If the model has no such form.
        ModelError: If `onnx` is missing, no published file is there, or it is not a graph this code can read.
    """
    possible = forms_for(record)
    chosen = tuple(forms) if forms is not None else possible[:1]
    for name in chosen:
        if name not in possible:
            listed = ", ".join(possible) or "none"
            raise UsageError(f"model '{record.name}' has no form '{name}'", f"possible: {listed}")
    tell = on_step or (lambda step: None)
    source, source_format = _source(record, folder)
    tokenizer = load_chat_tokenizer(folder)
    tell(f"reading {source.name}")
    expected = _probe(source, source_format, record, tokenizer, threads)
    weights = GraphWeights(source)
    made = []
    with mapped_os_errors(folder):
        (folder / PREPARED_FOLDER).mkdir(exist_ok=True)
        origin = {
            "source": source.relative_to(folder).as_posix(),
            "source_bytes": source.stat().st_size,
            "source_sha256": sha256_of(source),
            "qmd": __version__,
            "onnxruntime": import_runtime().__version__,
        }
        for name in chosen:
            for form in graph_forms(name, record, weights.shape.hidden):
                tell(f"writing {name}")
                with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder / PREPARED_FOLDER) as staging:
                    # A folder of its own, so that the temporary one is still there for its clean-up.
                    place = Path(staging) / name
                    place.mkdir()
                    _write(place / "model.onnx", form, weights)
                    got = _probe(place / "model.onnx", name, record, tokenizer, threads)
                    result = _judge(name, folder, record, expected, got)
                    if result.is_kept:
                        _install(place, result, origin)
                if result.is_kept:
                    break
            made.append(result)
    return tuple(made)


def _write(path: Path, form: GraphForm, weights: GraphWeights) -> None:
    shape = replace(weights.shape, max_positions=_MAX_POSITIONS)
    try:
        build_qwen3(path, shape, form, weights)
    except KeyError as exc:
        raise ModelError(f"the published file holds no weight {exc}", "the published file is used as it is") from exc


def _judge(
    name: FormName,
    folder: Path,
    record: ModelRecord,
    expected: npt.NDArray[np.float32],
    got: npt.NDArray[np.float32],
) -> PreparedForm:
    agreement = compare_scores(expected, got) if record.role == "rerank" else compare_logits(expected, got)
    reason = agreement.refusal(name)
    return PreparedForm(name, folder / PREPARED_FOLDER / name, agreement, reason is None, reason)


def _install(staged: Path, made: PreparedForm, origin: Mapping[str, object]) -> None:
    manifest = {"form": made.name, **origin, "agreement": asdict(made.agreement)}
    (staged / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
    if made.path.exists():
        # A process that has the form open keeps its files; only the name is taken over.
        shutil.rmtree(made.path)
    staged.rename(made.path)


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
    import numpy as np

    session = open_session(path, format=format, threads=threads, allow_gpu=False)
    runner = BatchRunner(session, read_signature(session), 0, batch_tokens=0)
    rows = []
    for query, passage in CHECK_PAIRS:
        prefix, ending = prompt_tokens(tokenizer, query, passage, RerankOptions())
        rows.append(runner.logits([[*prefix, *ending]], "right")[0])
        if record.role == "expand" and len(rows) == 12:
            # A vocabulary's logits say more than one score: fewer prompts do.
            break
    return np.stack(rows)
