"""Sources of `qmd models import`: files, folders, addresses, and models of other programs.

Of the programs tobi/qmd, Ollama and LM Studio only names, small lists and the heads of files are read.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from qmd.config.paths import expand_home
from qmd.errors import ModelError, NotFoundError
from qmd.foreign import path_below, read_json_file, reading
from qmd.inference.models.catalogue import is_gguf_address
from qmd.inference.models.folders import sha256_of
from qmd.inference.models.imported import imported_models
from qmd.inference.records import Role

_OLLAMA = "ollama:"
_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_OLLAMA_LIBRARY = "registry.ollama.ai/library"
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_DEPTH = 3
"""Folders between LM Studio's folder and a file: publisher, model."""


class ImportSource(Struct, frozen=True):
    path: Path
    """A GGUF file, or a folder with safetensors."""
    address: str
    """Argument of `qmd models import`: a path, `ollama:NAME`, or the address in a configuration."""
    name: str


class FoundFile(ImportSource, frozen=True):
    """A GGUF file of another program."""

    owner: str
    """The program, as users call it."""
    size_bytes: int


class Importable(Struct, frozen=True):
    """A file of another program that can be imported, and its role."""

    file: FoundFile
    role: Role

    @property
    def command(self) -> str:
        """Command that imports the model."""
        return f"qmd models import {shlex.quote(self.file.address)}"

    @property
    def reason(self) -> str:
        """Text next to the command."""
        return f"take it over from {self.file.owner} ({self.file.size_bytes / 1_000_000:.0f} MB)"


def import_sources(source: str, models_dir: Path, home: Path, env: Mapping[str, str]) -> tuple[ImportSource, ...]:
    """Return the models that `source` means; none if it is no GGUF or safetensors: an archive, a folder of ONNX files.

    Raises:
        NotFoundError: There is no such file, or Ollama has no such model.
    """
    from qmd.plugins.models.formats.gguf import is_gguf
    from qmd.plugins.models.formats.safetensors import has_safetensors

    if source.strip().lower().startswith(_OLLAMA):
        found = find_ollama(source, home, env)
        if found is None:
            folder = ollama_folder(home, env)
            raise NotFoundError(f"Ollama has no model '{source.partition(':')[2]}' in '{folder}'", "see: ollama list")
        return (found,)
    path = expand_home(source)
    if not path.exists() and is_gguf_address(source):
        cached = find_cached_file(source, models_dir)
        if cached is None:
            raise NotFoundError(f"'{source}' is not on this machine", "fetch the file, then: qmd models import FILE")
        return (ImportSource(cached, source, model_name(cached)),)
    if not path.exists():
        raise NotFoundError(f"'{path}' does not exist", "see what lies here: qmd models list")
    if path.is_file():
        return (_source(path),) if is_gguf(path) or is_gguf_address(path.name) else ()
    if has_safetensors(path):
        return (ImportSource(path, str(path.resolve()), path.resolve().name),)
    return tuple(_source(file) for file in sorted(path.glob("*.gguf")) if is_gguf(file))


def importable_files(models_dir: Path, home: Path, env: Mapping[str, str]) -> tuple[Importable, ...]:
    """Return importable files of other programs that are not imported. Reads a few kilobytes of each."""
    files = find_files(models_dir, home, env)
    if not files:
        return ()
    from qmd.plugins.models.formats.gguf import read_head
    from qmd.plugins.models.formats.network_files import architecture_of, guess_role

    known = [model.source for model in imported_models(models_dir)]
    found: list[Importable] = []
    for file in files:
        alike = [source for source in known if source.size_bytes == file.size_bytes]
        try:
            path = str(file.path.resolve())
            # A hash takes a second for each gigabyte, so only possible copies of an imported file are hashed.
            if any(path == source.path for source in alike) or (
                alike and sha256_of(file.path) in {source.sha256 for source in alike}
            ):
                continue
            with reading(file.name):
                head = read_head(file.path)
                architecture_of(str(head.get("general.architecture", "")), file.name)
                found.append(Importable(file, guess_role(head, file.name)))
        except (ModelError, OSError):
            # Another architecture, or no model: a message would not help the user of a list.
            continue
    return tuple(found)


def _source(path: Path) -> ImportSource:
    return ImportSource(path, str(path.resolve()), model_name(path))


def find_files(models_dir: Path, home: Path, env: Mapping[str, str]) -> tuple[FoundFile, ...]:
    """Find the GGUF files in the folders of other programs.

    Args:
        models_dir: Folder of qmd, which on most systems is the folder of tobi/qmd as well.
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
    return Path(env.get("OLLAMA_MODELS") or home / ".ollama" / "models")


def find_ollama(address: str, home: Path, env: Mapping[str, str]) -> FoundFile | None:
    """Return the model of Ollama that `ollama:NAME[:TAG]` means; without a tag `latest`, or the only one."""
    wanted = address.lower()
    models = list(_ollama_models(ollama_folder(home, env)))
    exact = [model for model in models if model.address.lower() in (wanted, f"{wanted}:latest")]
    of_name = [model for model in models if model.address.lower().rpartition(":")[0] == wanted]
    return next(iter(exact), of_name[0] if len(of_name) == 1 else None)


def find_cached_file(address: str, models_dir: Path) -> Path | None:
    """Return the file that tobi/qmd has fetched for an address `hf:OWNER/REPOSITORY/FILE.gguf`, or None.

    node-llama-cpp, which fetches for it, names the file after owner and file.
    """
    parts = PurePosixPath(address.strip().partition(":")[2]).parts
    if len(parts) < 3:
        return None
    wanted = {f"hf_{parts[0]}_{parts[-1]}".lower(), parts[-1].lower()}
    return next((path for path in sorted(models_dir.glob("*.gguf")) if path.name.lower() in wanted), None)


def gguf_remedy(address: str, models_dir: Path) -> str:
    """Return the remedy for a GGUF model that is requested but not imported."""
    from qmd.plugins.models.formats.gguf import read_head
    from qmd.plugins.models.formats.network_files import SUPPORTED, architecture_of

    here = expand_home(address)
    file = here if here.is_file() else find_cached_file(address, models_dir)
    if file is None:
        return f"to use it: qmd models import FILE, which reads {SUPPORTED}; others: qmd models list --available"
    try:
        architecture_of(str(read_head(file).get("general.architecture", "")), file.name)
    except ModelError as exc:
        return exc.message if exc.hint is None else f"{exc.message}; {exc.hint}"
    return f"to use it: qmd models import {shlex.quote(str(file))}"


def model_name(path: Path) -> str:
    """Return the name of an imported file, without a downloader's prefix."""
    parts = path.stem.split("_", 2)
    return parts[2] if parts[0] == "hf" and len(parts) == 3 else path.stem


def _files(folder: Path, owner: str, depth: int) -> Iterator[FoundFile]:
    """Yield GGUF files in a folder and, down to `depth`, below it."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.name.lower().endswith(".gguf") and entry.is_file():
            yield FoundFile(path, str(path), model_name(path), owner, entry.stat().st_size)
        elif depth and entry.is_dir(follow_symlinks=False):
            yield from _files(path, owner, depth - 1)


def _ollama_models(folder: Path) -> Iterator[FoundFile]:
    """Yield models by the manifests of Ollama: `manifests/HOST/OWNER/NAME/TAG` names the blob that is the GGUF file."""
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
        # Its names are those of the makers' models; a converted model must not pass for another's.
        short = f"ollama-{name.rpartition('/')[2]}" + ("" if tag == "latest" else f"-{tag}")
        yield FoundFile(blob, f"{_OLLAMA}{name}:{tag}", short, "Ollama", size)
