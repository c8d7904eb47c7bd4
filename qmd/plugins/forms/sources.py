"""What `qmd models import` is asked for: a file, a folder, a model of Ollama or an address, as files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from qmd.config.paths import expand_home
from qmd.errors import ModelError, NotFoundError
from qmd.foreign import reading
from qmd.inference.models.catalogue import is_gguf_address
from qmd.inference.models.imported import imported_models
from qmd.inference.records import Role
from qmd.plugins.forms.elsewhere import (
    FoundFile,
    cached_file_of,
    find_files,
    find_ollama,
    is_ollama_address,
    model_name,
    ollama_folder,
)
from qmd.plugins.forms.networks import architecture_of, guess_role
from qmd.plugins.forms.weights_files.gguf import is_gguf, read_head
from qmd.plugins.forms.weights_files.safetensors import has_safetensors


class ImportSource(Struct, frozen=True):
    """One model to import."""

    path: Path
    """A GGUF file, or a folder with safetensors."""
    address: str
    name: str


class Importable(Struct, frozen=True):
    """A file of another program that can be imported, and what for."""

    file: FoundFile
    role: Role

    @property
    def command(self) -> str:
        """What takes the model over."""
        return f"qmd models import {shlex.quote(self.file.address)}"

    @property
    def reason(self) -> str:
        """What is said beside the command."""
        return f"take it over from {self.file.owner} ({self.file.size_bytes / 1_000_000:.0f} MB)"


def import_sources(asked: str, models_dir: Path, home: Path, env: Mapping[str, str]) -> tuple[ImportSource, ...]:
    """The models that `asked` means; none where it is no GGUF or safetensors: an archive, a folder of ONNX files.

    Raises:
        NotFoundError: There is no such file, or Ollama has no such model.
    """
    if is_ollama_address(asked):
        found = find_ollama(asked, home, env)
        if found is None:
            folder = ollama_folder(home, env)
            raise NotFoundError(f"Ollama has no model '{asked.partition(':')[2]}' in '{folder}'", "see: ollama list")
        return (ImportSource(found.path, found.address, found.name),)
    path = expand_home(asked)
    if not path.exists() and is_gguf_address(asked):
        cached = cached_file_of(asked, models_dir)
        if cached is None:
            raise NotFoundError(f"'{asked}' is not on this machine", "fetch the file, then: qmd models import FILE")
        return (ImportSource(cached, asked, model_name(cached)),)
    if not path.exists():
        raise NotFoundError(f"'{path}' does not exist", "see what lies here: qmd models list")
    if path.is_file():
        return (_source(path),) if is_gguf(path) else ()
    if has_safetensors(path):
        return (ImportSource(path, str(path.resolve()), path.resolve().name),)
    return tuple(_source(file) for file in sorted(path.glob("*.gguf")) if is_gguf(file))


def importable_files(models_dir: Path, home: Path, env: Mapping[str, str]) -> tuple[Importable, ...]:
    """Files of other programs that can be imported and have not been. Of each the head is read, a few kilobytes."""
    held = {model.source.path for model in imported_models(models_dir)}
    found: list[Importable] = []
    for file in find_files(models_dir, home, env):
        if str(file.path.resolve()) in held:
            continue
        try:
            with reading(file.name):
                head = read_head(file.path)
                architecture_of(str(head.get("general.architecture", "")), file.name)
                found.append(Importable(file, guess_role(head, file.name)))
        except ModelError:
            # Another architecture, or no model: nothing that could be said helps who lists models.
            continue
    return tuple(found)


def _source(path: Path) -> ImportSource:
    return ImportSource(path, str(path.resolve()), model_name(path))
