"""`index.yml` as records. The YAML reader is imported only when a file must be parsed."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from typing import cast

from msgspec import Struct, field

from qmd.config.paths import Locations
from qmd.errors import ConfigError, collection_not_found
from qmd.file_names import escape_bytes, to_disk
from qmd.files import read_regular_file, sha256
from qmd.masks import UNWRITTEN_PATTERN
from qmd.records import Collection

MAX_BYTES = 1_000_000
_REPAIR_HINT = "correct the file, or move it away and start again"
AUTO_UPDATE_KEY = "auto_update"
AUTO_EMBED_KEY = "auto_embed"
MODEL_OPTIONS = (
    *(f"embed.{name}" for name in ("query_prompt", "document_prompt", "dim", "max_tokens", "threads")),
    *("rerank.context", "generate.context", "generate.max_tokens"),
    *("rerank_form", "generate_form", "threads", "gpu_layers"),
)
"""Options of the model before the dot, or of all models."""
SAMPLING_KEY = "sampling"
EDITOR_KEYS = ("editor_uri", "editor_uri_template", "editorUri", "editor-uri")


class Config(Struct, frozen=True):
    """The user's settings for one index. `digest` identifies them (see `config_digest`)."""

    collections: tuple[Collection, ...] = ()
    global_context: str | None = None
    editor_uri: str | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    """Slot (`embed`, `generate`, `rerank`) → model reference as written; also the options of `MODEL_OPTIONS`."""
    sampling: Mapping[str, object] | None = None
    """Sampling settings of the expansion model; None if the file has none."""
    auto_update: bool = True
    """True if a search updates changed files first."""
    auto_embed: bool = True
    """True if servers compute missing vectors while idle."""
    digest: str = ""
    writable: tuple[str, ...] = ()
    """Names of the collections to which agents may add; none of a project's, which may be untrusted."""

    def collection(self, name: str) -> Collection | None:
        """Return the collection with a name, or None."""
        return next((collection for collection in self.collections if collection.name == name), None)

    def require(self, name: str) -> Collection:
        """Return the collection with a name.

        Raises:
            NotFoundError: There is none; the hint names the nearest.
        """
        if (collection := self.collection(name)) is None:
            raise collection_not_found(name, [known.name for known in self.collections])
        return collection


def config_digest(locations: Locations) -> str:
    """Return the SHA-256 hex of the file's bytes and the folders that its paths resolve against.

    Equal to the digest mirrored in the database if nothing changed since, so the YAML need not be parsed. A missing
    file counts as an empty one.
    """
    return _digest(_read(locations), locations)


def needs_full_config(locations: Locations) -> bool:
    """Return whether the file has settings that the database does not mirror (models, sampling, editor link)."""
    raw = _read(locations)
    return any(key.encode() in raw for key in ("models", SAMPLING_KEY, *EDITOR_KEYS))


def names_auto_update(locations: Locations) -> bool:
    """Return whether the file may set `auto_update`; if not, it need not be parsed for that."""
    return AUTO_UPDATE_KEY.encode() in _read(locations)


def load_config(locations: Locations) -> Config:
    """Load the configuration; empty if the file is missing or empty.

    Raises:
        ConfigError: The file cannot be read or parsed, or has a value of the wrong kind.
    """
    raw = _read(locations)
    return parse_config(_parse(raw, locations), locations, _digest(raw, locations))


def parse_config(content: Mapping[object, object], locations: Locations, digest: str) -> Config:
    """Read the configuration from a mapping with the shape of `index.yml`.

    Raises:
        ConfigError: It has a value of the wrong kind; the message names `locations.config_file`.
    """
    collections = _mapping(content.get("collections"), "collections", locations)
    return Config(
        collections=tuple(_collection(str(name), value, locations) for name, value in collections.items()),
        global_context=_text(content.get("global_context"), "global_context", locations),
        editor_uri=next((str(content[key]) for key in EDITOR_KEYS if content.get(key)), None),
        models=_models(_mapping(content.get("models"), "models", locations), locations),
        sampling=_sampling(content.get(SAMPLING_KEY), locations),
        auto_update=_switch(content.get(AUTO_UPDATE_KEY), AUTO_UPDATE_KEY, locations),
        auto_embed=_switch(content.get(AUTO_EMBED_KEY), AUTO_EMBED_KEY, locations),
        digest=digest,
        writable=tuple(str(name) for name, one in collections.items() if _takes_notes(str(name), one, locations)),
    )


def _read(locations: Locations) -> bytes:
    try:
        raw = read_regular_file(locations.config_file, MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as exc:
        raise ConfigError(f"cannot read '{locations.config_file}': {exc.strerror}", _REPAIR_HINT) from exc
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"'{locations.config_file}' has more than {MAX_BYTES:,} bytes", _REPAIR_HINT)
    return raw


def config_text(raw: bytes) -> str:
    """Decode a configuration file; a byte that is not UTF-8 may be part of a file's name."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return raw.decode("utf-16", "replace")
    return escape_bytes(raw.decode("utf-8", "surrogateescape")).removeprefix("\ufeff")


def _digest(raw: bytes, locations: Locations) -> str:
    return sha256(b"\0".join((raw, os.fsencode(locations.base), os.fsencode(locations.home))))


def _parse(raw: bytes, locations: Locations) -> Mapping[object, object]:
    if not raw.strip():
        return {}
    from qmd.bounded_yaml import UnreadableYamlError, load_yaml

    try:
        content = load_yaml(config_text(raw))
    except UnreadableYamlError as exc:
        raise ConfigError(f"failed to parse '{locations.config_file}': {exc}", _REPAIR_HINT) from exc
    return _mapping(content, "the whole file", locations)


def _mapping(value: object, where: str, locations: Locations) -> Mapping[object, object]:
    if not isinstance(value, Mapping | None):
        raise _value_error(where, "a mapping", value, locations)
    return cast("Mapping[object, object]", value or {})  # YAML gives no static types


def _text(value: object, where: str, locations: Locations) -> str | None:
    if value is not None and not isinstance(value, str | int | float):
        raise _value_error(where, "text", value, locations)
    return None if value is None or value == "" else str(value)


def _models(slots: Mapping[object, object], locations: Locations) -> Mapping[str, str]:
    """Return each slot's model and the options of `MODEL_OPTIONS`."""
    models = {str(slot): _model(one, f"models.{slot}", locations) for slot, one in slots.items() if one}
    for option in MODEL_OPTIONS:
        slot, _, name = option.rpartition(".")
        of = slots.get(slot) if slot else slots
        value = of.get(name) if isinstance(of, Mapping) else None
        if value is not None:
            # An empty prompt means no prompt.
            models[option] = _text(value, f"models.{option}", locations) or ""
    return models


def _model(value: object, where: str, locations: Locations) -> str:
    """Return a model as one word.

    A mapping of `model` and, for a server, `url` and optionally `api` becomes `api+url#model`.
    """
    if not isinstance(value, Mapping):
        return str(value)
    url, model, api = (_text(value.get(key), f"{key} of {where}", locations) for key in ("url", "model", "api"))
    if not model and not url and not api and where != "models.embed":
        return "auto"
    if not model:
        raise _value_error(where, "a name, or a mapping with 'model' (and 'url' for a server)", dict(value), locations)
    return f"{f'{api}+' if api else ''}{url}#{model}" if url else model


def _sampling(value: object, locations: Locations) -> Mapping[str, object] | None:
    """Return the sampling settings as written; each must be one of its plug-in's."""
    written = {str(key): item for key, item in _mapping(value, SAMPLING_KEY, locations).items()}
    if not written:
        return None
    from qmd.plugins import hooks

    for key, item in written.items():
        if key not in hooks.SAMPLING_NAMES:
            message = f"{SAMPLING_KEY} in '{locations.config_file}' has no setting '{key}'"
            raise ConfigError(message, f"it has {', '.join(hooks.SAMPLING_NAMES)}")
        if (expected := hooks.expected_sampling(key, item)) is not None:
            raise _value_error(f"{SAMPLING_KEY}.{key}", expected, item, locations)
    return written


def _value_error(where: str, expected: str, value: object, locations: Locations) -> ConfigError:
    message = f"{where} in '{locations.config_file}' must be {expected}, not {value!r}"
    return ConfigError(message, "edit the file, then run this again")


def _collection(name: str, value: object, locations: Locations) -> Collection:
    where = f"collection '{name}'"
    entry = _mapping(value, where, locations)
    path = _text(entry.get("path"), f"path of {where}", locations)
    if path is None:
        raise ConfigError(f"{where} in '{locations.config_file}' has no path", "add `path: /some/folder` to it")
    context = _mapping(entry.get("context"), f"context of {where}", locations)
    return Collection(
        name=name,
        path=locations.expand(to_disk(path)),
        pattern=_text(entry.get("pattern"), f"pattern of {where}", locations) or UNWRITTEN_PATTERN,
        ignore=_globs(entry.get("ignore"), f"ignore of {where}", locations),
        context={str(prefix): str(note) for prefix, note in context.items() if note},
        update_command=_text(entry.get("update"), f"update of {where}", locations),
        include_by_default=_switch(entry.get("includeByDefault"), f"includeByDefault of {where}", locations),
        gitignore=_switch(entry.get("gitignore"), f"gitignore of {where}", locations),
    )


def _takes_notes(name: str, value: object, locations: Locations) -> bool:
    entry, where = _mapping(value, name, locations), f"agents_may_write of collection '{name}'"
    return locations.project_root is None and _switch(entry.get("agents_may_write") or False, where, locations)


def _switch(value: object, where: str, locations: Locations) -> bool:
    """Read a setting that is on by default."""
    if not isinstance(value, bool | None):
        raise _value_error(where, "true or false", value, locations)
    return value is not False


def _globs(value: object, where: str, locations: Locations) -> tuple[str, ...]:
    if value is not None and not isinstance(value, str | list):
        raise _value_error(where, "a list of globs", value, locations)
    return (value,) if isinstance(value, str) else tuple(str(glob) for glob in value or ())
