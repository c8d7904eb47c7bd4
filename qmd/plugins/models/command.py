"""`models` and `pull`: fetch, check, move and remove model files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import Index, Json
from qmd.cli.output import out, say
from qmd.cli.progress import progress_callback
from qmd.errors import EXIT_FAILURE, EXIT_OK
from qmd.escapes import LONG_CHARS, one_line
from qmd.inference.models.folders import find_record, model_path
from qmd.inference.models.prepared import FormName
from qmd.inference.records import ModelRecord, Role
from qmd.plugins import hooks

if TYPE_CHECKING:
    from qmd.plugins.models.formats.sources import Importable
    from qmd.plugins.models.inventory import ModelState

Names = Annotated[
    list[str] | None, Argument(help="Names of models [default: one for each role].", autocompletion=completion.models)
]
Name = Annotated[str, Argument(help="Name of a model, as in 'qmd models list'.", autocompletion=completion.models)]


def list_models(
    invocation: Invocation,
    available: Annotated[
        bool, Option("--available", help="List fastembed's models: 'qmd models pull fastembed:NAME' downloads one.")
    ] = False,
    as_json: Json = False,
    index: Index = None,
) -> int:
    """List the models qmd knows, and which are on this machine."""
    from qmd.plugins.models.formats.sources import importable_files
    from qmd.plugins.models.inventory import list_models as states

    locations = invocation.locate(index)
    if available:
        return hooks.list_available_models(invocation, locations.models, as_json=as_json)
    found = states(locations.models)
    others = importable_files(locations.models, locations.home, invocation.environ)
    if as_json:
        from qmd.render.text import json_text

        out(json_text([*map(_model_object, found), *map(_other_object, others)]))
        return EXIT_OK
    rows: list[tuple[str, ...]] = [(one.record.role, one.record.name, one.record.tier, _place(one)) for one in found]
    rows += [(one.role, one.file.name, "import", f"{one.command}  {one.reason}") for one in others]
    if invocation.screen:
        from qmd.render.columns import shown, tabulate
        from qmd.render.drawing import draw

        drawn = [[shown(text) for text in row] for row in rows]
        for *_, place in drawn:
            place.overflow = "fold"  # keep paths and commands whole, for copying
        heads = ("Role", "Model", "Tier", "Where")
        step = shown("To download one: qmd models pull MODEL", "faint")
        invocation.page(draw(invocation.screen, tabulate(heads, drawn, fold=("Where",)), "", step))
        return EXIT_OK
    width = max(len(one.record.name) for one in found)
    lines = (f"{role:<7} {name:<{width}}  {tier:<9} {place}" for role, name, tier, place in rows)
    out("".join(f"{one_line(line, LONG_CHARS)}\n" for line in lines))
    return EXIT_OK


def _place(state: ModelState) -> str:
    """Return the folder of a model, with its forms and why some of them are not used."""
    forms = [form.name if form.fault is None else f"{form.name} (not used: {form.fault})" for form in state.prepared]
    missing = "not installed" if state.record.tier == "built-in" else "not downloaded"
    where = str(state.folder) if state.is_present else missing
    return f"{where}  prepared: {', '.join(forms)}" if forms else where


def _model_object(state: ModelState) -> dict[str, object]:
    names = ("name", "role", "tier", "repository", "licence", "languages")
    return {
        **{name: getattr(state.record, name) for name in names},
        "present": state.is_present,
        "path": str(state.folder) if state.is_present else None,
        "formats": list(state.formats),
        "prepared": [form.name for form in state.prepared if form.fault is None],
        "not_used": {form.name: form.fault for form in state.prepared if form.fault is not None},
    }


def _other_object(other: Importable) -> dict[str, object]:
    """Return the JSON object of another program's model, with the command that imports it."""
    identity = {"name": other.file.name, "role": other.role, "tier": "import", "repository": other.file.owner}
    facts = {"licence": "unknown", "languages": [], "present": False, "path": str(other.file.path)}
    return {**identity, **facts, "formats": [], "prepared": [], "import": other.command}


def pull(
    invocation: Invocation,
    names: Names = None,
    formats: Annotated[
        list[str] | None, Option("--file-format", metavar="NAME", help="Download only this format; may be repeated.")
    ] = None,
    no_prepare: Annotated[
        bool, Option("--no-prepare", help="Do not make the form of a model that is fastest on this CPU.")
    ] = False,
    refresh: Annotated[
        bool, Option("--refresh", help="Take the newest version of models that qmd does not pin.")
    ] = False,
    progress: Annotated[bool, Option("--progress", hidden=True)] = False,
    index: Index = None,
) -> int:
    """Fetch models and make the forms of them that run fastest here; continue interrupted downloads."""
    from qmd.inference.models.catalogue import full_model
    from qmd.inference.models.prepared import form_share, form_that_pays, form_to_make
    from qmd.inference.runtime.sessions import cuda_works, gpu_allowed
    from qmd.plugins.models.fetch.downloads import formats_to_pull, pull_model
    from qmd.plugins.models.formats.command import prepare_fetched

    models_dir = invocation.locate(index).models
    has_cuda = gpu_allowed(invocation.environ) and cuda_works()
    records = [find_record(name) for name in names or ()] or [full_model(role) for role in get_args(Role)]
    to_make: list[tuple[ModelRecord, Path, FormName]] = []
    for record in records:
        say(f"{record.name} ({record.role}) from {record.repository}")
        form = None if no_prepare else form_that_pays(record, has_cuda=has_cuda)
        with invocation.progress(record.name, "bytes") as line:
            report = pull_model(
                record,
                models_dir,
                formats=formats or formats_to_pull(record, has_cuda=has_cuda),
                form_share=form_share(form) if form else 0.0,
                env=invocation.environ,
                on_progress=progress_callback(line),
                refresh=refresh,
            )
        for note in report.notes:
            say(f"note: {note}")
        state = f"{report.fetched_bytes / 1e6:.1f} MB fetched" if report.fetched else "already downloaded"
        out(f"- {record.name} -> {report.folder} ({state})\n")
        if form and form_to_make(record, report.folder, has_cuda=has_cuda):
            to_make.append((record, report.folder, form))
    # Last: when interrupted, every model is already fetched.
    for record, folder, form in to_make:
        prepare_fetched(invocation, record, folder, form)
    return EXIT_OK


def path(invocation: Invocation, name: Name, index: Index = None) -> int:
    """Print the folder of a model."""
    models_dir = invocation.locate(index).models
    out(f"{model_path(find_record(name, models_dir), models_dir)}\n")
    return EXIT_OK


def verify(invocation: Invocation, names: Names = None, index: Index = None) -> int:
    """Check model files against their sizes and checksums."""
    from qmd.plugins.models.inventory import list_models as states
    from qmd.plugins.models.inventory import verify_model

    models_dir = invocation.locate(index).models
    present = [state.record for state in states(models_dir) if state.is_present]
    status = EXIT_OK
    for record in [find_record(name, models_dir) for name in names] if names else present:
        for check in verify_model(record, models_dir):
            if check.status not in ("ok", "unknown"):
                status = EXIT_FAILURE
            is_other = check.status == "differs"
            says = f", which is not the file that qmd pins: qmd models pull {record.name}" if is_other else ""
            out(f"{check.status:<9} {record.name}: {check.path}{says}\n")
    return status


def remove(invocation: Invocation, name: Name, index: Index = None) -> int:
    """Delete the files of a model."""
    from qmd.plugins.models.inventory import remove_model

    models_dir = invocation.locate(index).models
    freed = remove_model(find_record(name, models_dir), models_dir)
    out(f"✓ Removed {name} ({freed / 1e6:.1f} MB)\n")
    return EXIT_OK


def export(
    invocation: Invocation,
    name: Name,
    target: Annotated[Path, Argument(help="A folder, or a file ending in .tar or .tar.gz.")],
    index: Index = None,
) -> int:
    """Copy a model to a folder or archive, for a machine without network."""
    from qmd.plugins.models.fetch.archives import export_model

    models_dir = invocation.locate(index).models
    out(f"✓ Exported {name} to {export_model(find_record(name, models_dir), models_dir, target)}\n")
    return EXIT_OK
