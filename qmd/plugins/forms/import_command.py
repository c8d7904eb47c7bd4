"""`models import`, and what `models list` says of models that other programs keep on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.models import MEGABYTE, find_record
from qmd.cli.options import Index
from qmd.cli.output import out, say
from qmd.errors import EXIT_OK, ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qmd.config.paths import Locations
    from qmd.inference.records import ModelRecord, Role
    from qmd.plugins.forms.sources import Importable, ImportSource


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
    from qmd.plugins.forms.sources import import_sources

    chosen = _role(role)
    locations = invocation.locate(index)
    sources = import_sources(source.as_posix(), locations.models, locations.home, invocation.environ)
    if not sources:
        from qmd.inference.models.archives import import_model

        record = import_model(source, locations.models, find_record(name) if name else None)
        out(f"✓ Imported {record.name}\n")
        _hint_form(invocation, record, locations.models)
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
    from qmd.plugins.forms.importing import import_weights

    name = name or source.name
    with invocation.progress(f"importing {name}", "bytes") as line:
        report = import_weights(
            source.path, models_dir, address=source.address, name=name, role=role, on_progress=line.update
        )
    record, formats = report.model.record, ", ".join(report.number_formats)
    state = f"{report.size_bytes / MEGABYTE:.1f} MB from {formats}" if report.is_new else "already imported"
    out(f"✓ Imported {record.name} ({record.role}) -> {report.folder} ({state})\n")
    if report.note is not None:
        say(f"note: {report.note}")
    slot = "generate" if record.role == "expand" else record.role
    say(f"hint: to use it, write '{slot}: {record.name}' under 'models:' in index.yml")


def _role(name: str | None) -> Role | None:
    from qmd.inference.records import Role

    roles: tuple[Role, ...] = get_args(Role)
    if name is not None and name not in roles:
        raise UsageError(f"'{name}' is no role", f"choose from: {', '.join(roles)}")
    return next((role for role in roles if role == name), None)


def _hint_form(invocation: Invocation, record: ModelRecord, models_dir: Path) -> None:
    from qmd.inference.models.prepared import form_to_make
    from qmd.inference.runtime.sessions import cuda_works, gpu_allowed

    has_cuda = gpu_allowed(invocation.environ) and cuda_works()
    if form_to_make(record, models_dir / record.folder, has_cuda=has_cuda):
        say(f"hint: to make it faster on this CPU: qmd models prepare {record.name}")


def importable_models(invocation: Invocation, locations: Locations) -> Sequence[Importable]:
    """Models of other programs; their heads are read only where there are any."""
    from qmd.plugins.forms.elsewhere import find_files

    if not find_files(locations.models, locations.home, invocation.environ):
        return ()
    from qmd.plugins.forms.sources import importable_files

    return importable_files(locations.models, locations.home, invocation.environ)


def import_command(one: Importable) -> str:
    """The command that takes a model over."""
    return f"qmd models import {shlex.quote(one.file.address)}"


def import_reason(one: Importable) -> str:
    """What is said beside the command."""
    return f"take it over from {one.file.owner} ({one.file.size_bytes / MEGABYTE:.0f} MB)"
