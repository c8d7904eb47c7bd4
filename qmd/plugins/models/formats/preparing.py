"""Preparation of the forms of a model that run best on this machine, checked against the published file.

The forms are graphs of qmd: products of bytes with a shared prefix for the reranker, 4-bit blocks for the decoder. A
form is installed only when it agrees with the published file on a few prompts; without it the published file runs
through the same interface. A refusal is recorded, so that it is not tried again by default.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from qmd import __version__
from qmd.errors import ModelError, UsageError
from qmd.inference.models.folders import (
    check_space,
    file_list,
    folder_size,
    locked,
    map_os_errors,
    measure_file,
    sha256_of,
)
from qmd.inference.models.prepared import (
    DROPPED_FORMS,
    MANIFEST,
    PREPARED_FOLDER,
    FormName,
    exact_source,
    forms_for,
    prepared_forms,
)
from qmd.inference.records import ModelRecord
from qmd.inference.runtime.sessions import import_runtime
from qmd.plugins import hooks
from qmd.plugins.models.formats.graph_weights import GraphWeights
from qmd.plugins.models.formats.graph_writer import GraphForm
from qmd.plugins.models.formats.graphs import Qwen3Writer, graph_bytes
from qmd.plugins.models.formats.self_check import CHECK_PAIRS, Agreement, compare_logits, compare_scores

Progress = Callable[[str, int, int], None]
"""(step, amount done, total)."""


class MadeForm(Struct, frozen=True):
    """A form that `prepare_model` made, or refused to keep."""

    name: FormName
    path: Path
    agreement: Agreement
    size_bytes: int
    reason: str | None = None
    """Reason for the refusal; None if the form is kept."""


def graph_form(name: FormName, record: ModelRecord, hidden: int) -> GraphForm:
    """Return the number formats of a form.

    Blocks of 128 are 20-25 % faster than 32 on a CPU. The table, which is also the decoder's head, stays at 8 bits,
    because its rows decide every answer. If rows are only looked up, half precision costs no time and keeps the
    published weights: with it the worst score of `i16w16` is 0.002 deviations off, with 8 bits 0.04. `fp32` keeps every
    weight and gains only by the shared prefix and the single score: without VNNI that is 1.4 times the speed of 8-bit
    blocks.
    """
    head: Literal["lm", "score"] = "score" if record.role == "rerank" else "lm"
    if name == "fp32":
        return GraphForm(linear="fp", table="fp", head=head)
    if name == "i16w8" or name == "i16w16":
        return GraphForm(linear=name, table="fp16", head=head)
    block = next(size for size in (128, 64, 32, 16) if hidden % size == 0)
    return GraphForm(linear=name, block=block, head=head)


def prepare_model(
    record: ModelRecord,
    folder: Path,
    *,
    forms: Sequence[str] | None = None,
    threads: int | None = None,
    on_progress: Progress | None = None,
) -> tuple[MadeForm, ...]:
    """Make forms of the model in `folder` and keep those that agree with the published file.

    Takes minutes, most of them for the checks. An existing form stays until the new one is complete and checked.

    Args:
        forms: Names; None takes the default one.
        on_progress: Called for every check prompt and every weight.

    Raises:
        UsageError: If the model has no such form.
        BusyError: If another process prepares it.
        ModelError: If the disk is full, or the folder has no published file with exact, readable weights.
    """
    chosen = _chosen_forms(record, forms)
    source_format, source = _source(record, folder)
    report = on_progress or (lambda what, done, total: None)
    logits = partial(_logits, record, folder, threads, report)
    compare = compare_scores if record.role == "rerank" else compare_logits
    place, lock = folder / PREPARED_FOLDER, folder / ".prepare.lock"
    # Two runs would take the memory of both, and each would delete the other's files.
    with map_os_errors(folder), locked(lock, f"model '{record.name}' is being prepared by another process"):
        place.mkdir(exist_ok=True)
        for left in (*place.glob(".*"), *(place / name for name in DROPPED_FORMS)):
            # Left by an interrupted run, or forms that are no longer read; the lock excludes another writer.
            shutil.rmtree(left, ignore_errors=True)
        weights = GraphWeights(source)
        wanted = {name: graph_form(name, record, weights.shape.hidden) for name in chosen}
        # Before the published file runs, which takes most of the time.
        check_space(place, sum(graph_bytes(weights.shape, form) for form in wanted.values()))
        expected = logits("running the published", source, source_format)
        origin = {
            "source": source.relative_to(folder).as_posix(),
            "source_bytes": source.stat().st_size,
            "source_sha256": sha256_of(source),
            "qmd": __version__,
            "onnxruntime": import_runtime().__version__,
        }

        def make(name: FormName, form: GraphForm) -> MadeForm:
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=place) as staging:
                # A folder of its own, so that the temporary one still exists for its clean-up.
                staged = Path(staging) / name
                staged.mkdir()
                written: set[str] = set()

                def count(weight: str) -> None:
                    written.add(weight)
                    report(f"writing {name}", len(written), len(weights))

                Qwen3Writer(staged / "model.onnx", weights.shape, form, weights, count).write()
                agreement = compare(expected, logits(f"checking {name}", staged / "model.onnx", name))
                made = MadeForm(name, place / name, agreement, folder_size(staged), agreement.refusal(name))
                is_ready = any(one.name == name and one.fault is None for one in prepared_forms(record, folder))
                _install(staged, made, origin, is_ready)
            return made

        return tuple(make(name, form) for name, form in wanted.items())


def _chosen_forms(record: ModelRecord, names: Sequence[str] | None) -> list[FormName]:
    possible = {str(name): name for name in forms_for(record)}
    if not possible:
        raise UsageError(f"model '{record.name}' has no other forms", "it is used as it is")
    for name in names or ():
        if name not in possible:
            listed = ", ".join(possible) or "none"
            raise UsageError(f"model '{record.name}' has no form '{name}'", f"possible: {listed}")
    return [possible[name] for name in dict.fromkeys(names or ())] or list(possible.values())[:1]


def _logits(
    record: ModelRecord, folder: Path, threads: int | None, report: Progress, what: str, path: Path, format: str
) -> npt.NDArray[np.float32]:
    """Return the logits of the check prompts' last tokens, shape (prompts, width), each run alone and on the CPU."""
    # A vocabulary's logits contain more than one score, so fewer prompts are enough.
    pairs = CHECK_PAIRS[:12] if record.role == "expand" else CHECK_PAIRS
    report(what, 0, len(pairs))
    rows = []
    for logits in hooks.prompt_logits(folder, path, format, pairs, threads):
        rows.append(logits)
        report(what, len(rows), len(pairs))
    return np.concatenate(rows)


def _install(staged: Path, made: MadeForm, origin: Mapping[str, object], is_ready: bool) -> None:
    """Install a form, its manifest written last; or, without an accepted form, record the reason for the refusal."""
    result: Mapping[str, object]
    if made.reason is None:
        result = {"files": file_list(measure_file(staged, path.name) for path in sorted(staged.iterdir()))}
    elif is_ready:
        return
    else:
        result = {"refused": made.reason}
        for path in staged.iterdir():
            path.unlink()
    manifest = {"form": made.name, **origin, "agreement": asdict(made.agreement), **result}
    (staged / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
    if made.path.exists():
        # A process that has the form open keeps its files. The old form goes with the temporary folder: deleting it
        # under its name could leave half of it there.
        made.path.rename(staged.with_name("replaced"))
    staged.rename(made.path)
    # A running server notices new forms by the time of the model's folder.
    os.utime(made.path.parents[1])


def _source(record: ModelRecord, folder: Path) -> tuple[str, Path]:
    """Return the format and the file of the weights that forms are made of."""
    found = exact_source(record, folder)
    if found is not None:
        return found.name, folder / found.weights.path
    here = [item.name for item in record.formats if (folder / item.weights.path).is_file()]
    if not here:
        raise ModelError(f"'{folder}' contains no published file of '{record.name}'", f"qmd models pull {record.name}")
    raise ModelError(
        f"no form is made of '{record.name}': its weights here are quantised already ({', '.join(here)}), "
        "and a form of them would lose precision once more",
        "there is nothing to do; the published file is used",
    )
