"""Trust in a project's own `.qmd` configuration: commands, outside folders, models, links and contexts.

A checkout may contain a `.qmd/index.yml`. Its dangerous items are gated until the user trusts exactly that set; the
record contains a digest of the set, so a later change asks again. Each context has a digest of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from qmd.config.edits import locked_config_file
from qmd.config.paths import Locations
from qmd.config.project import TRUST_FILE, is_trusted_by_environment, linked_target, read_trust
from qmd.config.settings import Config
from qmd.escapes import one_line
from qmd.file_names import to_text
from qmd.files import PROJECT_FOLDER, sha256, write_atomically
from qmd.records import Collection
from qmd.times import time_text, utc_now

ORIGINAL_MODELS = frozenset(
    {
        "hf:ggml-org/embeddinggemma-300M-GGUF/embeddinggemma-300M-Q8_0.gguf",
        "hf:tobil/qmd-query-expansion-1.7B-gguf/qmd-query-expansion-1.7B-q4_k_m.gguf",
        "hf:ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF/qwen3-reranker-0.6b-q8_0.gguf",
    }
)
"""Written into every configuration by tobi/qmd on its first run."""

_DEFAULT_MODELS = frozenset({"auto", "built-in"}) | ORIGINAL_MODELS


class GatedItems(Struct, frozen=True):
    """Items that need the user's trust, each as (collection or model slot, value), sorted."""

    hooks: tuple[tuple[str, str], ...] = ()
    paths: tuple[tuple[str, str], ...] = ()
    """Collections that lie outside the project once symlinks are followed."""
    models: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """The template of the links that a click on a result opens, which may lead anywhere."""
    contexts: tuple[tuple[str, str], ...] = ()
    """Contexts by place. Text quotes those that are not trusted, so they alone are no reason to ask."""

    def __bool__(self) -> bool:
        return bool(self.hooks or self.paths or self.models or self.links)

    @property
    def digest(self) -> str:
        """Return a SHA-256 hex that changes with any item."""
        content = {"hooks": self.hooks, "paths": self.paths, "models": self.models}
        # Omitted when empty, so that trust from before links were gated stays valid.
        content |= {"links": self.links} if self.links else {}
        return sha256(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


def gated_items(config: Config, locations: Locations) -> GatedItems:
    """Return the gated items of a project-local configuration; empty for the user's own one."""
    if locations.project_root is None:
        return GatedItems()
    root = locations.project_root.resolve()
    resolved = {collection.name: collection.path.resolve() for collection in config.collections}
    return GatedItems(
        hooks=tuple(sorted((c.name, c.update_command) for c in config.collections if c.update_command)),
        paths=tuple(sorted((name, to_text(path)) for name, path in resolved.items() if not path.is_relative_to(root))),
        models=tuple(sorted(item for item in config.models.items() if item[1] not in _DEFAULT_MODELS)),
        links=(("editor_uri", config.editor_uri),) if config.editor_uri else (),
        contexts=list_contexts(config.collections, config.global_context),
    )


def list_contexts(collections: Iterable[Collection], global_context: str | None) -> tuple[tuple[str, str], ...]:
    """Return every context after its place."""
    notes = [(f"qmd://{one.name}/{key.strip('/')}", note) for one in collections for key, note in one.context.items()]
    return (*([("global_context", global_context)] if global_context else []), *notes)


def is_trusted(items: GatedItems, locations: Locations, environ: Mapping[str, str]) -> bool:
    """Return whether nothing is gated, the environment trusts projects, or the user trusted exactly these items."""
    if not items or is_trusted_by_environment(environ):
        return True
    return read_trust(locations.config_dir).get(_key(locations), {}).get("hooks") == items.digest


def trusts_contexts(contexts: Iterable[tuple[str, str]], locations: Locations, environ: Mapping[str, str]) -> bool:
    """Return whether the environment trusts projects, or the user trusted each of these contexts in its place."""
    lines = str(read_trust(locations.config_dir).get(_key(locations), {}).get("contexts")).splitlines()
    known = {line.partition(" ")[0] for line in lines}
    return is_trusted_by_environment(environ) or all(_context_digest(one) in known for one in contexts)


def project_link(locations: Locations) -> tuple[Path, Path] | None:
    """Return a project's `.qmd` that is a link, and its target; None for a folder, and without a project."""
    folder = locations.project_root and locations.project_root / PROJECT_FOLDER
    target = linked_target(folder) if folder else None
    return (folder, target) if folder and target else None


def trusted_part(config: Config, locations: Locations, environ: Mapping[str, str]) -> Config:
    """Return `config` without gated, untrusted items: folders outside the project, commands, models, links."""
    items = gated_items(config, locations)
    if is_trusted(items, locations, environ):
        return config
    outside = {name for name, _ in items.paths}
    return replace(
        config,
        collections=tuple(replace(c, update_command=None) for c in config.collections if c.name not in outside),
        models={slot: model for slot, model in config.models.items() if (slot, model) not in items.models},
        editor_uri=None,
    )


def record_trust(items: GatedItems, locations: Locations, parts: Iterable[str] = ("hooks", "contexts")) -> None:
    """Record that the user trusts the contexts, all other items, or both, and, for a link, its target."""
    with locked_config_file(_file(locations)):
        records = read_trust(locations.config_dir)
        link = project_link(locations)
        folder = {"folder": to_text(link[1])} if link else {}
        lines = (f"{_context_digest(one)} {one_line(one[0], 80)}: {one_line(one[1])}" for one in items.contexts)
        digests = {"hooks": items.digest, "contexts": "\n".join(lines)}
        record = records.get(_key(locations), {}) | {part: digests[part] for part in parts} | folder
        record["trustedAt"] = time_text(utc_now())
        records[_key(locations)] = {name: value for name, value in record.items() if value}
        _save(records, locations)


def revoke_trust(locations: Locations) -> bool:
    """Remove the trust in this configuration; return False if there was none."""
    with locked_config_file(_file(locations)):
        records = read_trust(locations.config_dir)
        if records.pop(_key(locations), None) is None:
            return False
        _save(records, locations)
    return True


def _context_digest(context: tuple[str, str]) -> str:
    return sha256(json.dumps(context).encode())


def _key(locations: Locations) -> str:
    if locations.project_root is None:
        return to_text(locations.config_file)
    return to_text(locations.project_root / PROJECT_FOLDER / locations.config_file.name)


def _file(locations: Locations) -> Path:
    return locations.config_dir / TRUST_FILE


def _save(records: Mapping[str, Mapping[str, str]], locations: Locations) -> None:
    write_atomically(_file(locations), json.dumps(records, indent=2, ensure_ascii=False) + "\n")
