"""Which weight file of a model's folder to open, and in which format, on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.models.catalogue import ModelFile, ModelRecord
from qmd.inference.models.held_types import held_format
from qmd.inference.models.weights import size_of
from qmd.inference.runtime.sessions import cuda_works
from qmd.inference.runtime.tokenization import read_json

PREPARED_FOLDER = "prepared"
"""Beside the downloaded files: our own graphs, one folder per format, each with its `manifest.json`."""

MANIFEST = "manifest.json"


class PreparedState(Struct, frozen=True):
    """A prepared form as it lies on disk; `fault` says why it is not used."""

    name: str
    path: Path
    files: tuple[ModelFile, ...]
    fault: str | None


class ChosenWeights(Struct, frozen=True):
    """A model file and the format label it goes by."""

    path: Path
    format: str


def choose_weights(folder: Path, record: ModelRecord, *, allow_gpu: bool) -> ChosenWeights:
    """The file to open.

    With a working CUDA device: the format meant for it. Otherwise a prepared form (see `qmd.prepare.forms`), else
    the published CPU format, else whatever format is there; a folder that is not the catalogue's may hold one
    `model.onnx`. Full and half precision are told apart by what the file holds.

    Raises:
        ModelError: If the folder holds no model file.
    """
    published = [ChosenWeights(folder / item.weights.path, item.name) for item in record.formats]
    cuda = {item.name for item in record.formats if item.device == "cuda"}
    on_cuda = [item for item in published if item.format in cuda]
    # A form is finished when its manifest is there, which is written last.
    prepared = [ChosenWeights(form.path / "model.onnx", form.name) for form in prepared_forms(folder) if not form.fault]
    on_cpu = [*prepared, *(item for item in published if item.format not in cuda)]
    use_cuda = allow_gpu and any(item.path.is_file() for item in on_cuda) and cuda_works()
    order = [*on_cuda, *on_cpu] if use_cuda else [*on_cpu, *on_cuda]
    loose = [ChosenWeights(folder / name, "fp32") for name in ("model.onnx", "onnx/model.onnx")]
    found = next((item for item in [*order, *loose] if item.path.is_file()), None)
    if found is None:
        raise ModelError(f"'{folder}' holds no model file", f"fetch it: qmd models pull {record.name}")
    if found.format in ("fp16", "fp32"):
        return replace(found, format=held_format(found.path) or found.format)
    return found


def has_gpu_file(folder: Path, record: ModelRecord) -> bool:
    """Whether a format for CUDA lies in a folder."""
    return any(size_of(folder / item.weights.path) for item in record.formats if item.device == "cuda")


def prepared_forms(folder: Path) -> tuple[PreparedState, ...]:
    """Prepared forms of a model's folder, finished or broken, fastest first."""
    names = {path.parent.name for path in folder.glob(f"{PREPARED_FOLDER}/*/{MANIFEST}")}
    exact = ("q8", "fp32") if has_byte_products() else ("fp32", "q8")
    order = [name for name in ("w8a8", "q4", *exact) if name in names]
    return tuple(_state(folder, folder / PREPARED_FOLDER / name) for name in order)


def has_byte_products(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor multiplies bytes in one instruction (VNNI, AMX, or Arm's dot products); True if unknown.

    Measured: 8-bit blocks run at 1.4 times the speed of fp32 with VNNI, and at 0.7 times with AVX2 alone.
    """
    try:
        text = cpuinfo.read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    flags = next((line.split(":", 1)[1].split() for line in text.splitlines() if line.startswith("flags")), None)
    return flags is None or bool({"avx512_vnni", "avx_vnni", "amx_int8"} & set(flags))


def prepared_notes(folder: Path, record: ModelRecord) -> tuple[str, ...]:
    """One line for each prepared form that is there and not used."""
    again = f"make it again: qmd models prepare {record.name}"
    return tuple(
        f"prepared form '{form.name}' of '{record.name}' is not used: {form.fault}; {again}"
        for form in prepared_forms(folder)
        if form.fault is not None
    )


def read_file_list(listed: Iterable[Mapping[str, Any]]) -> tuple[ModelFile, ...]:
    """Files as a manifest lists them.

    Raises:
        KeyError, TypeError, ValueError: The list is damaged.
    """
    return tuple(ModelFile(str(item["path"]), int(item["size_bytes"]), str(item["sha256"])) for item in listed)


def _state(folder: Path, path: Path) -> PreparedState:
    try:
        manifest = read_json(path / MANIFEST)
        files = read_file_list(manifest.get("files", ()))
    except (ModelError, KeyError, TypeError, ValueError):
        return PreparedState(path.name, path, (), "its manifest is damaged")
    # Sizes only: this is asked at every start, and 'models verify' reads the bytes.
    broken = next((file.path for file in files if size_of(path / file.path) != file.size_bytes), None)
    source = folder / str(manifest.get("source", ""))
    fault = None
    if broken is not None or not files:
        fault = f"its file '{broken or 'model.onnx'}' is damaged"
    elif source.is_file() and size_of(source) != manifest.get("source_bytes"):
        # The published file may itself be gone, to save space; another version of it makes this form old.
        fault = "it was made from another version of the published file"
    return PreparedState(path.name, path, files, fault)
