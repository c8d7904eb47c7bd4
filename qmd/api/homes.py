"""The three places where a store's configuration may live: its YAML file, a mapping of the caller, the index itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

from qmd.config.paths import Locations
from qmd.config.settings import Config, load_config, parse_config
from qmd.errors import BusyError, NotFoundError

if TYPE_CHECKING:
    from qmd.config.edits import Change, Target
    from qmd.store import IndexReader, IndexWriter

_LOG = logging.getLogger("qmd")


class ConfigHome(Protocol):
    """Reads and edits a configuration, and opens the index with its copy of it up to date."""

    def load(self) -> Config:
        """The configuration as far as it is trusted."""
        ...

    @property
    def target(self) -> Target:
        """What the functions of `qmd.config.edits` change."""
        ...

    def open_reader(self) -> IndexReader: ...
    def open_writer(self) -> IndexWriter: ...


class FileHome:
    """`index.yml`: edits are written to the file and keep its comments."""

    def __init__(self, locations: Locations, environ: Mapping[str, str]) -> None:
        self._locations = locations
        self._environ = environ

    @property
    def target(self) -> Target:
        """The file."""
        return self._locations

    def load(self) -> Config:
        """The file's content, read anew each time; without what an untrusted project's file may not decide."""
        config = load_config(self._locations)
        if self._locations.project_root is None:
            return config
        from qmd.config.trust import gated_items, is_trusted, trusted_part

        items = gated_items(config, self._locations)
        if not is_trusted(items, self._locations, self._environ):
            _LOG.warning("parts of '%s' are not trusted and not used; see: qmd trust", self._locations.config_file)
        return trusted_part(config, self._locations, self._environ)

    def open_reader(self) -> IndexReader:
        """The index, after taking over the file if that was edited."""
        from qmd.workspace import open_current_reader

        return open_current_reader(self._locations, self._environ, _LOG.warning)

    def open_writer(self) -> IndexWriter:
        """The index, made when missing."""
        from qmd.workspace import open_current_writer

        return open_current_writer(self._locations, self.load(), self._environ, _LOG.warning)


class MappingHome:
    """A mapping given by the caller: edits change a copy of it in memory."""

    def __init__(self, content: Mapping[str, Any], locations: Locations) -> None:
        self._content = deepcopy(dict(content))
        self._locations = locations

    @property
    def target(self) -> Target:
        """A function that edits the mapping."""
        return self._edit

    def load(self) -> Config:
        """The mapping as records."""
        return _parse(self._content, self._locations)

    def open_reader(self) -> IndexReader:
        """The index, holding the mapping's collections; others in it are searched only when they are named."""
        from qmd.store import open_reader, open_writer
        from qmd.workspace import MIRROR_TIMEOUT_MS, with_the_rest

        reader = open_reader(self._locations.database)
        config = self.load()
        if reader.config_hash() == config.digest:
            return reader
        collections = with_the_rest(config.collections, reader.collections())
        reader.close()
        try:
            with open_writer(self._locations.database, busy_timeout_ms=MIRROR_TIMEOUT_MS) as writer:
                writer.mirror_config(collections, config.global_context, config.digest)
        except BusyError as exc:
            _LOG.warning("the index still has its old settings: %s", exc.message)
        return open_reader(self._locations.database)

    def open_writer(self) -> IndexWriter:
        """The index, made when missing, without the documents of collections that are not in the mapping."""
        return _mirrored_writer(self._locations, self.load)

    def _edit(self, change: Change) -> Config:
        change(self._content)
        return self.load()


class IndexHome:
    """The copy in the index, where there is no other: edits change it there."""

    def __init__(self, locations: Locations) -> None:
        self._locations = locations

    @property
    def target(self) -> Target:
        """A function that edits the copy."""
        return self._edit

    def load(self) -> Config:
        """What the index holds; empty before there is one."""
        return _parse(self._content(), self._locations)

    def open_reader(self) -> IndexReader:
        """The index as it is."""
        from qmd.store import open_reader

        return open_reader(self._locations.database)

    def open_writer(self) -> IndexWriter:
        """The index, made when missing."""
        from qmd.workspace import open_or_make

        return open_or_make(self._locations, _LOG.warning)

    def _edit(self, change: Change) -> Config:
        content = self._content()
        change(content)
        config = _parse(content, self._locations)
        _mirrored_writer(self._locations, lambda: config).close()
        return config

    def _content(self) -> dict[str, Any]:
        try:
            reader = self.open_reader()
        except NotFoundError:
            return {}
        with reader:
            content: dict[str, Any] = {
                "collections": {
                    one.name: {
                        "path": str(one.path),
                        "pattern": one.pattern,
                        "ignore": list(one.ignore),
                        "context": dict(one.context),
                        "update": one.update_command,
                        "includeByDefault": one.include_by_default,
                    }
                    for one in reader.collections()
                }
            }
            note = reader.global_context()
        return {**content, "global_context": note} if note else content


def _mirrored_writer(locations: Locations, load: Callable[[], Config]) -> IndexWriter:
    from qmd.workspace import mirror, open_or_make

    config = load()
    writer = open_or_make(locations, _LOG.warning)
    try:
        mirror(writer, config, config)
    except BaseException:
        writer.close()
        raise
    return writer


def _parse(content: Mapping[str, Any], locations: Locations) -> Config:
    import hashlib

    text = json.dumps([content, str(locations.base)], sort_keys=True, default=str)
    return parse_config(content, locations, hashlib.sha256(text.encode()).hexdigest())  # type: ignore[arg-type]
