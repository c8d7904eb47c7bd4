"""Prepared forms of a model: graphs that `qmd models prepare` makes, as stored on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from qmd import __version__
from qmd.errors import ModelError
from qmd.foreign import checked_path
from qmd.inference.models.weights import file_size
from qmd.inference.records import ModelFile, ModelFormat, ModelRecord
from qmd.inference.runtime.sessions import byte_sums_are_exact
from qmd.inference.runtime.tokenization import read_json

FormName = Literal["i16w8", "i16w16", "q8", "q4", "fp32"]
ImportForm = Literal["int8", "q8", "q4"]

PREPARED_FOLDER = "prepared"
"""Folder in a model's folder: one folder per form, each with its `manifest.json`."""

MANIFEST = "manifest.json"

_CPUINFO = Path("/proc/cpuinfo")

DROPPED_FORMS = ("w8a8",)
"""Forms of earlier versions; the next preparation of a model deletes them."""

_EXACT_FORMATS = ("fp32", "fp16")
"""Formats from which forms are made, the most exact first. 4-bit weights quantized again lose twice: the likeliest
token stayed the same in 42 % of the checks."""

_FORM_BYTES: Mapping[FormName, float] = {"fp32": 4.0, "i16w16": 2.0, "i16w8": 1.41, "q8": 1.04, "q4": 0.7}
"""Approximate bytes of a form per weight, its table included."""


class PreparedForm(Struct, frozen=True):
    """A form on disk."""

    name: str
    path: Path
    files: tuple[ModelFile, ...]
    fault: str | None = None
    """Reason why it cannot be used, or is absent."""
    is_mendable: bool = False
    """Making it again would help."""


def forms_for(record: ModelRecord) -> tuple[FormName, ...]:
    """Return the forms that can be made of a model; the first is the fastest sufficiently exact one on this machine."""
    if record.network != "qwen3":
        return ()
    if record.role == "expand":
        return ("q4", "q8")
    if not has_byte_products():
        return "fp32", "q8"
    # With VNNI alone two-term products are as fast as blocks or a tenth slower, and half as far off; with AMX, which
    # blocks do not use, they take 0.6 of the time.
    has_tiles = "amx_int8" in (_processor_flags(_CPUINFO) or ())
    return ("i16w8", "i16w16", "q8", "fp32") if has_tiles else ("q8", "i16w8", "i16w16", "fp32")


def exact_source(record: ModelRecord, folder: Path) -> ModelFormat | None:
    """Return the published weights in `folder` that forms can be made of, or None."""
    here = {item.name: item for item in record.formats if file_size(folder / item.weights.path)}
    return next((here[name] for name in _EXACT_FORMATS if name in here), None)


def form_that_pays(record: ModelRecord, *, has_cuda: bool) -> FormName | None:
    """Return the form that makes a model faster on this machine; None if the published file is as fast.

    The reranker's form shares the prefix of its prompts, which the published file cannot, and loads ten times as fast.
    """
    return forms_for(record)[0] if record.role == "rerank" and forms_for(record) and not has_cuda else None


def form_to_make(record: ModelRecord, folder: Path, *, has_cuda: bool) -> FormName | None:
    """Return `form_that_pays` if it can be made, and was neither made nor refused."""
    form = form_that_pays(record, has_cuda=has_cuda)
    if form is None or exact_source(record, folder) is None:
        return None
    states = {state.name: state for state in prepared_forms(record, folder)}
    return form if form not in states or states[form].is_mendable else None


def form_share(form: FormName) -> float:
    """Return the approximate size of a form, as a share of the published weights in half precision."""
    return _FORM_BYTES[form] / 2


def prepared_forms(record: ModelRecord, folder: Path) -> tuple[PreparedForm, ...]:
    """Return the forms in a model's folder, finished, refused or broken, in the order of `forms_for`."""
    names = forms_for(record)
    places = ((name, folder / PREPARED_FOLDER / name) for name in (*names, *DROPPED_FORMS) if names)
    # A form is finished when its manifest exists, which is written last.
    found = (_read_form(record, folder, name, path) for name, path in places if (path / MANIFEST).is_file())
    return tuple(form for form in found if form is not None)


def prepared_notes(record: ModelRecord, folder: Path) -> tuple[str, ...]:
    """Return one line for each form that was in use and no longer is."""
    return tuple(
        f"prepared form '{form.name}' of '{record.name}' is not used: {form.fault};"
        f" make it again: qmd models prepare {record.name} --form {form.name}"
        for form in prepared_forms(record, folder)
        if form.is_mendable
    )


def has_byte_products(cpuinfo: Path = _CPUINFO) -> bool:
    """Return whether the processor multiplies bytes in one instruction (VNNI, AMX, or Arm's dot products).

    If no file lists its features, as outside Linux, a product of bytes is tried. Measured: 8-bit blocks run at 1.4
    times the speed of fp32 with VNNI, and at 0.7 times with AVX2 alone.
    """
    flags = _processor_flags(cpuinfo)
    if flags is not None:
        return not flags.isdisjoint({"avx512_vnni", "avx_vnni", "amx_int8"})
    try:
        return byte_sums_are_exact()
    except ModelError:
        return False  # no model runs here


def _processor_flags(cpuinfo: Path) -> frozenset[str] | None:
    """Return the features of an x86 processor, read from its first core; None if no file lists them."""
    try:
        with cpuinfo.open(encoding="ascii", errors="replace") as lines:
            return next((frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), None)
    except OSError:
        return None


def read_file_list(listed: Iterable[Mapping[str, Any]]) -> tuple[ModelFile, ...]:
    """Return files from a manifest's list.

    Raises:
        ModelError, KeyError, TypeError, ValueError, OverflowError: The list is damaged, or names a path outside.
    """
    files = tuple(ModelFile(str(item["path"]), int(item["size_bytes"]), str(item["sha256"])) for item in listed)
    for file in files:
        checked_path(file.path, "manifest")
    return files


def _read_form(record: ModelRecord, folder: Path, name: str, path: Path) -> PreparedForm | None:
    """Return the form in `path`; None for a refusal that no longer applies."""
    try:
        manifest = read_json(path / MANIFEST)
        files = read_file_list(manifest.get("files", ()))
    except (ModelError, KeyError, OverflowError, TypeError, ValueError):
        return PreparedForm(name, path, (), "its manifest is damaged", True)
    if name in DROPPED_FORMS:
        step = f"qmd models prepare {record.name}"
        return PreparedForm(name, path, files, f"this version has faster forms in its place; make one: {step}")
    source = str(manifest.get("source", ""))
    # The published file may itself be deleted, to save space; another version of it makes this form old.
    size = file_size(folder / source)
    is_old = size not in (0, manifest.get("source_bytes"))
    if "refused" in manifest:
        holds = not is_old and manifest.get("qmd") == __version__
        return PreparedForm(name, path, (), f"the self-check refused it: {manifest['refused']}") if holds else None
    if any(item.weights.path == source and item.name not in _EXACT_FORMATS for item in record.formats):
        return PreparedForm(
            name, path, files, f"it was made of quantised weights, which gains nothing; delete '{path}'"
        )
    # Sizes only: this runs at every start, and 'models verify' reads the bytes.
    broken = next((file.path for file in files if file_size(path / file.path) != file.size_bytes), None)
    if broken is not None or not files:
        return PreparedForm(name, path, files, f"its file '{broken or 'model.onnx'}' is damaged", True)
    fault = "it was made from another version of the published file" if is_old else None
    return PreparedForm(name, path, files, fault, is_old)
