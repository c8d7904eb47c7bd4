"""`models` and `pull`: fetch, prepare, check, move and remove model files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import Index, Json
from qmd.cli.output import out, say
from qmd.errors import EXIT_FAILURE, EXIT_OK, ModelError, NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qmd.cli.progress import ProgressLine
    from qmd.config.paths import Locations
    from qmd.inference.models.catalogue import ModelRecord, Role
    from qmd.prepare.sources import Importable, ImportSource

Names = Annotated[
    list[str] | None, Argument(help="Names of models [default: one for each role].", autocompletion=completion.models)
]
Name = Annotated[str, Argument(help="Name of a model, as in 'qmd models list'.", autocompletion=completion.models)]
BUILT_IN = "built-in"
_MEGABYTE = 1_000_000


def list_models(invocation: Invocation, as_json: Json = False, index: Index = None) -> int:
    """List the models qmd knows, and which are on this machine."""
    from qmd.inference.models.folders import list_models as states

    locations = invocation.locate(index)
    found = states(locations.models)
    elsewhere = _importable(invocation, locations)
    if as_json:
        import json

        rows = [
            {
                "name": state.record.name,
                "role": state.record.role,
                "tier": state.record.tier,
                "repository": state.record.repository,
                "licence": state.record.licence,
                "languages": list(state.record.languages),
                "present": state.is_present,
                "path": str(state.folder) if state.is_present else None,
                "formats": list(state.formats),
                "prepared": [form.name for form in state.prepared if form.fault is None],
            }
            for state in found
        ]
        rows += [
            {
                "name": one.file.name,
                "role": one.role,
                "tier": "import",
                "repository": one.file.owner,
                "licence": "unknown",
                "languages": [],
                "present": False,
                "path": str(one.file.path),
                "formats": [],
                "prepared": [],
                "import": _import_command(one),
            }
            for one in elsewhere
        ]
        out(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
        return EXIT_OK
    if invocation.screen:
        from qmd.render.models_table import draw_models

        steps = [(_import_command(one), _import_reason(one)) for one in elsewhere]
        invocation.page(draw_models(invocation.screen, found, locations.home, steps))
        return EXIT_OK
    width = max(len(state.record.name) for state in found)
    for state in found:
        where = str(state.folder) if state.is_present else "not downloaded"
        forms = [form.name if form.fault is None else f"{form.name} (damaged)" for form in state.prepared]
        prepared = f"  prepared: {', '.join(forms)}" if forms else ""
        out(f"{state.record.role:<7} {state.record.name:<{width}}  {state.record.tier:<9} {where}{prepared}\n")
    for one in elsewhere:
        out(f"{one.role:<7} {one.file.name:<{width}}  {'import':<9} {_import_command(one)}  {_import_reason(one)}\n")
    return EXIT_OK


def pull(
    invocation: Invocation,
    names: Names = None,
    formats: Annotated[
        list[str] | None, Option("--file-format", metavar="NAME", help="Download only this format; may be repeated.")
    ] = None,
    refresh: Annotated[
        bool, Option("--refresh", help="Take the newest version of models whose version qmd does not fix.")
    ] = False,
    progress: Annotated[bool, Option("--progress", hidden=True)] = False,
    index: Index = None,
) -> int:
    """Fetch models; an interrupted pull goes on where it stopped."""
    from qmd.inference.models.catalogue import full_model
    from qmd.inference.models.downloads import formats_to_pull, pull_model
    from qmd.inference.runtime.sessions import cuda_works, gpu_allowed
    from qmd.prepare.forms import forms_for

    models_dir = _models_dir(invocation, index)
    has_cuda = gpu_allowed(invocation.environ) and cuda_works()
    records = [_record(name) for name in names or ()] or [full_model(role) for role in ("embed", "rerank", "expand")]
    for record in records:
        say(f"{record.name} ({record.role}) from {record.repository}")
        with invocation.progress(record.name, "bytes") as line:
            report = pull_model(
                record,
                models_dir,
                formats=formats or formats_to_pull(record, has_cuda=has_cuda),
                env=invocation.environ,
                on_progress=_shown_on(line),
                refresh=refresh,
            )
        for note in report.notes:
            say(f"note: {note}")
        state = f"{report.fetched_bytes / _MEGABYTE:.1f} MB fetched" if report.fetched else "already downloaded"
        out(f"- {record.name} -> {report.folder} ({state})\n")
        if forms_for(record) and report.fetched and not has_cuda:
            say(f"hint: to make it faster on this CPU: qmd models prepare {record.name}")
    return EXIT_OK


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
    from qmd.environment import usable_cpus
    from qmd.inference.models.folders import model_path
    from qmd.prepare.forms import prepare_model

    models_dir = _models_dir(invocation, index)
    status = EXIT_OK
    for record in [_record(name, models_dir) for name in names] if names else _preparable(models_dir, forms):
        if record.tier == BUILT_IN:
            raise UsageError(f"model '{record.name}' is part of qmd and needs no preparation")
        made = prepare_model(
            record,
            model_path(record, models_dir),
            forms=forms,
            threads=usable_cpus(),
            on_step=lambda step, name=record.name: say(f"{name}: {step}"),  # type: ignore[misc]
        )
        for form in made:
            if form.is_kept:
                size = f"{form.size_bytes / _MEGABYTE:.1f} MB"
                out(f"✓ {record.name} {form.name} -> {form.path} ({size}); {form.agreement.summary()}\n")
            else:
                status = EXIT_FAILURE
                out(f"✗ {record.name} {form.name} is not kept: {form.reason}; the published file stays in use\n")
    return status


def _preparable(models_dir: Path, forms: list[str] | None) -> list[ModelRecord]:
    """The models on this machine that have forms, and all of `forms` where they are named.

    Raises:
        NotFoundError: There are none.
    """
    from qmd.inference.models.folders import list_models as states
    from qmd.prepare.forms import forms_for

    present = [state.record for state in states(models_dir) if state.is_present and state.record.tier != BUILT_IN]
    found = [one for one in present if forms_for(one) and set(forms or ()) <= set(forms_for(one))]
    if not found:
        wanted = f" that has the form '{', '.join(forms)}'" if forms else " that can be prepared"
        raise NotFoundError(f"no model{wanted} is on this machine", "get one: qmd models pull")
    return found


def path(invocation: Invocation, name: Name, index: Index = None) -> int:
    """Print the folder of a model."""
    from qmd.inference.models.folders import model_path

    models_dir = _models_dir(invocation, index)
    out(f"{model_path(_record(name, models_dir), models_dir)}\n")
    return EXIT_OK


def verify(invocation: Invocation, names: Names = None, index: Index = None) -> int:
    """Check model files against their sizes and checksums."""
    from qmd.inference.models.folders import list_models as states
    from qmd.inference.models.folders import verify_model

    models_dir = _models_dir(invocation, index)
    present = [state.record for state in states(models_dir) if state.is_present]
    status = EXIT_OK
    for record in [_record(name, models_dir) for name in names] if names else present:
        for check in verify_model(record, models_dir):
            if check.status not in ("ok", "unknown"):
                status = EXIT_FAILURE
            out(f"{check.status:<9} {record.name}: {check.path}\n")
    return status


def remove(invocation: Invocation, name: Name, index: Index = None) -> int:
    """Delete the files of a model."""
    from qmd.inference.models.folders import remove_model

    models_dir = _models_dir(invocation, index)
    freed = remove_model(_record(name, models_dir), models_dir)
    out(f"✓ Removed {name} ({freed / _MEGABYTE:.1f} MB)\n")
    return EXIT_OK


def export(
    invocation: Invocation,
    name: Name,
    target: Annotated[Path, Argument(help="A folder, or a file ending in .tar or .tar.gz.")],
    index: Index = None,
) -> int:
    """Copy a model to a folder or archive, for a machine without network."""
    from qmd.inference.models.folders import export_model

    models_dir = _models_dir(invocation, index)
    out(f"✓ Exported {name} to {export_model(_record(name, models_dir), models_dir, target)}\n")
    return EXIT_OK


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
        str | None, Option("--role", metavar="ROLE", help="embed, rerank or expand, where the file does not tell.")
    ] = None,
    index: Index = None,
) -> int:
    """Take a model that lies on this machine: of tobi/qmd, Ollama or LM Studio, or from an exported archive.

    Models of GGUF and safetensors files are made into our own graphs, once; their weights keep their values. Read are
    Qwen3 (for expansion, reranking and embedding) and EmbeddingGemma.
    """
    from qmd.prepare.sources import import_sources

    chosen = _role(role)
    locations = invocation.locate(index)
    sources = import_sources(source.as_posix(), locations.models, locations.home, invocation.environ)
    if not sources:
        from qmd.inference.models.folders import import_model

        record = import_model(source, locations.models, _record(name) if name else None)
        out(f"✓ Imported {record.name}\n")
        return EXIT_OK
    if name is not None and len(sources) > 1:
        raise UsageError(f"'{source}' holds {len(sources)} models: --name is for one", "import them one by one")
    if len(sources) == 1:
        _import_one(invocation, sources[0], locations.models, name, chosen)
        return EXIT_OK
    status = EXIT_OK
    for one in sources:
        try:
            _import_one(invocation, one, locations.models, None, chosen)
        except ModelError as error:
            # The others of a folder are wanted all the same.
            status = error.exit_code
            out(f"✗ {one.name} is not imported: {error.message}\n")
    return status


def _import_one(
    invocation: Invocation, source: ImportSource, models_dir: Path, name: str | None, role: Role | None
) -> None:
    from qmd.prepare.importing import import_weights

    name = name or source.name
    with invocation.progress(f"importing {name}", "bytes") as line:
        report = import_weights(
            source.path, models_dir, address=source.address, name=name, role=role, on_progress=line.update
        )
    record, formats = report.model.record, ", ".join(report.number_formats)
    state = f"{report.size_bytes / _MEGABYTE:.1f} MB from {formats}" if report.is_new else "already imported"
    out(f"✓ Imported {record.name} ({record.role}) -> {report.folder} ({state})\n")
    if report.note is not None:
        say(f"note: {report.note}")
    slot = "generate" if record.role == "expand" else record.role
    say(f"hint: to use it, write '{slot}: {record.name}' under 'models:' in index.yml")


def _role(name: str | None) -> Role | None:
    from qmd.inference.models.catalogue import Role

    roles: tuple[Role, ...] = get_args(Role)
    if name is not None and name not in roles:
        raise UsageError(f"'{name}' is no role", f"choose from: {', '.join(roles)}")
    return next((role for role in roles if role == name), None)


def _importable(invocation: Invocation, locations: Locations) -> Sequence[Importable]:
    """Models of other programs; their heads are read only where there are any."""
    from qmd.inference.models.elsewhere import find_files

    if not find_files(locations.models, locations.home, invocation.environ):
        return ()
    from qmd.prepare.sources import importable_files

    return importable_files(locations.models, locations.home, invocation.environ)


def _import_command(one: Importable) -> str:
    return f"qmd models import {shlex.quote(one.file.address)}"


def _import_reason(one: Importable) -> str:
    return f"take it over from {one.file.owner} ({one.file.size_bytes / _MEGABYTE:.0f} MB)"


def _models_dir(invocation: Invocation, index: str | None) -> Path:
    return invocation.locate(index).models


def _record(name: str, models_dir: Path | None = None) -> ModelRecord:
    """The record of a name: of the catalogue or, in a folder of models, of one that was imported."""
    from qmd.inference.models.catalogue import find_model
    from qmd.inference.models.imported import find_imported

    imported = find_imported(name, models_dir) if models_dir is not None else None
    record = imported.record if imported is not None else find_model(name)
    if record is None:
        raise NotFoundError(f"model '{name}' is not known", "see: qmd models list")
    return record


def _shown_on(line: ProgressLine) -> Callable[[str, int, int | None], None]:
    """Shows the download of one file after another; one whose size the hub does not tell is small."""
    current = ""

    def show(file: str, done: int, total: int | None) -> None:
        nonlocal current
        if total is None:
            return
        if file != current:
            current = file
            line.begin(Path(file).name)
        line.update(done, total)

    return show
