"""Configurations of an index in its three places: a YAML file, a mapping of the caller, the index itself."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from qmd.app.notices import Notices
from qmd.config.paths import Locations
from qmd.config.settings import Config, config_digest, load_config, names_auto_update, needs_full_config, parse_config
from qmd.errors import BusyError, NotFoundError, StoreError
from qmd.escapes import LONG_CHARS, one_line
from qmd.file_names import to_text
from qmd.files import PROJECT_FOLDER, sha256

if TYPE_CHECKING:
    from qmd.app.records import DocumentText, SkippedDocument
    from qmd.config.edits import Change
    from qmd.config.trust import GatedItems
    from qmd.records import Collection, Hit
    from qmd.store.base import IndexReader, IndexWriter

_Part = TypeVar("_Part", bound="Hit | DocumentText | SkippedDocument")

MIRROR_TIMEOUT_MS = 250
"""Longest wait of a search to refresh the index's copy of the configuration; then it uses the old copy."""


class Configuration(ABC):
    """A configuration to read and edit, which opens the index with an up-to-date copy of it.

    Args:
        locations: The index.
        notices: Gets messages for the user.
    """

    is_in_index = False
    """True if there is nothing but the index's own copy."""
    _environ: Mapping[str, str] = os.environ

    def __init__(self, locations: Locations, notices: Notices) -> None:
        self.locations = locations
        self.notices = notices

    @abstractmethod
    def written(self) -> Config:
        """Return the configuration as written."""

    @abstractmethod
    def edit(self, change: Change) -> Config:
        """Apply one of the edits of `qmd.config.edits`, and return the new configuration."""

    def load(self) -> Config:
        """Return the trusted part of the configuration."""
        return self.written()

    def settings(self) -> Config:
        """Return the part of it that a search needs: the models and the editor."""
        return self.load()

    def trusted(self) -> tuple[Collection, ...]:
        """Return the collections, none if part of the configuration is not trusted; never ask the user."""
        return self.load().collections

    def auto_update(self) -> bool:
        """Return whether a search updates changed files first."""
        return self.load().auto_update

    def auto_embed(self) -> bool:
        """Return whether an idle server computes missing vectors; False for an untrusted configuration."""
        return self.load().auto_embed

    def trusts_contexts(self, reader: IndexReader) -> bool:
        """Return whether the contexts in an index, which answers contain, are the user's own or trusted ones."""
        places, folder = self.locations, self.locations.database.resolve().parent
        if places.project_root is None:
            if folder.name != PROJECT_FOLDER or self._digest() == (reader.config_hash() or ""):
                return True
            # The index of a project, named by its path.
            places = replace(places, config_file=folder / "index.yml", project_root=folder.parent)
        from qmd.config.trust import list_contexts, trusts_contexts

        return trusts_contexts(list_contexts(reader.collections(), reader.global_context()), places, self._environ)

    def quote_contexts(self, reader: IndexReader, parts: Sequence[_Part]) -> tuple[_Part, ...]:
        """Return parts of an answer, with the contexts of an untrusted project as quotations of one line."""
        if not any(map(attrgetter("context"), parts)) or self.trusts_contexts(reader):
            return tuple(parts)
        lead = "context by the project's author: "
        lines = [one.context and one_line(lead + one.context[:LONG_CHARS]) for one in parts]
        return tuple(replace(one, context=q, written_context=one.context) for one, q in zip(parts, lines, strict=True))

    def open_reader(self) -> IndexReader:
        """Open the index, and update its copy of the configuration if that was edited since.

        Others use an index at an address as well, so no search changes it.

        Raises:
            NotFoundError: There is no index yet.
            StoreError: The index is damaged or foreign.
        """
        from qmd.store.opening import open_reader, open_writer

        places = self.locations
        reader = open_reader(places.database, places.address)
        if places.address is not None or self._digest() in (None, reader.config_hash()):
            return reader
        reader.close()
        from qmd.app.mirroring import with_unchanged

        try:
            # Only a writing command deletes documents; until then those of a removed collection are out of scope.
            with open_writer(places.database, busy_timeout_ms=MIRROR_TIMEOUT_MS) as writer, writer.transaction():
                config = self._allowed()
                collections = with_unchanged(config.collections, writer.collections())
                writer.mirror_config(collections, config.global_context, config.digest)
        except (BusyError, StoreError) as exc:
            self.notices.warn(f"{self._stale}: {exc.message}")
        return open_reader(places.database, places.address)

    def open_writer(self) -> IndexWriter:
        """Open the index for writing, creating it if missing, with exactly the collections of the configuration.

        At an address it keeps the collections of other machines as well. If another program has a file at the place,
        the index is next to it.
        """
        from qmd.app.mirroring import mirror, open_or_make

        writer = open_or_make(self.locations, self.notices.say)
        try:
            if self._digest() is not None:
                # Another process may have added a collection with documents since this one read the configuration. It
                # writes the file before the index, so a collection that the file lacks under the index's write lock was
                # removed.
                with writer.transaction():
                    mirror(writer, self._allowed(), self.written(), is_shared=self.locations.address is not None)
        except BaseException:
            writer.close()
            raise
        return writer

    _stale = "the index still has its old settings"
    """The warning for a failed update of the index's copy."""

    @abstractmethod
    def _digest(self) -> str | None:
        """Return a digest of the current configuration; None if there is only the index's own copy."""

    def _allowed(self) -> Config:
        """Return the part of the current configuration that the index may have; never ask the user."""
        return self.written()


class FileConfiguration(Configuration):
    """Configuration in `index.yml`: edits are written to the file and keep its comments.

    Args:
        locations: The index.
        environ: May mark projects as trusted.
        notices: Asks for trust, and gets messages on items that are not used without it.
        trusts_edits: Whether edits made through qmd are trusted: a person at the command line knows what they typed.
    """

    def __init__(
        self, locations: Locations, environ: Mapping[str, str], notices: Notices, *, trusts_edits: bool = False
    ) -> None:
        super().__init__(locations, notices)
        self._environ = environ
        self._trusts_edits = trusts_edits
        self._refused: GatedItems | None = None
        self._parsed: Config | None = None
        self._stale = f"'{locations.config_file.name}' changed, but this run still uses its old settings"

    def written(self) -> Config:
        """Read the file, or if there is none, the copy in the index of that place."""
        from qmd.store.opening import index_exists, open_reader

        places = self.locations
        if places.config_file.exists() or not index_exists(places.database, places.address):
            return self._read()
        with open_reader(places.database, places.address) as reader:
            collections, note = tuple(reader.collections()), reader.global_context()
        return Config(collections, note, digest=config_digest(self.locations))

    def load(self) -> Config:
        """Return the file's current content without the untrusted items of a project's file."""
        config = self._read()
        if (items := self._untrusted(config)) is None:
            return config
        if items != self._refused:
            if self.notices.grants_trust(items):
                from qmd.config.trust import record_trust

                record_trust(items, self.locations)
                return config
            self._refused = items
            for line in _refusals(items):
                self.notices.warn(line)
        return self._allowed()

    def settings(self) -> Config:
        """Return an empty configuration if the file has neither, without parsing it."""
        return self.load() if needs_full_config(self.locations) else Config()

    def trusted(self) -> tuple[Collection, ...]:
        config = self._read()
        return config.collections if self._untrusted(config) is None else ()

    def auto_update(self) -> bool:
        return not names_auto_update(self.locations) or self._read().auto_update

    def auto_embed(self) -> bool:
        return self._read().auto_embed and bool(self.trusted())

    def edit(self, change: Change) -> Config:
        """Edit the file. A person's edit of commands or contexts is trusted if those before it were, or were none."""
        from qmd.config.edits import edit_config
        from qmd.config.trust import gated_items, record_trust, trusts_contexts

        places, before = self.locations, self._read()
        items = gated_items(config := edit_config(places, change), places)
        parts = ["hooks"] if items and self._untrusted(before) is None else []
        if items.contexts and trusts_contexts(gated_items(before, places).contexts, places, self._environ):
            parts.append("contexts")
        if parts and self._trusts_edits:
            record_trust(items, places, parts)
        return config

    def _read(self) -> Config:
        """Return the file's content, parsed only if it has changed."""
        if self._parsed is None or self._parsed.digest != config_digest(self.locations):
            self._parsed = load_config(self.locations)
        return self._parsed

    def _untrusted(self, config: Config) -> GatedItems | None:
        """Return the items that the user has not trusted; None if all are trusted or none needs trust."""
        if self.locations.project_root is None:
            return None
        from qmd.config.trust import gated_items, is_trusted

        items = gated_items(config, self.locations)
        return None if is_trusted(items, self.locations, self._environ) else items

    def _digest(self) -> str | None:
        return config_digest(self.locations) if self.locations.config_file.exists() else None

    def _allowed(self) -> Config:
        config = self._read()
        if self._untrusted(config) is None:
            return config
        from qmd.config.trust import trusted_part

        return trusted_part(config, self.locations, self._environ)


def _refusals(items: GatedItems) -> list[str]:
    """Return the messages on a project's untrusted items, one line each."""
    lines = [
        f"Skipping collection '{name}' — path {path} is outside this project and this .qmd config is not trusted."
        " To allow it run: qmd trust"
        for name, path in items.paths
    ]
    if items.hooks or items.models or items.links:
        lines += ["update commands, custom models and links of this project are not used; to allow them run: qmd trust"]
    return lines


class MappingConfiguration(Configuration):
    """Configuration in a mapping of the caller, who is trusted: edits change a copy of it in memory."""

    def __init__(self, content: Mapping[str, Any], locations: Locations, notices: Notices) -> None:
        from copy import deepcopy

        super().__init__(locations, notices)
        self._content = deepcopy(dict(content))

    def written(self) -> Config:
        return _parse(self._content, self.locations)

    def _digest(self) -> str:
        return self.written().digest

    def edit(self, change: Change) -> Config:
        change(self._content)
        return self.written()


class IndexConfiguration(Configuration):
    """Configuration in the index alone: edits change it there."""

    is_in_index = True

    def written(self) -> Config:
        """Return the copy in the index; empty before there is one."""
        return _parse(self._content(), self.locations)

    def auto_update(self) -> bool:
        """Return False: a user who opens a file by its path alone may want it unchanged."""
        return False

    auto_embed = auto_update

    def _digest(self) -> None:
        return None

    def edit(self, change: Change) -> Config:
        from qmd.app.mirroring import mirror

        content = self._content()
        change(content)
        config = _parse(content, self.locations)
        with self.open_writer() as writer:
            mirror(writer, config, config)
        return config

    def _content(self) -> dict[str, Any]:
        try:
            reader = self.open_reader()
        except NotFoundError:
            return {}
        with reader:
            return written_form(reader.collections(), reader.global_context())


def written_form(collections: Sequence[Collection], global_context: str | None) -> dict[str, Any]:
    """Return an index's copy of its configuration in the form of `index.yml`."""
    entries = {
        one.name: {
            "path": to_text(one.path),
            "pattern": one.pattern,
            "ignore": list(one.ignore),
            "context": dict(one.context),
            "update": one.update_command,
            "includeByDefault": one.include_by_default,
            "gitignore": one.gitignore,
        }
        for one in collections
    }
    return {"collections": entries, **({"global_context": global_context} if global_context else {})}


def _parse(content: Mapping[str, Any], locations: Locations) -> Config:
    import json

    text = json.dumps([content, str(locations.base)], sort_keys=True, default=str)
    return parse_config(content, locations, sha256(text.encode()))  # type: ignore[arg-type]
