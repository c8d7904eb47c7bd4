"""Choice of the weight file of a model's folder, and of its format, on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.models.prepared import DROPPED_FORMS, forms_for, prepared_forms
from qmd.inference.models.stored_types import stored_format
from qmd.inference.models.weights import file_size
from qmd.inference.records import ModelRecord
from qmd.inference.runtime.sessions import cuda_works
from qmd.inference.settings import AUTO

PUBLISHED = "published"


class ChosenWeights(Struct, frozen=True):
    """A model file and its format label."""

    path: Path
    format: str
    reason: str = "published"
    """Its origin and why it was chosen, in a few words."""


def choose_weights(folder: Path, record: ModelRecord, *, allow_gpu: bool, form: str = AUTO) -> ChosenWeights:
    """Return the file to open.

    A prepared form that is requested by name is taken if it is present. Otherwise, with a working CUDA device: the
    format meant for it; without: for a reranker the fastest exact form, then the published CPU format, for an expander
    the other way round, then any format that is present. A folder outside the catalogue may contain one `model.onnx`.
    The types in the file distinguish full and half precision.

    Args:
        form: `auto`, `published`, or the name of a prepared form.

    Raises:
        ModelError: If the folder contains no model file.
    """
    reason = "prepared here: the fastest on this CPU that is exact enough"
    whole = [state for state in prepared_forms(record, folder) if state.fault is None]
    prepared = [ChosenWeights(state.path / "model.onnx", state.name, reason) for state in whole]
    named = next((item for item in prepared if item.format == form), None)
    if named is not None:
        return replace(named, reason="prepared here, as asked for")
    usable = prepared if form != PUBLISHED else []
    found = next((item for item in _candidates(folder, record, usable, allow_gpu) if item.path.is_file()), None)
    if found is None:
        raise ModelError(f"'{folder}' contains no model file", f"fetch it: qmd models pull {record.name}")
    if form == PUBLISHED:
        found = replace(found, reason="published, as asked for")
    if found.format in ("fp16", "fp32"):
        return replace(found, format=stored_format(found.path) or found.format)
    return found


def has_gpu_file(folder: Path, record: ModelRecord) -> bool:
    """Return whether a folder contains a format for CUDA."""
    return any(file_size(folder / item.weights.path) for item in record.formats if item.device == "cuda")


def is_used_by_default(record: ModelRecord) -> bool:
    """Return whether `auto` prefers forms to the published file for a CPU.

    Not for the expander: `q4` decodes 1.1 to 1.3 times as fast as the published file, which keeps 8 bits for half of
    its products where `q4` has 4, and needs a download of 1.2 GB to be made from.
    """
    return record.role != "expand"


def unused_forms(folder: Path, record: ModelRecord, used: str) -> tuple[str, ...]:
    """Return one line for each form that is present but not used."""
    states = [state for state in prepared_forms(record, folder) if state.name != used]
    return tuple(
        f"{state.name} is not used: {state.fault}" if state.fault else f"{state.name} is here for use on request"
        for state in states
    )


def form_note(folder: Path, record: ModelRecord, form: str) -> str | None:
    """Return one line when the requested form is not the one that is used; None when it is."""
    if form in (AUTO, PUBLISHED):
        return None
    possible = forms_for(record)
    if form not in possible:
        listed = ", ".join([AUTO, PUBLISHED, *possible])
        step = f"; make one: qmd models prepare {record.name}" if form in DROPPED_FORMS else ""
        return f"'{record.name}' has no form '{form}'{' any more' if step else ''}; possible: {listed}{step}"
    state = next((state for state in prepared_forms(record, folder) if state.name == form), None)
    if state is not None and state.fault is None:
        return None
    reason = f"cannot be used: {state.fault}" if state else "is not on this machine"
    step = f"; make it: qmd models prepare {record.name} --form {form}" if state is None or state.is_mendable else ""
    return f"the form '{form}' of '{record.name}' {reason}{step}"


def _candidates(
    folder: Path, record: ModelRecord, prepared: Sequence[ChosenWeights], allow_gpu: bool
) -> list[ChosenWeights]:
    """Return the possible files of the folder, best first."""
    published = [ChosenWeights(folder / item.weights.path, item.name) for item in record.formats]
    cuda = {item.name for item in record.formats if item.device == "cuda"}
    on_cuda = [item for item in published if item.format in cuda]
    on_cpu = [item for item in published if item.format not in cuda]
    # The expander's published CPU file mixes 4 and 8 bits, and none of its forms was faster.
    on_cpu = [*on_cpu, *prepared] if record.role == "expand" else [*prepared, *on_cpu]
    use_cuda = allow_gpu and any(item.path.is_file() for item in on_cuda) and cuda_works()
    loose = [ChosenWeights(folder / name, "fp32") for name in ("model.onnx", "onnx/model.onnx")]
    return [*([*on_cuda, *on_cpu] if use_cuda else [*on_cpu, *on_cuda]), *loose]
