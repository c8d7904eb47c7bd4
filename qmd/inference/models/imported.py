"""Models imported here from files of other programs: their records and their addresses.

The folder of such a model contains `qmd-import.json`: a record like those of the catalogue, and the source.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.files import read_regular_file
from qmd.foreign import checked_path, is_name, short
from qmd.inference.models.catalogue import find_model, is_gguf_address
from qmd.inference.records import ModelRecord, Role
from qmd.inference.settings import provider_prefix

IMPORT_FILE = "qmd-import.json"
OWNER = "imported"
"""Owner in the repository of an imported model, which has none: its folder is `imported--NAME`."""
_MAX_RECORD_BYTES = 1 << 20
_MAX_TOKENS, _MAX_DIM = 1 << 17, 1 << 16


class Source(Struct, frozen=True):
    """The file or folder that a model was made from."""

    address: str
    """As the user wrote it: a path, or `ollama:NAME`."""
    path: str
    size_bytes: int
    sha256: str


class ImportedModel(Struct, frozen=True):
    """Contents of `qmd-import.json`."""

    record: ModelRecord
    source: Source
    qmd: str
    """The version of qmd that made it."""
    number_formats: tuple[str, ...] = ()
    """Formats of the source's matrices, the most bytes first."""


def read_imported(folder: Path) -> ImportedModel | None:
    """Return the record in the folder of an imported model; None for other folders.

    Anyone may have written the record, so only facts are taken from it: the name and repository come from the folder's
    name, or in a folder of another name from the record, and are never those of a model of the catalogue.

    Raises:
        ModelError: The file is damaged, or not the record of an imported model.
    """
    try:
        found = msgspec.json.decode(read_regular_file(folder / IMPORT_FILE, _MAX_RECORD_BYTES), type=ImportedModel)
    except FileNotFoundError:
        return None
    except (OSError, RecursionError, ValueError) as exc:
        raise ModelError(f"'{folder / IMPORT_FILE}' is damaged", "import the model again: qmd models import") from exc
    record, prefix = found.record, f"{OWNER}--"
    name = folder.name.removeprefix(prefix) if folder.name.startswith(prefix) else record.name
    for file in (*record.files, *(item.weights for item in record.formats), *filter(None, [record.batches])):
        checked_path(file.path, IMPORT_FILE)
    sizes = ((record.context, _MAX_TOKENS), (record.max_tokens, _MAX_TOKENS), (record.dim or 1, _MAX_DIM))
    if not record.formats or not all(1 <= size <= most for size, most in sizes):
        raise ModelError(f"'{folder / IMPORT_FILE}' is damaged", "import the model again: qmd models import")
    if not is_model_name(name) or find_model(name) is not None:
        raise ModelError(f"'{short(name)}' cannot be the name of an imported model", "import the file it was made of")
    return replace(found, record=replace(record, name=name, tier="full", repository=f"{OWNER}/{name}", scale=None))


def is_model_name(name: str) -> bool:
    """Return whether an imported model can have this name; its folder has it too."""
    return bool(name.strip()) and not name.startswith(".") and is_name(f"{OWNER}--{name}")


def write_imported(folder: Path, model: ImportedModel) -> None:
    text = json.dumps(msgspec.to_builtins(model), indent=1, ensure_ascii=False)
    (folder / IMPORT_FILE).write_text(text, "utf-8")


def imported_models(models_dir: Path) -> tuple[ImportedModel, ...]:
    """Return every imported model by name, without damaged ones."""
    found: list[ImportedModel] = []
    for path in sorted(models_dir.glob(f"{OWNER}--*/{IMPORT_FILE}")):
        with suppress(ModelError):
            found += filter(None, [read_imported(path.parent)])
    return tuple(found)


def find_imported(name: str, models_dir: Path, role: Role | None = None) -> ImportedModel | None:
    """Return the imported model that a name, a GGUF file's address or an Ollama address means, or None."""
    if not is_gguf_address(name) and (provider_prefix(name) is not None or find_model(name) is not None):
        return None  # even if a record has such a source
    wanted = {name.strip().lower(), f"{OWNER}/{name.strip().lower()}"}
    if is_gguf_address(name):
        wanted.add(PurePosixPath(name.strip().lower()).stem)
    for model in imported_models(models_dir):
        names = {model.record.name.lower(), model.record.repository.lower(), model.source.address.lower()}
        if names & wanted and role in (None, model.record.role):
            return model
    return None
