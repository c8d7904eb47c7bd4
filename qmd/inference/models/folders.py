"""Folders of models on this machine: lookup by name, paths and manifests.

A folder fetched or imported here contains `qmd-model.json`, written last: repository, commit, and size and sha256 of
each file. `models verify` compares files with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from qmd.errors import BusyModelError, ModelError, NotFoundError
from qmd.files import exclusive_lock, make_private_folder, write_atomically
from qmd.foreign import commit_of, read_json_file
from qmd.inference.base import engine_provider
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.models.catalogue import find_model
from qmd.inference.models.imported import find_imported
from qmd.inference.models.prepared import read_file_list
from qmd.inference.models.weights import locate_model
from qmd.inference.records import ModelFile, ModelRecord, Pooling
from qmd.inference.settings import provider_prefix

MANIFEST_NAME = "qmd-model.json"
MAX_MANIFEST_BYTES = 1 << 20
STAGING = ".staging"
_SPARE_BYTES = 64 << 20
"""Disk space that stays free after a write."""

_POOLINGS: Mapping[str, Pooling] = {
    "cls": "first",
    "mean": "mean",
    "max": "max",
    "mean_sqrt_len": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
"""`pooling_mode` of version 6 of sentence-transformers; earlier keys have it after `pooling_mode_`."""
_QUERY_NAMES = ("query", "retrieval.query", "Retrieval-query", "search_query", "s2p_query")
_DOCUMENT_NAMES = ("document", "passage", "corpus", "retrieval.passage", "Retrieval-document", "search_document")
"""Names of prompts, first match wins: sentence-transformers' own, then those of Jina, Gemma, Nomic and Stella."""


class Manifest(Struct, frozen=True):
    """Origin and files of a model folder."""

    repository: str
    commit: str | None
    files: tuple[ModelFile, ...]


def find_record(name: str, models_dir: Path | None = None) -> ModelRecord:
    """Return the record of a model by name: from the catalogue or, in a folder of models, an imported one.

    Raises:
        NotFoundError: There is none.
    """
    imported = find_imported(name, models_dir) if models_dir is not None else None
    if imported is not None:
        return imported.record
    provider = provider_prefix(name)
    record = find_model(name) if provider is None else engine_provider(provider).find_record(name)
    if record is None:
        raise NotFoundError(f"model '{name}' is not known", "see: qmd models list")
    return record


def model_path(record: ModelRecord, models_dir: Path) -> Path:
    """Return the folder of a model that is on this machine; an error with the next step if it is not."""
    folder = locate_builtin(record) if record.tier == "built-in" else locate_model(record, models_dir)
    if folder is None:
        raise NotFoundError(f"model '{record.name}' is not on this machine", f"get it: qmd models pull {record.name}")
    return folder


def measure_file(folder: Path, path: str) -> ModelFile:
    """Return a file of a folder with its size and sha256."""
    return ModelFile(path, (folder / path).stat().st_size, sha256_of(folder / path))


def read_manifest(folder: Path) -> Manifest | None:
    """Read a folder's manifest, None if there is none. It may be foreign: its paths and commit are checked.

    Raises:
        ModelError: It is damaged.
    """
    try:
        found = read_json_file(folder / MANIFEST_NAME, MAX_MANIFEST_BYTES)
        return Manifest(str(found["repository"]), commit_of(found.get("commit")), read_file_list(found["files"]))
    except FileNotFoundError:
        return None
    except (AttributeError, OSError, OverflowError, ValueError, KeyError, TypeError) as exc:
        raise ModelError(f"'{folder / MANIFEST_NAME}' is damaged", "fetch the model again: qmd models pull") from exc


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest in one step."""
    files = file_list(manifest.files)
    text = json.dumps({"repository": manifest.repository, "commit": manifest.commit, "files": files}, indent=1)
    write_atomically(folder / MANIFEST_NAME, text)


def file_list(files: Iterable[ModelFile]) -> list[dict[str, object]]:
    """Return files as every manifest lists them; `read_file_list` reads them back."""
    return [{"path": item.path, "size_bytes": item.size_bytes, "sha256": item.sha256} for item in files]


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@contextlib.contextmanager
def map_os_errors(path: Path) -> Iterator[None]:
    """Turn a full disk, missing rights and similar errors into one `ModelError` line."""
    try:
        yield
    except OSError as exc:
        reason = getattr(exc, "strerror", None) or " ".join(str(exc).split()) or type(exc).__name__
        raise ModelError(f"cannot use '{path}': {reason}", "check its rights and the free space") from exc


@contextlib.contextmanager
def locked(path: Path, otherwise: str) -> Iterator[None]:
    """Lock a path for the block; a BusyModelError with the message `otherwise` if another process has the lock."""
    with exclusive_lock(path) as is_ours:
        if not is_ours:
            raise BusyModelError(otherwise, "wait until it has ended")
        yield


@contextlib.contextmanager
def staged(models_dir: Path, name: str) -> Iterator[Path]:
    """Create an empty folder for a new model, under the lock of its name; delete it after the block.

    Raises:
        BusyModelError: If another process has the lock.
    """
    folder = models_dir / STAGING / f"{name}.importing"
    with locked(models_dir / STAGING / f"{name}.lock", f"'{name}' is being imported or fetched by another process"):
        # Left by an interrupted run; the lock excludes another writer.
        shutil.rmtree(folder, ignore_errors=True)
        try:
            make_private_folder(folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def check_space(folder: Path, needed: int) -> None:
    """Raise a ModelError, before the first byte, when the disk has no space for `needed` bytes more."""
    free = shutil.disk_usage(folder).free
    if needed + _SPARE_BYTES > free:
        raise ModelError(
            f"not enough space in '{folder}': needs {(needed >> 20) + 1} MiB with {_SPARE_BYTES >> 20} MiB to spare,"
            f" {free >> 20} MiB free",
            "free some space, or move the models folder",
        )


def read_pooling(config: Mapping[str, Any]) -> tuple[Pooling, str]:
    """Return the pooling that either version of `1_Pooling/config.json` names, and the name; `none` if unknown."""
    given = config.get("pooling_mode")
    modes = [given] if isinstance(given, str) else given
    if modes is None:
        modes = [key.removeprefix("pooling_mode_") for key, on in config.items() if on and "pooling_mode_" in key]
    named = "+".join(map(str, modes or ("mean",)))
    return _POOLINGS.get(named.removesuffix("_tokens").removesuffix("_token"), "none"), named


def read_prompts(config: Mapping[str, Any]) -> tuple[str, str, Mapping[str, str]]:
    """Return the query's, the document's and all named prompts of `config_sentence_transformers.json`."""
    stated = config.get("prompts")
    # Version 5 of sentence-transformers and later write empty ones into every model.
    prompts = {str(name): str(text) for name, text in stated.items() if text} if isinstance(stated, dict) else {}
    default = prompts.get(str(config.get("default_prompt_name")), "")
    query = next((prompts[name] for name in _QUERY_NAMES if name in prompts), default)
    return query, next((prompts[name] for name in _DOCUMENT_NAMES if name in prompts), default), prompts
