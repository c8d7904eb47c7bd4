"""The half of a store that changes: collections, notes, the index; and with it the whole `Store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.api.reading import ReadingStore, as_names
from qmd.api.records import ContextNote
from qmd.errors import BusyError, ModelError, NotFoundError, QmdError, UsageError

if TYPE_CHECKING:
    import os

    from qmd.config.settings import Config
    from qmd.indexing.embed import EmbedReport
    from qmd.indexing.update import UpdateReport
    from qmd.records import Collection


class Store(ReadingStore):
    """An index: searched, read, and kept equal to the files of its collections.

    Made by `qmd.open_store`. Usable as a context manager and from several threads. The index is opened by the first
    call that needs it, a model by the first search that uses it; both are kept until `close`.

    Searches raise `NotFoundError` as long as nothing was indexed, and `StoreError` when the file is damaged.
    """

    # --- collections and notes --------------------------------------------------------------------

    def collections(self) -> tuple[Collection, ...]:
        """The configured collections, in the order of the configuration."""
        return self._home.load().collections

    def default_collections(self) -> tuple[str, ...]:
        """Names of the collections that are searched when none is named."""
        return tuple(one.name for one in self.collections() if one.include_by_default)

    def add_collection(
        self, name: str, path: str | os.PathLike[str], *, pattern: str = "**/*.md", ignore: Sequence[str] = ()
    ) -> Collection:
        """Configure a folder, or a single file; `update` then indexes it.

        Args:
            name: How results and scopes call it.
            path: Relative paths start at the working directory, `~` is the home folder.
            pattern: Glob of the files that belong to it; several with commas.
            ignore: Globs of files that do not.

        Raises:
            NotFoundError: There is nothing at `path`.
            QmdError: The name is taken.
            UsageError: The name cannot be part of an address.
        """
        from qmd.config import edits
        from qmd.workspace import check_name, require_collection

        check_name(name)
        folder = Path(path).expanduser().resolve()
        if not folder.exists():
            raise NotFoundError(f"path '{path}' does not exist")
        if self._home.load().collection(name) is not None:
            raise QmdError(f"collection '{name}' already exists", "choose another name, or remove it first")
        config = self._edited(edits.add_collection(self._home.target, name, folder, pattern, ignore))
        return require_collection(config, name)

    def remove_collection(self, name: str) -> int:
        """Forget a collection and its documents; the number of documents deleted. Its files stay.

        Raises:
            NotFoundError: There is no such collection.
        """
        from qmd.workspace import remove_collection, require_collection

        config = self._home.load()
        require_collection(config, name)
        with self._home.open_writer() as writer:
            n_documents, config = remove_collection(writer, self._home.target, config, name)
        self._edited(config)
        return n_documents

    def rename_collection(self, old: str, new: str) -> None:
        """Give a collection another name; nothing is read or embedded again.

        Raises:
            NotFoundError: There is no collection `old`.
            QmdError: `new` is taken.
        """
        from qmd.workspace import rename_collection, require_collection

        config = self._home.load()
        require_collection(config, old)
        with self._home.open_writer() as writer:
            config = rename_collection(writer, self._home.target, config, old, new)
        self._edited(config)

    def set_included(self, name: str, included: bool) -> None:
        """Search a collection when none is named, or only when it is.

        Raises:
            NotFoundError: There is no such collection.
        """
        from qmd.config import edits

        self._edited(edits.set_included(self._home.target, name, included))

    def contexts(self) -> tuple[ContextNote, ...]:
        """Every note on a path, the one on everything first."""
        config = self._home.load()
        notes = [ContextNote("", "", config.global_context)] if config.global_context else []
        for one in config.collections:
            notes += [ContextNote(one.name, prefix.strip("/"), text) for prefix, text in one.context.items()]
        return tuple(notes)

    def add_context(self, collection: str, prefix: str, text: str) -> None:
        """Attach a note to the documents below a path of a collection (`""` for all of it); results show it.

        Raises:
            NotFoundError: There is no such collection.
        """
        from qmd.config import edits

        if not text.strip():
            raise UsageError("the note is empty", "remove one with remove_context")
        self._edited(edits.set_context(self._home.target, collection, prefix, text))

    def remove_context(self, collection: str, prefix: str) -> None:
        """Remove the note of a path.

        Raises:
            NotFoundError: There is no such collection or note.
        """
        from qmd.config import edits

        self._edited(edits.remove_context(self._home.target, collection, prefix))

    def set_global_context(self, text: str | None) -> None:
        """Set the note that applies to every document; None removes it."""
        from qmd.config import edits

        self._edited(edits.set_global_context(self._home.target, text))

    # --- indexing ---------------------------------------------------------------------------------

    def update(
        self,
        collections: str | Sequence[str] | None = None,
        *,
        verify: bool = False,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> tuple[UpdateReport, ...]:
        """Make the index equal to the files of the collections; their update commands are not run.

        Args:
            collections: Only these; None = all.
            verify: Read every file, even those that look unchanged.
            on_progress: Gets (collection, files done, files to read).

        Raises:
            NotFoundError: An unknown collection, or its folder cannot be read; those before it are up to date.
            BusyError: Another process keeps the index.
        """
        from qmd.indexing.update import update_collection
        from qmd.workspace import require_collection

        config = self._home.load()
        names = as_names(collections)
        chosen = config.collections if names is None else [require_collection(config, name) for name in names]
        reports = []
        with self._home.open_writer() as writer:
            for one in chosen:
                tell = None if on_progress is None else _for_collection(on_progress, one.name)
                reports.append(update_collection(writer, one, verify=verify, on_progress=tell))
        return tuple(reports)

    def embed(
        self,
        collections: str | Sequence[str] | None = None,
        *,
        force: bool = False,
        cut_declarations: bool = True,
        on_progress: Callable[[int, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> EmbedReport:
        """Compute the vectors that are missing; searches go on beside it.

        Args:
            collections: Only texts of these; None = all.
            force: Forget the vectors of these texts first.
            cut_declarations: Cut source files at their declarations; False cuts them as plain text.
            on_progress: Gets (chunks done, estimate of all chunks).
            should_stop: Asked every few seconds; what was computed is kept.

        Raises:
            ModelError: There is no embedding model.
            BusyError: Another process is embedding, or keeps the index.
            NotFoundError: An unknown collection.
        """
        from qmd.indexing.embed import embed_pending
        from qmd.workspace import embed_lock, require_collection

        config = self._home.load()
        names = as_names(collections)
        for name in names or ():
            require_collection(config, name)
        with embed_lock(self.path) as is_ours:
            if not is_ours:
                raise BusyError("another process is computing vectors for this index", "wait until it has ended")
            with self._engines.lease(self._settings(), frozenset({"embed"})) as engines:
                if engines.embedder is None:
                    raise ModelError("; ".join(engines.notes) or "there is no embedding model", "see: qmd doctor")
                with self._home.open_writer() as writer:
                    if force:
                        writer.clear_vectors(names)
                    return embed_pending(
                        writer,
                        engines.embedder,
                        collections=names,
                        on_progress=on_progress,
                        should_stop=should_stop,
                        cut_declarations=cut_declarations,
                    )

    def cleanup(self, *, dry_run: bool = False) -> Mapping[str, int]:
        """Drop what nothing uses and make the file small again; counts by kind of thing.

        Args:
            dry_run: Only count.

        Raises:
            BusyError: Another process is embedding, or keeps the index.
        """
        from qmd.workspace import clean_index

        with self._home.open_writer() as writer:
            return clean_index(writer, self.path, dry_run=dry_run)

    # --- inside -----------------------------------------------------------------------------------

    def _edited(self, config: Config) -> Config:
        """Bring an existing index's copy of the configuration up to date."""
        if self.path.exists():
            self._home.open_writer().close()
        return config


def _for_collection(report: Callable[[str, int, int], None], name: str) -> Callable[[int, int], None]:
    return lambda done, total: report(name, done, total)
