"""Models that other programs have on this machine: tobi/qmd, Ollama, LM Studio. Only names and small lists are read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import path_below, read_json_file

_OLLAMA = "ollama:"
_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_OLLAMA_LIBRARY = "registry.ollama.ai/library"
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_DEPTH = 3
"""Folders between LM Studio's folder and a file: publisher, model."""


class FoundFile(Struct, frozen=True):
    """A model file of another program."""

    owner: str
    """The program, as people call it."""
    address: str
    """What `qmd models import` takes: a path, or `ollama:NAME`."""
    name: str
    path: Path
    size_bytes: int


def find_files(models_dir: Path, home: Path, env: Mapping[str, str]) -> tuple[FoundFile, ...]:
    """GGUF files in the places where other programs keep them.

    Args:
        models_dir: Ours, which on most systems is the folder of tobi/qmd as well.
        env: `OLLAMA_MODELS`, `XDG_CACHE_HOME`.
    """
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    found: dict[Path, FoundFile] = {}
    for folder in (models_dir, cache / "qmd" / "models", home / ".cache" / "qmd" / "models"):
        for file in _files(folder, "tobi/qmd", depth=0):
            found.setdefault(file.path, file)
    for file in _ollama_models(ollama_folder(home, env)):
        found.setdefault(file.path, file)
    for folder in (home / ".lmstudio" / "models", cache / "lm-studio" / "models"):
        for file in _files(folder, "LM Studio", depth=_MAX_DEPTH):
            found.setdefault(file.path, file)
    return tuple(found.values())


def ollama_folder(home: Path, env: Mapping[str, str]) -> Path:
    """Where Ollama keeps its models."""
    return Path(env.get("OLLAMA_MODELS") or home / ".ollama" / "models")


def find_ollama(address: str, home: Path, env: Mapping[str, str]) -> FoundFile | None:
    """The model of Ollama that `ollama:NAME[:TAG]` means; without a tag `latest`, or the only one there is."""
    wanted = address.lower()
    models = list(_ollama_models(ollama_folder(home, env)))
    exact = [model for model in models if model.address.lower() in (wanted, f"{wanted}:latest")]
    of_name = [model for model in models if model.address.lower().rpartition(":")[0] == wanted]
    return next(iter(exact), of_name[0] if len(of_name) == 1 else None)


def is_ollama_address(name: str) -> bool:
    """Whether a name means a model of Ollama."""
    return name.strip().lower().startswith(_OLLAMA)


def cached_file_of(address: str, models_dir: Path) -> Path | None:
    """The file that tobi/qmd has fetched for an address `hf:OWNER/REPOSITORY/FILE.gguf`; None where it is not there.

    node-llama-cpp, which fetches for it, names the file after owner and file.
    """
    parts = PurePosixPath(address.strip().partition(":")[2]).parts
    if len(parts) < 3:
        return None
    wanted = {f"hf_{parts[0]}_{parts[-1]}".lower(), parts[-1].lower()}
    return next((path for path in sorted(models_dir.glob("*.gguf")) if path.name.lower() in wanted), None)


def model_name(path: Path) -> str:
    """What an imported file is called: its name without what a downloader put before it."""
    stem = path.stem
    if stem.startswith("hf_") and stem.count("_") >= 2:
        return stem.split("_", 2)[2]
    return stem


def _files(folder: Path, owner: str, depth: int) -> Iterator[FoundFile]:
    """GGUF files in a folder and, down to `depth`, below it."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.name.lower().endswith(".gguf") and entry.is_file():
            yield FoundFile(owner, str(path), model_name(path), path, entry.stat().st_size)
        elif depth and entry.is_dir(follow_symlinks=False):
            yield from _files(path, owner, depth - 1)


def _ollama_models(folder: Path) -> Iterator[FoundFile]:
    """Models by the manifests of Ollama: `manifests/HOST/OWNER/NAME/TAG` names the blob that is the GGUF file."""
    manifests = folder / "manifests"
    for path in sorted(manifests.glob("*/*/*/*")):
        try:
            layers = read_json_file(path, _MAX_MANIFEST_BYTES)["layers"]
            digest = next(str(item["digest"]) for item in layers if item.get("mediaType") == _OLLAMA_MODEL)
            blob = path_below(folder / "blobs", digest.replace(":", "-"), path.name)
            size = blob.stat().st_size
        except (OSError, ModelError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
            continue
        name, tag = path.parent.relative_to(manifests).as_posix(), path.name
        name = name.removeprefix(f"{_OLLAMA_LIBRARY}/").removeprefix("registry.ollama.ai/")
        # Its names are those of the makers' models: what is made of one must not pass for another's.
        short = f"ollama-{name.rpartition('/')[2]}" + ("" if tag == "latest" else f"-{tag}")
        yield FoundFile("Ollama", f"{_OLLAMA}{name}:{tag}", short, blob, size)
