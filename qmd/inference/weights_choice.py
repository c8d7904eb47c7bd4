"""Which weight file of a model's folder to open, and in which format, on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qmd.errors import ModelError
from qmd.inference.catalogue import ModelRecord
from qmd.inference.chat_tokens import read_json
from qmd.inference.sessions import cuda_works

PREPARED_FOLDER = "prepared"
"""Beside the downloaded files: our own graphs, one folder per format, each with its `manifest.json`."""

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class ChosenWeights:
    """A model file and the format label it goes by."""

    path: Path
    format: str


def choose_weights(folder: Path, record: ModelRecord, *, allow_gpu: bool) -> ChosenWeights:
    """The file to open.

    With a working CUDA device: the format meant for it. Otherwise a prepared form (see `qmd.inference.prepare`), else
    the published CPU format, else whatever format is there; a folder that is not the catalogue's may hold one
    `model.onnx`.

    Raises:
        ModelError: If the folder holds no model file.
    """
    published = [ChosenWeights(folder / item.weights.path, item.name) for item in record.formats]
    cuda = {item.name for item in record.formats if item.device == "cuda"}
    on_cuda = [item for item in published if item.format in cuda]
    on_cpu = [*_prepared(folder), *(item for item in published if item.format not in cuda)]
    use_cuda = allow_gpu and any(item.path.is_file() for item in on_cuda) and cuda_works()
    order = [*on_cuda, *on_cpu] if use_cuda else [*on_cpu, *on_cuda]
    loose = [ChosenWeights(folder / name, "fp32") for name in ("model.onnx", "onnx/model.onnx")]
    found = next((item for item in [*order, *loose] if item.path.is_file()), None)
    if found is None:
        raise ModelError(f"'{folder}' holds no model file", f"fetch it: qmd models pull {record.name}")
    return found


def _prepared(folder: Path) -> list[ChosenWeights]:
    """Prepared forms that were finished (the manifest is written last) from the file that is there; fastest first."""
    names = [path.parent.name for path in folder.glob(f"{PREPARED_FOLDER}/*/{MANIFEST}") if _is_current(folder, path)]
    order = [name for name in ("w8a8", "q4", "q8") if name in names]
    return [ChosenWeights(folder / PREPARED_FOLDER / name / "model.onnx", name) for name in order]


def _is_current(folder: Path, manifest: Path) -> bool:
    """False for a form made from another version of the published file, which may itself be gone."""
    found = read_json(manifest)
    source = folder / str(found.get("source", ""))
    return not source.is_file() or source.stat().st_size == found.get("source_bytes")
