"""Models that were made here from files of other programs: their records, and which of them an address means.

The folder of such a model holds `qmd-import.json`: the record that the catalogue has for others, and the source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.models.catalogue import ModelRecord, Role, is_gguf_address

IMPORT_FILE = "qmd-import.json"
OWNER = "imported"
"""Stands for the owner in the repository of an imported model, which has none: its folder is `imported--NAME`."""


class Source(Struct, frozen=True):
    """The file or folder that a model was made from."""

    address: str
    """As it was asked for: a path, or `ollama:NAME`."""
    path: str
    size_bytes: int
    sha256: str


class ImportedModel(Struct, frozen=True):
    """What `qmd-import.json` says."""

    record: ModelRecord
    source: Source
    qmd: str
    """The version that made it."""


def read_imported(folder: Path) -> ImportedModel | None:
    """What the folder of an imported model says of it; None for other folders.

    Raises:
        ModelError: The file is damaged.
    """
    try:
        return msgspec.json.decode((folder / IMPORT_FILE).read_bytes(), type=ImportedModel)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as exc:
        raise ModelError(f"'{folder / IMPORT_FILE}' is damaged", "import the model again: qmd models import") from exc


def write_imported(folder: Path, model: ImportedModel) -> None:
    """Write `qmd-import.json`."""
    text = json.dumps(msgspec.to_builtins(model), indent=1, ensure_ascii=False)
    (folder / IMPORT_FILE).write_text(text, "utf-8")


def imported_models(models_dir: Path) -> tuple[ImportedModel, ...]:
    """Every imported model by name; damaged ones left out."""
    return tuple(_read_all(models_dir))


def find_imported(name: str, models_dir: Path, role: Role | None = None) -> ImportedModel | None:
    """The imported model that a name, an address of a GGUF file or of Ollama means; None where there is none."""
    wanted = {name.strip().lower(), f"{OWNER}/{name.strip().lower()}"}
    if is_gguf_address(name):
        wanted.add(PurePosixPath(name.strip().lower()).stem)
    for model in _read_all(models_dir):
        names = {model.record.name.lower(), model.record.repository.lower(), model.source.address.lower()}
        if names & wanted and role in (None, model.record.role):
            return model
    return None


def _read_all(models_dir: Path) -> Iterator[ImportedModel]:
    for path in sorted(models_dir.glob(f"{OWNER}--*/{IMPORT_FILE}")):
        try:
            found = read_imported(path.parent)
        except ModelError:
            continue
        if found is not None:
            yield found
