"""The three places of an index's configuration: its YAML file, a mapping of the caller, the index itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qmd.app.notices import Notices
from qmd.config.paths import Locations
from qmd.config.settings import Config, config_digest, load_config, names_auto_update, needs_full_config, parse_config
from qmd.errors import BusyError, NotFoundError, StoreError
from qmd.file_names import to_text
from qmd.files import sha256

if TYPE_CHECKING:
    from qmd.config.edits import Change, Target
    from qmd.config.trust import GatedItems
    from qmd.records import Collection
    from qmd.store.base import IndexReader, IndexWriter

MIRROR_TIMEOUT_MS = 250
"""How long a search waits to refresh the index's copy of the configuration before it goes on with the old copy."""


class Configuration(ABC):
    """Reads and edits a configuration, and opens the index with its copy of it up to date.

    Args:
        locations: The index.
        notices: Told what concerns the user.
    """

    target: Target
    """Gets the edits of `qmd.config.edits`."""

    def __init__(self, locations: Locations, notices: Notices) -> None:
        self._locations = locations
        self._notices = notices

    @abstractmethod
    def written(self) -> Config:
        """The configuration as it is written."""

    def load(self) -> Config:
        """The configuration as far as it is trusted."""
        return self.written()

    def settings(self) -> Config:
        """The same as far as a search needs it, which is the models and the editor."""
        return self.load()

    def trusted(self) -> tuple[Collection, ...]:
        """The collections, none where something in the configuration is not trusted; nobody is asked."""
        return self.load().collections

    def auto_update(self) -> bool:
        """Whether a search brings changed files up to date first."""
        return self.load().auto_update

    def auto_embed(self) -> bool:
        """Whether a server computes missing vectors while nobody asks it anything; not for what is not trusted."""
        return self.load().auto_embed

    def trust_current(self, before: Config) -> None:  # noqa: B027 - nothing is to be done where nobody else can write
        """Trust what the configuration holds now, if it was trusted before: its user has just edited it."""

    def open_reader(self) -> IndexReader:
        """The index, with its copy of the configuration made equal to this if that was edited since.

        At an address others use it as well, and no search changes it.

        Raises:
            NotFoundError: There is no index yet.
            StoreError: The index is damaged or foreign.
        """
        from qmd.store.opening import open_reader, open_writer

        places = self._locations
        reader = open_reader(places.database, places.address)
        if places.address is not None or self._digest() in (None, reader.config_hash()):
            return reader
        reader.close()
        from qmd.app.mirroring import with_unchanged

        try:
            # Only a writing command deletes documents; until then those of a collection that is gone are out of scope.
            with open_writer(places.database, busy_timeout_ms=MIRROR_TIMEOUT_MS) as writer, writer.transaction():
                config = self._allowed()
                collections = with_unchanged(config.collections, writer.collections())
                writer.mirror_config(collections, config.global_context, config.digest)
        except (BusyError, StoreError) as exc:
            self._notices.warn(f"{self._stale}: {exc.message}")
        return open_reader(places.database, places.address)

    def open_writer(self) -> IndexWriter:
        """The index, made when missing, holding exactly the collections of the configuration.

        At an address it keeps those of other machines as well. Where another program has the place, the index lies
        beside its file.
        """
        from qmd.app.mirroring import mirror, open_or_make

        writer = open_or_make(self._locations, self._notices.say)
        try:
            if self._digest() is not None:
                # Another process may have added a collection, documents and all, since this one read the configuration.
                # Whoever adds one writes the file before the index, so a collection in the index that the file lacks
                # under the index's write lock is one that was removed.
                with writer.transaction():
                    mirror(writer, self._allowed(), self.written(), is_shared=self._locations.address is not None)
        except BaseException:
            writer.close()
            raise
        return writer

    _stale = "the index still has its old settings"
    """What to say where the index's copy could not be brought up to date."""

    @abstractmethod
    def _digest(self) -> str | None:
        """What tells the configuration as it is now from others; None where the index's own copy is all there is."""

    def _allowed(self) -> Config:
        """The configuration as it is now, as far as the index may have it; nobody is asked."""
        return self.written()


class FileConfiguration(Configuration):
    """`index.yml`: edits are written to the file and keep its comments.

    Args:
        locations: The index.
        environ: Vouches for a project's configuration.
        notices: Asked for trust, and told of what is not used without it.
        vouches: Whether edits made through qmd are trusted: a person at the command line knows what they typed.
    """

    def __init__(
        self, locations: Locations, environ: Mapping[str, str], notices: Notices, *, trusts_edits: bool = False
    ) -> None:
        super().__init__(locations, notices)
        self.target = locations
        self._environ = environ
        self._trusts_edits = trusts_edits
        self._refused: GatedItems | None = None
        self._parsed: Config | None = None
        self._stale = f"'{locations.config_file.name}' changed, but this run still uses its old settings"

    def written(self) -> Config:
        """The file, or where there is none the copy that an index of that place holds."""
        from qmd.store.opening import index_exists, open_reader

        places = self._locations
        if places.config_file.exists() or not index_exists(places.database, places.address):
            return self._read()
        with open_reader(places.database, places.address) as reader:
            collections, note = tuple(reader.collections()), reader.global_context()
        return Config(collections, note, digest=config_digest(self._locations))

    def load(self) -> Config:
        """The file's content as it is now, without what an untrusted project's file may not decide."""
        config = self._read()
        items = self._untrusted(config)
        if items is None:
            return config
        if items != self._refused:
            if self._notices.grants_trust(items):
                from qmd.config.trust import record_trust

                record_trust(items, self._locations)
                return config
            self._refused = items
            for line in _refusals(items):
                self._notices.warn(line)
        return self._allowed()

    def settings(self) -> Config:
        """An empty configuration when the file names neither, which spares parsing it."""
        return self.load() if needs_full_config(self._locations) else Config()

    def trusted(self) -> tuple[Collection, ...]:
        config = self._read()
        return config.collections if self._untrusted(config) is None else ()

    def auto_update(self) -> bool:
        return not names_auto_update(self._locations) or self._read().auto_update

    def auto_embed(self) -> bool:
        return self._read().auto_embed and bool(self.trusted())

    def trust_current(self, before: Config) -> None:
        """Does nothing unless edits are vouched for."""
        from qmd.config.trust import gated_items, record_trust

        items = gated_items(self._read(), self._locations)
        if items and self._trusts_edits and self._untrusted(before) is None:
            record_trust(items, self._locations)

    def _read(self) -> Config:
        """The file, parsed only when it has changed."""
        if self._parsed is None or self._parsed.digest != config_digest(self._locations):
            self._parsed = load_config(self._locations)
        return self._parsed

    def _untrusted(self, config: Config) -> GatedItems | None:
        """What the user has not trusted; None where nothing needs that."""
        if self._locations.project_root is None:
            return None
        from qmd.config.trust import gated_items, is_trusted

        items = gated_items(config, self._locations)
        return None if is_trusted(items, self._locations, self._environ) else items

    def _digest(self) -> str | None:
        return config_digest(self._locations) if self._locations.config_file.exists() else None

    def _allowed(self) -> Config:
        config = self._read()
        if self._untrusted(config) is None:
            return config
        from qmd.config.trust import trusted_part

        return trusted_part(config, self._locations, self._environ)


def _refusals(items: GatedItems) -> list[str]:
    """What a project's configuration is not allowed, a line each."""
    lines = [
        f"Skipping collection '{name}' — path {path} is outside this project and this .qmd config is not trusted."
        " To allow it run: qmd trust"
        for name, path in items.paths
    ]
    if items.hooks or items.models or items.links:
        lines.append(
            "update commands, custom models and links of this project are not used; to allow them run: qmd trust"
        )
    return lines


class MappingConfiguration(Configuration):
    """A mapping given by the caller, who is trusted: edits change a copy of it in memory."""

    def __init__(self, content: Mapping[str, Any], locations: Locations, notices: Notices) -> None:
        from copy import deepcopy

        super().__init__(locations, notices)
        self._content = deepcopy(dict(content))
        self.target = self._edit

    def written(self) -> Config:
        """The mapping as records."""
        return _parse(self._content, self._locations)

    def _digest(self) -> str:
        return self.written().digest

    def _edit(self, change: Change) -> Config:
        change(self._content)
        return self.written()


class IndexConfiguration(Configuration):
    """The copy in the index, where there is no other: edits change it there."""

    def __init__(self, locations: Locations, notices: Notices) -> None:
        super().__init__(locations, notices)
        self.target = self._edit

    def written(self) -> Config:
        """What the index holds; empty before there is one."""
        return _parse(self._content(), self._locations)

    def auto_update(self) -> bool:
        """False: who opens a file by its path alone may mean it as it is."""
        return False

    auto_embed = auto_update

    def _digest(self) -> None:
        return None

    def _edit(self, change: Change) -> Config:
        from qmd.app.mirroring import mirror

        content = self._content()
        change(content)
        config = _parse(content, self._locations)
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
    """What an index holds of its configuration, of the shape of `index.yml`."""
    content: dict[str, Any] = {
        "collections": {
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
    }
    return {**content, "global_context": global_context} if global_context else content


def _parse(content: Mapping[str, Any], locations: Locations) -> Config:
    import json

    text = json.dumps([content, str(locations.base)], sort_keys=True, default=str)
    return parse_config(content, locations, sha256(text.encode()))  # type: ignore[arg-type]
