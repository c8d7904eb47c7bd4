"""The three places of an index's configuration: its YAML file, a mapping of the caller, the index itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from qmd.app.notices import Notices
from qmd.config.paths import Locations
from qmd.config.settings import Config, config_digest, load_config, names_auto_update, needs_full_config, parse_config
from qmd.errors import BusyError, NotFoundError, StoreError
from qmd.names import to_text

if TYPE_CHECKING:
    from qmd.config.edits import Change, Target
    from qmd.config.trust import GatedItems
    from qmd.records import Collection
    from qmd.store.base import IndexReader, IndexWriter


class Configuration(Protocol):
    """Reads and edits a configuration, and opens the index with its copy of it up to date."""

    @property
    def target(self) -> Target:
        """What the functions of `qmd.config.edits` change."""
        ...

    def written(self) -> Config:
        """The configuration as it is written."""
        ...

    def load(self) -> Config:
        """The configuration as far as it is trusted."""
        ...

    def settings(self) -> Config:
        """The same as far as a search needs it, which is the models and the editor."""
        ...

    def trusted(self) -> tuple[Collection, ...]:
        """The collections, none where something in the configuration is not trusted; nobody is asked."""
        ...

    def auto_update(self) -> bool:
        """Whether a search takes up changed files first."""
        ...

    def auto_embed(self) -> bool:
        """Whether a server computes missing vectors while nobody asks it anything; not for what is not trusted."""
        ...

    def vouch(self, before: Config) -> None:
        """Trust what the configuration holds now, if it was trusted before: its user has just edited it."""
        ...

    def open_reader(self) -> IndexReader: ...
    def open_writer(self) -> IndexWriter: ...


class FileConfiguration:
    """`index.yml`: edits are written to the file and keep its comments.

    Args:
        locations: The index.
        environ: Vouches for a project's configuration.
        notices: Asked for trust, and told of what is left out without it.
        vouches: Whether edits made through qmd are trusted: a person at the command line knows what they typed.
    """

    def __init__(
        self, locations: Locations, environ: Mapping[str, str], notices: Notices, *, vouches: bool = False
    ) -> None:
        self._locations = locations
        self._environ = environ
        self._notices = notices
        self._vouches = vouches
        self._refused: GatedItems | None = None
        self._parsed: Config | None = None

    @property
    def target(self) -> Target:
        """The file."""
        return self._locations

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
        if self._locations.project_root is None:
            return config
        from qmd.config.trust import gated_items, is_trusted, record_trust, trusted_part

        items = gated_items(config, self._locations)
        if is_trusted(items, self._locations, self._environ):
            return config
        if items != self._refused:
            if self._notices.grants_trust(items):
                record_trust(items, self._locations)
                return config
            self._refused = items
            for line in _left_out(items):
                self._notices.warn(line)
        return trusted_part(config, self._locations, self._environ)

    def settings(self) -> Config:
        """An empty configuration when the file names neither, which spares parsing it."""
        return self.load() if needs_full_config(self._locations) else Config()

    def trusted(self) -> tuple[Collection, ...]:
        """See `Configuration`."""
        config = self._read()
        if self._locations.project_root is None:
            return config.collections
        from qmd.config.trust import gated_items, is_trusted

        is_safe = is_trusted(gated_items(config, self._locations), self._locations, self._environ)
        return config.collections if is_safe else ()

    def auto_update(self) -> bool:
        """See `Configuration`."""
        return not names_auto_update(self._locations) or self._read().auto_update

    def auto_embed(self) -> bool:
        """See `Configuration`."""
        return self._read().auto_embed and bool(self.trusted())

    def vouch(self, before: Config) -> None:
        """See `Configuration`; does nothing unless edits are vouched for."""
        from qmd.config.trust import gated_items, is_trusted, record_trust

        items = gated_items(self._read(), self._locations)
        was_trusted = is_trusted(gated_items(before, self._locations), self._locations, self._environ)
        if items and self._vouches and was_trusted:
            record_trust(items, self._locations)

    def open_reader(self) -> IndexReader:
        """The index, with its copy of the configuration made equal to the file if that was edited since.

        At an address others use it as well, and no search changes it.

        Raises:
            NotFoundError: There is no index yet.
            StoreError: The index is damaged or foreign.
        """
        from qmd.store.opening import open_reader

        places = self._locations
        reader = open_reader(places.database, places.address)
        # Without the file (an index copied alone) the index's own copy is all there is.
        is_shared = places.address is not None
        if is_shared or reader.config_hash() == config_digest(places) or not places.config_file.exists():
            return reader
        reader.close()
        from qmd.app.mirroring import mirror_for_reading

        try:
            mirror_for_reading(places, self._environ)
        except (BusyError, StoreError) as exc:
            self._notices.warn(
                f"'{places.config_file.name}' changed, but this run still uses its old settings: {exc.message}"
            )
        return open_reader(places.database, places.address)

    def open_writer(self) -> IndexWriter:
        """The index, made when missing."""
        from qmd.app.mirroring import open_current_writer

        return open_current_writer(self._locations, self._read(), self._environ, self._notices.say)

    def _read(self) -> Config:
        """The file, parsed only when it has changed."""
        if self._parsed is None or self._parsed.digest != config_digest(self._locations):
            self._parsed = load_config(self._locations)
        return self._parsed


def _left_out(items: GatedItems) -> list[str]:
    """What a project's configuration is not allowed, a line each."""
    lines = [
        f"Skipping collection '{name}' — path {path} is outside this project and this .qmd config is not trusted."
        for name, path in items.paths
    ]
    if items.hooks or items.models or items.links:
        lines.append(
            "update commands, custom models and links of this project are not used; to allow them run: qmd trust"
        )
    return lines


class MappingConfiguration:
    """A mapping given by the caller: edits change a copy of it in memory."""

    def __init__(self, content: Mapping[str, Any], locations: Locations, notices: Notices) -> None:
        from copy import deepcopy

        self._content = deepcopy(dict(content))
        self._locations = locations
        self._notices = notices

    @property
    def target(self) -> Target:
        """A function that edits the mapping."""
        return self._edit

    def load(self) -> Config:
        """The mapping as records."""
        return _parse(self._content, self._locations)

    written = settings = load

    def trusted(self) -> tuple[Collection, ...]:
        """See `Configuration`."""
        return self.load().collections

    def auto_update(self) -> bool:
        """See `Configuration`."""
        return self.load().auto_update

    def auto_embed(self) -> bool:
        """See `Configuration`."""
        return self.load().auto_embed

    def vouch(self, before: Config) -> None:
        """Nothing: who gives a mapping is trusted."""

    def open_reader(self) -> IndexReader:
        """The index, holding the mapping's collections; others in it are searched only when they are named."""
        from qmd.app.mirroring import MIRROR_TIMEOUT_MS, with_the_rest
        from qmd.store.opening import open_reader, open_writer

        reader = open_reader(self._locations.database, self._locations.address)
        config = self.load()
        if self._locations.address is not None or reader.config_hash() == config.digest:
            return reader
        collections = with_the_rest(config.collections, reader.collections())
        reader.close()
        try:
            with open_writer(self._locations.database, busy_timeout_ms=MIRROR_TIMEOUT_MS) as writer:
                writer.mirror_config(collections, config.global_context, config.digest)
        except BusyError as exc:
            self._notices.warn(f"the index still has its old settings: {exc.message}")
        return open_reader(self._locations.database, self._locations.address)

    def open_writer(self) -> IndexWriter:
        """The index, made when missing, without the documents of collections that are not in the mapping.

        At an address those stay, as they may be another machine's.
        """
        is_shared = self._locations.address is not None
        return _mirrored_writer(self._locations, self.load(), self._notices, is_shared=is_shared)

    def _edit(self, change: Change) -> Config:
        change(self._content)
        return self.load()


class IndexConfiguration:
    """The copy in the index, where there is no other: edits change it there."""

    def __init__(self, locations: Locations, notices: Notices) -> None:
        self._locations = locations
        self._notices = notices

    @property
    def target(self) -> Target:
        """A function that edits the copy."""
        return self._edit

    def load(self) -> Config:
        """What the index holds; empty before there is one."""
        return _parse(self._content(), self._locations)

    written = settings = load

    def trusted(self) -> tuple[Collection, ...]:
        """See `Configuration`."""
        return self.load().collections

    def auto_update(self) -> bool:
        """False: who opens a file by its path alone may mean it as it is."""
        return False

    auto_embed = auto_update

    def vouch(self, before: Config) -> None:
        """Nothing: there is no file that anybody else could have written."""

    def open_reader(self) -> IndexReader:
        """The index as it is."""
        from qmd.store.opening import open_reader

        return open_reader(self._locations.database, self._locations.address)

    def open_writer(self) -> IndexWriter:
        """The index, made when missing."""
        from qmd.app.mirroring import open_or_make

        return open_or_make(self._locations, self._notices.say)

    def _edit(self, change: Change) -> Config:
        content = self._content()
        change(content)
        config = _parse(content, self._locations)
        _mirrored_writer(self._locations, config, self._notices).close()
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


def _mirrored_writer(locations: Locations, config: Config, notices: Notices, *, is_shared: bool = False) -> IndexWriter:
    from qmd.app.mirroring import mirror, open_or_make

    writer = open_or_make(locations, notices.say)
    try:
        mirror(writer, config, config, is_shared=is_shared)
    except BaseException:
        writer.close()
        raise
    return writer


def _parse(content: Mapping[str, Any], locations: Locations) -> Config:
    import hashlib
    import json

    text = json.dumps([content, str(locations.base)], sort_keys=True, default=str)
    return parse_config(content, locations, hashlib.sha256(text.encode()).hexdigest())  # type: ignore[arg-type]
