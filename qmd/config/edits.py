"""Changes to `index.yml` that keep its comments, order and quoting, written in one atomic step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from qmd.config.paths import Locations
from qmd.config.settings import MAX_BYTES, Config, config_text, load_config
from qmd.errors import BusyError, ConfigError, NotFoundError, UsageError
from qmd.file_names import to_text
from qmd.files import exclusive_lock, private_mode, resolve_own_file
from qmd.masks import DEFAULT_PATTERN

YamlMap = MutableMapping[str, Any]
"""A YAML mapping in memory; its values have no static type."""

Change = Callable[[YamlMap], None]
"""An edit of the whole configuration, in place."""

Target = Locations | Callable[[Change], Config]
"""The configuration file of an index, or a function that edits a configuration stored elsewhere."""

_P = ParamSpec("_P")

_LOCK_WAIT_S = 10.0
"""An edit takes milliseconds, so a process that locks the file longer hangs."""


def edit_config(locations: Locations, change: Change) -> Config:
    """Apply `change` to the parsed file, write it back, and return the new configuration.

    Creates a missing file and leaves the file alone if `change` alters nothing. Edits of several processes run one
    after another, so none is lost.

    Raises:
        BusyError: Another process keeps the file locked.
        ConfigError: The file cannot be parsed or written.
    """
    path = locations.config_file

    def edit(raw: bytes | None) -> bytes | None:
        load_config(locations)  # Refuse a damaged file before changing anything.
        from ruamel.yaml import YAML
        from ruamel.yaml.comments import CommentedMap

        yaml = YAML()
        yaml.preserve_quotes = True
        yaml.width = 100_000  # Folding would split a note that the user typed as one line.
        yaml.indent(mapping=2, sequence=4, offset=2)
        text = config_text(raw or b"")
        root = yaml.load(text if text.strip() else "")  # a tab alone is not YAML
        root = CommentedMap() if root is None else root
        before = _dump(yaml, root)
        change(root)
        after = _dump(yaml, root)
        return raw if after == before else after.encode()

    with locked_config_file(path):
        from qmd.external_files import edit_file

        target = resolve_own_file(path)
        edit_file(target, edit, MAX_BYTES, private_mode(path, target))
        return load_config(locations)


@contextmanager
def locked_config_file(path: Path) -> Iterator[None]:
    """Lock a configuration file from reading it to writing it back.

    Raises:
        BusyError: Another process keeps it locked for too long.
        ConfigError: It cannot be written.
    """
    with ExitStack() as stack:
        try:
            # Next to the file itself: two symlinks to one file must share its lock.
            target = resolve_own_file(path)
            is_locked = stack.enter_context(exclusive_lock(target.with_name(f".{target.name}.lock"), _LOCK_WAIT_S))
        except OSError:
            # A folder that rejects a lock file rejects any file, which matters only if one is written.
            is_locked = True
        if not is_locked:
            raise BusyError(f"'{path}' is being changed by another process", "wait for the other qmd, then try again")
        try:
            yield
        except OSError as exc:
            raise ConfigError(f"cannot write '{path}': {exc.strerror}", "check the permissions of that folder") from exc


def _dump(yaml: Any, root: YamlMap) -> str:
    buffer = StringIO()
    yaml.dump(root, buffer)
    return buffer.getvalue()


def _edit(change: Callable[Concatenate[YamlMap, _P], None]) -> Callable[Concatenate[Target, _P], Config]:
    """Turn a change of the parsed file into an edit of a target that returns the new configuration."""

    @wraps(change)
    def edit(target: Target, /, *args: _P.args, **kwargs: _P.kwargs) -> Config:
        def apply(root: YamlMap) -> None:
            change(root, *args, **kwargs)

        return edit_config(target, apply) if isinstance(target, Locations) else target(apply)

    return edit


@_edit
def add_collection(
    root: YamlMap, name: str, path: Path, pattern: str = DEFAULT_PATTERN, settings: Mapping[str, object] | None = None
) -> None:
    """Add a collection with these and more settings; other keys of an existing entry with that name and folder stay.

    Raises:
        UsageError: The name has another folder, perhaps set a moment ago by another process.
    """
    entry = _child(_child(root, "collections"), name)
    if entry.get("path") not in (None, to_text(path)):
        raise UsageError(f"Collection already exists: {name}", "choose another with --name")
    for key, value in {"path": to_text(path), "pattern": pattern, **(settings or {})}.items():
        _put(entry, key, value)


@_edit
def remove_collection(root: YamlMap, name: str) -> None:
    """Remove a collection's entry, if any."""
    _child(root, "collections").pop(name, None)


@_edit
def set_collection(root: YamlMap, name: str, settings: Mapping[str, object], new_name: str | None = None) -> None:
    """Set keys of a collection's entry, where None removes one, or its name; a renamed entry moves to the end."""
    for key, value in settings.items():
        _put(_entry(root, name), key, value)
    collections = _child(root, "collections")
    if new_name is not None and name in collections:
        collections[new_name] = collections.pop(name)


@_edit
def set_global_context(root: YamlMap, text: str | None) -> None:
    """Set or clear the note that applies to every document."""
    _put(root, "global_context", text or None)


@_edit
def set_context(root: YamlMap, name: str, prefix: str, text: str) -> None:
    """Attach a note to a path prefix; reuse an entry that spells the prefix with another slash."""
    context = _child(_entry(root, name), "context")
    context[_existing_key(context, prefix) or prefix] = text


@_edit
def remove_context(root: YamlMap, name: str, prefix: str) -> None:
    """Remove the note of a path prefix, regardless of its slashes.

    Raises:
        NotFoundError: There is no such note.
    """
    entry = _entry(root, name)
    context = _child(entry, "context")
    if (key := _existing_key(context, prefix)) is None:
        raise NotFoundError(f"No context found for: qmd://{name}/{prefix.strip('/')}", "see: qmd context list")
    del context[key]
    if not context:
        del entry["context"]


def _existing_key(context: YamlMap, prefix: str) -> str | None:
    return next((key for key in context if str(key).strip("/") == prefix.strip("/")), None)


def _entry(root: YamlMap, name: str) -> YamlMap:
    collections = _child(root, "collections")
    if name not in collections:
        raise NotFoundError(f"Collection not found: {name}", "see: qmd collection list")
    return _child(collections, name)


def _child(parent: YamlMap, key: str) -> YamlMap:
    """Return the mapping under `key`, created if absent; an empty `{}` becomes a block, for one entry per line."""
    if not parent.get(key):
        from ruamel.yaml.comments import CommentedMap

        parent[key] = CommentedMap()
    child: YamlMap = parent[key]
    return child


def _put(mapping: YamlMap, key: str, value: object | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
