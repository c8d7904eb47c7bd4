"""`models prepare`, and what `models pull` does with it: forms of models that run faster on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.models import BUILT_IN, MEGABYTE, find_record, models_folder, shown_on
from qmd.cli.options import Index
from qmd.cli.output import out, say
from qmd.errors import EXIT_FAILURE, EXIT_OK, BusyError, ModelError, NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from qmd.inference.models.prepared import FormName
    from qmd.inference.records import ModelRecord


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
        list[str] | None, Option("--form", metavar="NAME", help="q8, w8a8, fp32 or q4; may be repeated.")
    ] = None,
    index: Index = None,
) -> int:
    """Make the forms of models that run fastest on this machine's CPU; each must agree with the published file."""
    from qmd.inference.models.folders import model_path

    models_dir = models_folder(invocation, index)
    is_whole = True
    for record in [find_record(name) for name in names] if names else _preparable(models_dir, forms):
        if record.tier == BUILT_IN:
            raise UsageError(f"model '{record.name}' is part of qmd and needs no preparation")
        is_whole &= _make(invocation, record, model_path(record, models_dir), forms)
    return EXIT_OK if is_whole else EXIT_FAILURE


def prepare_fetched(invocation: Invocation, record: ModelRecord, folder: Path, form: FormName) -> None:
    """Make the form that pays of a model that was just fetched; without it the published file is used."""
    try:
        _make(invocation, record, folder, [form])
    except (ModelError, BusyError) as exc:
        say(f"warning: {record.name} {form} is not made: {exc.message}; the published file is used")
        say(f"hint: to try again: qmd models prepare {record.name}")


def _make(invocation: Invocation, record: ModelRecord, folder: Path, forms: Sequence[str] | None) -> bool:
    """Make forms and say what came of each; True when all are kept."""
    from qmd.environment import usable_cpus
    from qmd.inference.models.prepared import forms_for
    from qmd.inference.models.weights_choice import taken_unasked
    from qmd.plugins.forms.forms import prepare_model

    say(f"{record.name}: making {', '.join(forms or forms_for(record)[:1])}, which takes a few minutes")
    try:
        with invocation.progress(record.name) as line:
            made = prepare_model(record, folder, forms=forms, threads=usable_cpus(), on_progress=shown_on(line))
    except MemoryError as exc:
        raise ModelError(f"there is not enough memory to prepare '{record.name}'", "close other programs") from exc
    for form in made:
        if form.reason is not None:
            out(f"✗ {record.name} {form.name} is not kept: {form.reason}; the published file stays in use\n")
            continue
        size = f"{form.size_bytes / MEGABYTE:.1f} MB"
        out(f"✓ {record.name} {form.name} -> {form.path} ({size}); {form.agreement.summary()}\n")
        if not taken_unasked(record, form.name):
            slot = "generate" if record.role == "expand" else record.role
            say(f"hint: it is used when index.yml asks for it: under 'models:', {slot}_form: {form.name}")
    return all(form.reason is None for form in made)


def _preparable(models_dir: Path, forms: list[str] | None) -> list[ModelRecord]:
    """The models on this machine that have forms, and all of `forms` where they are named.

    Raises:
        NotFoundError: There are none.
    """
    from qmd.inference.models.folders import list_models as states
    from qmd.inference.models.prepared import exact_source, forms_for

    present = [state for state in states(models_dir) if state.is_present and state.record.tier != BUILT_IN]
    exact = [state.record for state in present if exact_source(state.record, state.folder) is not None]
    found = [one for one in exact if forms_for(one) and set(forms or ()) <= set(forms_for(one))]
    if not found:
        wanted = f" that has the form '{', '.join(forms)}'" if forms else " that can be prepared"
        raise NotFoundError(f"no model{wanted} is on this machine", "get one: qmd models pull")
    return found
