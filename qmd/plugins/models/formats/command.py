"""`models prepare`, `models import`, and parts of `models pull` and `models list`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import Index
from qmd.cli.output import out, say
from qmd.cli.progress import progress_callback
from qmd.errors import EXIT_FAILURE, EXIT_OK, BusyError, ModelError, NotFoundError, UsageError
from qmd.inference.models.folders import find_record, model_path
from qmd.inference.models.prepared import FormName, ImportForm, exact_source, form_to_make, forms_for
from qmd.inference.records import ModelRecord, Role
from qmd.inference.settings import BUILT_IN, SLOTS

if TYPE_CHECKING:
    from qmd.plugins.models.formats.sources import ImportSource


def prepare(
    invocation: Invocation,
    names: Annotated[
        list[str] | None,
        Argument(
            help="Names of models [default: every downloaded one that has such forms].",
            autocompletion=completion.models,
        ),
    ] = None,
    forms: Annotated[
        list[str] | None, Option("--form", metavar="NAME", help="i16w8, i16w16, q8, fp32 or q4; may be repeated.")
    ] = None,
    index: Index = None,
) -> int:
    """Make the forms of models that run fastest on this machine's CPU; each must agree with the published file."""
    models_dir = invocation.locate(index).models
    is_whole = True
    for record in [find_record(name) for name in names] if names else _preparable(models_dir, forms):
        if record.tier == BUILT_IN:
            raise UsageError(f"model '{record.name}' is part of a package and needs no preparation")
        is_whole &= _make(invocation, record, model_path(record, models_dir), forms)
    return EXIT_OK if is_whole else EXIT_FAILURE


def prepare_fetched(invocation: Invocation, record: ModelRecord, folder: Path, form: FormName) -> None:
    """Make the fastest form of a model that was just fetched; without it the published file is used."""
    try:
        _make(invocation, record, folder, [form])
    except (ModelError, BusyError) as exc:
        say(f"warning: {record.name} {form} is not made: {exc.message}; the published file is used")
        say(f"hint: to try again: qmd models prepare {record.name}")


def _make(invocation: Invocation, record: ModelRecord, folder: Path, forms: Sequence[str] | None) -> bool:
    """Make forms and report each result; return True when all are kept."""
    from qmd.inference.models.weights_choice import is_used_by_default
    from qmd.plugins.models.formats.preparing import prepare_model
    from qmd.process import usable_cpus

    say(f"{record.name}: making {', '.join(forms or forms_for(record)[:1])}, which takes a few minutes")
    try:
        with invocation.progress(record.name) as line:
            made = prepare_model(
                record, folder, forms=forms, threads=usable_cpus(), on_progress=progress_callback(line)
            )
    except MemoryError as exc:
        raise ModelError(f"there is not enough memory to prepare '{record.name}'", "close other programs") from exc
    for form in made:
        if form.reason is not None:
            out(f"✗ {record.name} {form.name} is not kept: {form.reason}; the published file stays in use\n")
            continue
        size = f"{form.size_bytes / 1e6:.1f} MB"
        out(f"✓ {record.name} {form.name} -> {form.path} ({size}); {form.agreement.summary()}\n")
        if not is_used_by_default(record):
            option = f"{SLOTS[record.role]}_form: {form.name}"
            say(f"hint: it is used when index.yml asks for it: under 'models:', {option}")
    return all(form.reason is None for form in made)


def _preparable(models_dir: Path, forms: list[str] | None) -> list[ModelRecord]:
    """Return the models on this machine that have forms, or all of `forms` if given; a NotFoundError if none has."""
    from qmd.plugins.models.inventory import list_models

    present = [state for state in list_models(models_dir) if state.is_present and state.record.tier != BUILT_IN]
    exact = [state.record for state in present if exact_source(state.record, state.folder) is not None]
    found = [one for one in exact if forms_for(one) and set(forms or ()) <= set(forms_for(one))]
    if not found:
        wanted = f" that has the form '{', '.join(forms)}'" if forms else " that can be prepared"
        raise NotFoundError(f"no model{wanted} is on this machine", "get one: qmd models pull")
    return found


def import_(
    invocation: Invocation,
    source: Annotated[
        Path,
        Argument(
            metavar="SOURCE",
            help="A GGUF file, ollama:NAME, a folder of GGUF or safetensors files, or what 'qmd models export' wrote.",
        ),
    ],
    name: Annotated[
        str | None, Option("--name", metavar="NAME", help="Name of the model.", autocompletion=completion.models)
    ] = None,
    role: Annotated[
        Role | None, Option("--role", metavar="ROLE", help="embed, rerank or expand, if the file does not state it.")
    ] = None,
    form: Annotated[
        ImportForm | None,
        Option("--form", metavar="NAME", help="Form of an encoder: int8 (the fastest), or its own blocks, q8 or q4."),
    ] = None,
    index: Index = None,
) -> int:
    """Import a model on this machine: of tobi/qmd, Ollama or LM Studio, or from an exported archive.

    Models of GGUF and safetensors files are converted once into ONNX graphs. Supported are Qwen3 (for expansion,
    reranking and embedding), EmbeddingGemma, and encoders: BERT, XLM-RoBERTa, nomic-bert. Weights keep their values,
    except those of encoders: for speed they are rounded to 7 bits, unless --form is q8 or q4.
    """
    from qmd.inference.runtime.sessions import cuda_works, gpu_allowed
    from qmd.plugins.models.fetch.archives import import_model
    from qmd.plugins.models.formats.sources import import_sources

    locations = invocation.locate(index)
    sources = import_sources(source.as_posix(), locations.models, locations.home, invocation.environ)
    if not sources and form is not None:
        raise UsageError(f"'{source}' is not converted, so it has no form '{form}'", "import it without --form")
    if not sources:
        record = import_model(source, locations.models, find_record(name) if name else None)
        out(f"✓ Imported {record.name}\n")
        has_cuda = gpu_allowed(invocation.environ) and cuda_works()
        if form_to_make(record, locations.models / record.folder, has_cuda=has_cuda):
            say(f"hint: to make it faster on this CPU: qmd models prepare {record.name}")
    if name is not None and len(sources) > 1:
        raise UsageError(f"'{source}' contains {len(sources)} models: --name is for one", "import them one by one")
    status = EXIT_OK
    for one in sources:
        try:
            _import_one(invocation, one, locations.models, name, role, form)
        except ModelError as error:
            if len(sources) == 1:
                raise
            # Import the others of a folder all the same.
            status = error.exit_code
            out(f"✗ {one.name} is not imported: {error.message}\n")
    return status


def _import_one(
    invocation: Invocation, one: ImportSource, place: Path, name: str | None, role: Role | None, form: ImportForm | None
) -> None:
    from qmd.plugins.models.formats.importing import import_weights

    name = name or one.name
    with invocation.progress(f"importing {name}", "bytes") as line:
        report = import_weights(
            one.path, place, address=one.address, name=name, role=role, form=form, on_progress=line.update
        )
    record, formats = report.model.record, ", ".join(report.model.number_formats)
    state = f"{report.size_bytes / 1e6:.1f} MB from {formats}" if report.is_new else "already imported"
    out(f"✓ Imported {record.name} ({record.role}) -> {report.folder} ({state})\n")
    if report.note is not None:
        say(f"note: {report.note}")
    say(f"hint: to use it, write '{SLOTS[record.role]}: {record.name}' under 'models:' in index.yml")
