"""`Index`: all operations on one index."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from qmd.app.reading import ReadingIndex
from qmd.app.records import ContextNote, EmbeddingStart, EmbedOptions, EmbedRequest, Part, as_names
from qmd.config.paths import expand_home
from qmd.errors import ModelError, NotFoundError, UsageError, refuse_unknown
from qmd.masks import DEFAULT_PATTERN
from qmd.records import Collection

if TYPE_CHECKING:
    from qmd.app.updating import Update
    from qmd.config.settings import Config
    from qmd.indexing.reports import EmbedReport
    from qmd.indexing.update import UpdateReport
    from qmd.inference.base import Engines
    from qmd.progress import Progress
    from qmd.status import Runner
    from qmd.store.runs import EmbeddingLock


class Index(ReadingIndex):
    """An index that is searched, read, and updated from the files of its collections.

    Made by `open_index`. Usable as a context manager and from several threads. The first call that needs the file opens
    it, the first search that uses a model loads it; both stay open until `close`.

    Searches raise `NotFoundError` until something is indexed, and `StoreError` if the file is damaged.
    """

    def add_collection(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        pattern: str = DEFAULT_PATTERN,
        ignore: Sequence[str] = (),
        gitignore: bool = True,
    ) -> Collection:
        """Configure a folder, or a single file; `update` then indexes it.

        Args:
            name: Its name in results and scopes.
            path: Relative paths start at the working directory, `~` is the home folder.
            pattern: Glob of its files; several with commas.
            ignore: Globs of files to skip.
            gitignore: Whether to skip files that git ignores.

        Raises:
            NotFoundError: There is nothing at `path`.
            QmdError: The name is taken, or another collection has this folder and pattern.
            UsageError: The name cannot be part of an address.
        """
        folder = (self._locations.cwd / expand_home(Path(path))).resolve()
        if not folder.exists():
            raise NotFoundError(f"path '{path}' does not exist")
        from qmd.app.collections import add_collection

        added = add_collection(self._configuration, name, folder, pattern, ignore, gitignore=gitignore)
        return self._edited(added).require(name)

    def ensure_collections(
        self,
        paths: Sequence[Path],
        *,
        name: str | None = None,
        pattern: str | None = None,
        gitignore: bool = True,
        separate: bool = False,
        chooses_mask: bool = False,
    ) -> tuple[Part, ...]:
        """Return the collections at absolute paths, from now on with that pattern, if given; add missing ones.

        A path inside a collection is a part of it. It becomes a separate collection if a name is given, or if the
        collection selects none of its files. Without `gitignore`, git-ignored files are included from now on. Files of
        a new collection are markdown, or with `chooses_mask` what its folder has. A moved folder keeps its collection
        unless `separate`; without paths, those near their old place are found.

        Raises:
            NotFoundError: A collection would be empty; the message describes the files that are there.
            UsageError: `name` is taken, not usable, given for several paths, or not for a `separate` one.
        """
        if name and len(paths) > 1:
            raise UsageError("--name fits one path only", "index the paths one by one")
        from qmd.app.collections import ensure_collection, follow_moves

        if not separate:
            follow_moves(self._configuration, paths, name)
        given = (self._configuration, name, pattern, gitignore, separate, chooses_mask)
        return tuple(ensure_collection(path, *given) for path in paths)

    def remove_collection(self, name: str) -> int:
        """Remove a collection and its documents, not its files; return the number of documents.

        Raises:
            NotFoundError: There is no such collection.
        """
        from qmd.app.collections import remove_collection

        n_documents = remove_collection(self._configuration, name)
        self.mirror_configuration()
        return n_documents

    def set_collection(
        self, name: str, *, path: Path | None = None, pattern: str | None = None, new_name: str | None = None
    ) -> list[str]:
        """Change absolute path, pattern or name of a collection without embedding again; return a line for each.

        Raises:
            QmdError: There is none, the name is taken or not usable, or another has this path and pattern.
        """
        from qmd.app.collections import set_collection

        lines = set_collection(self._configuration, name, path, pattern, new_name)
        self.mirror_configuration()
        return lines

    def rename_collection(self, old: str, new: str) -> None:
        """Rename a collection; see `set_collection`."""
        self.set_collection(old, new_name=new)

    def set_included(self, name: str, included: bool) -> None:
        """Include a collection in searches that name none, or search it only by name.

        Raises:
            NotFoundError: There is no such collection.
        """
        from qmd.config import edits

        self.collection(name)
        self._edited(edits.set_collection(self._configuration.edit, name, {"includeByDefault": included and None}))

    def set_update_command(self, name: str, command: str | None) -> None:
        """Set or clear the command that `qmd update` runs before it reads the files of a collection.

        Raises:
            NotFoundError: There is no such collection.
        """
        from qmd.config import edits

        self.collection(name)
        self._edited(edits.set_collection(self._configuration.edit, name, {"update": command or None}))

    def contexts(self) -> tuple[ContextNote, ...]:
        """Return every note on a path, the note on everything first."""
        config = self._configuration.written()
        notes = [ContextNote("", "", config.global_context)] if config.global_context else []
        for one in config.collections:
            notes += [ContextNote(one.name, prefix.strip("/"), text) for prefix, text in one.context.items()]
        return tuple(notes)

    def locate_path(self, path: str, collection: str | None = None) -> tuple[str, str]:
        """Return (collection, prefix) for a path inside `collection`, a `qmd://` address, or a path on disk.

        Raises:
            NotFoundError: It is in no collection.
        """
        from qmd.app.collections import locate_path

        return locate_path(self._configuration.written(), path, collection, self._locations.cwd)

    def add_context(self, collection: str, prefix: str, text: str) -> None:
        """Attach a note to the documents below a path of a collection (`""` for all of it); results show it.

        Raises:
            NotFoundError: There is no such collection.
            UsageError: The note is empty.
        """
        from qmd.config import edits

        if not text.strip():
            raise UsageError("the text of the context is empty", "qmd context add /path 'what is there'")
        self._edited(edits.set_context(self._configuration.edit, collection, prefix, text))

    def remove_context(self, collection: str, prefix: str) -> None:
        """Remove the note of a path.

        Raises:
            NotFoundError: There is no such collection or note.
        """
        from qmd.config import edits

        self._edited(edits.remove_context(self._configuration.edit, collection, prefix))

    def set_global_context(self, text: str | None) -> None:
        """Set the note that applies to every document; None removes it."""
        from qmd.config import edits

        self._edited(edits.set_global_context(self._configuration.edit, text))

    def paths_without_context(self) -> tuple[tuple[str, str], ...]:
        """Return (collection, folder) of collections (folder empty) and top-level folders without a note."""
        from qmd.records import Scope

        config = self._configuration.written()
        places = [(one.name, "") for one in config.collections if not one.context]
        if self.exists():
            with self.reader() as reader:
                for one in config.collections:
                    paths = (document.path for document in reader.iter_documents(Scope((one.name,))))
                    folders = {path.partition("/")[0] for path in paths if "/" in path}
                    noted = {key.strip("/").partition("/")[0] for key in one.context}
                    places += [(one.name, folder) for folder in sorted(folders - noted)]
        return tuple(places)

    def mirror_configuration(self) -> None:
        """Update an existing index's copy of the configuration after an edit or a change of trust."""
        if self.exists():
            self._configuration.open_writer().close()

    @contextmanager
    def updating(self, collections: Sequence[str] | None = None, *, verify: bool = False) -> Iterator[Update]:
        """Open the index to update it from the files of its collections, one by one with `Update.run`.

        A damaged index is rebuilt first.

        Args:
            collections: Only these; None = all.
            verify: Read every file, even if it looks unchanged, and all of the index.

        Raises:
            NotFoundError: An unknown collection.
            BusyError: Another process uses the index.
        """
        from qmd.app.mirroring import mend
        from qmd.app.updating import Update

        known = self._configuration.load().collections
        refuse_unknown(collections or (), (one.name for one in known))
        chosen = tuple(one for one in known if collections is None or one.name in collections)
        mend(self._locations, self._notices.warn, always=verify)
        with self._configuration.open_writer() as writer:
            yield Update(writer, chosen, verify=verify)

    def update(
        self,
        collections: str | Sequence[str] | None = None,
        *,
        verify: bool = False,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> tuple[UpdateReport, ...]:
        """Update the index from the files of the collections, without running their update commands.

        Args:
            collections: Only these; None = all.
            verify: Read every file, even if it looks unchanged.
            on_progress: Gets (collection, files done, files to read).

        Raises:
            NotFoundError: An unknown collection, or its folder cannot be read; those before it are up to date.
            BusyError: Another process uses the index.
        """
        with self.updating(as_names(collections), verify=verify) as update:
            return tuple(update.run(one, on_progress and partial(on_progress, one.name)) for one in update.collections)

    def embed(
        self,
        collections: str | Sequence[str] | None = None,
        *,
        on_start: Callable[[EmbeddingStart], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        **options: Unpack[EmbedOptions],
    ) -> EmbedReport:
        """Compute missing vectors; searches can run meanwhile.

        Args:
            collections: Only texts of these; None = all.
            on_start: Gets the model and the number of waiting texts, once known.
            on_progress: Gets the characters done and left, many times a second.
            should_stop: Called every few seconds; True ends the run and keeps the computed vectors.
            **options: See `EmbedRequest`.

        Raises:
            ModelError: There is no embedding model.
            AlreadyEmbeddingError: Another process is embedding.
            BusyError: Another process uses the index.
            NotFoundError: An unknown collection.
        """
        from qmd.app.updating import embed, nothing_to_embed

        names = as_names(collections)
        refuse_unknown(names or (), (one.name for one in self._configuration.load().collections))
        request = EmbedRequest(names, **options)
        lock = self._embedding_lock("watch" if request.resumes else "embed", names)
        with lock as run, self._configuration.open_writer() as writer:
            self.choose_models(writer, request)
            if (nothing := nothing_to_embed(writer, self.engine_settings(), request, on_start)) is not None:
                return nothing

            def report(progress: Progress) -> None:
                run.update(progress)
                if on_progress is not None:
                    on_progress(progress)

            def is_over() -> bool:
                return run.is_wanted or (should_stop is not None and should_stop())

            with self._embedders() as engines:
                done = embed(writer, engines, request, on_start=on_start, on_progress=report, should_stop=is_over)
            if done.stopped and request.resumes:
                run.pause()
            return done

    def embed_in_background(self, should_stop: Callable[[], bool]) -> bool:
        """Compute missing vectors for half a minute while no request is waiting; return True if more are missing.

        It runs at low priority on half of the processors, and waits before the next text while a request is answered.
        It does nothing if this is switched off, the index is not writable, its configuration is not trusted, or memory
        is short.

        Args:
            should_stop: Called all the time; True ends the run and loses the vectors of the last three seconds.

        Raises:
            StoppedError: `should_stop` returned True, or a command waits to embed.
            ModelError: There is no embedding model, or the index has vectors of another one.
            AlreadyEmbeddingError: Another process is embedding.
            StoreError: The index is damaged, or cannot be written.
        """
        from qmd.app.engines import is_words_only, machine_lacks_memory
        from qmd.app.updating import SLICE_S, embed, refuse_another_model, throttle
        from qmd.store.opening import open_writer

        is_off = not self.embeds_in_background or is_words_only() or not os.access(self.path, os.W_OK)
        if is_off or machine_lacks_memory():
            return False
        with self._readers.reader() as reader:
            if not reader.status(None).pending_documents:
                return False
        # A request that comes while the model is loaded would wait for it.
        self._idle_gate.wait(should_stop)
        request = EmbedRequest(timeout_s=SLICE_S, resumes=True)
        # `open_writer` of the store: only commands delete the documents of collections that left the configuration.
        with self._embedding_lock("server") as run, open_writer(self.path) as writer:
            self.choose_models(writer, request)
            with self._embedders() as engines:
                refuse_another_model(writer, engines)
                patient = throttle(engines, lambda: self._idle_gate.wait(lambda: should_stop() or run.is_wanted))
                done = embed(writer, patient, request, on_start=None, on_progress=run.update, should_stop=None)
            if done.stopped:
                run.pause()
            return done.stopped

    def cleanup(self, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete unused content and shrink the file; return the counts by kind.

        Args:
            dry_run: Only count.

        Raises:
            NotFoundError: There is no index.
            BusyError: Another process is embedding, or uses the index.
        """
        if not self.exists():
            raise NotFoundError(f"no index at '{self._locations.place}'", "make one: qmd index ~/notes")
        with self._configuration.open_writer() as writer:
            if dry_run:
                return writer.cleanup(dry_run=True)
            # New vectors are stored before any chunk refers to them.
            with self._embedding_lock("cleanup"):
                return writer.cleanup()

    def _embedding_lock(self, by: Runner, collections: tuple[str, ...] | None = None) -> EmbeddingLock:
        """Return the lock for a run, the same one for every slice of it."""
        from qmd.store.runs import EmbeddingLock

        return self._locks.setdefault((by, collections), EmbeddingLock(self.path, by, self._locations.place))

    @cached_property
    def _locks(self) -> dict[tuple[Runner, tuple[str, ...] | None], EmbeddingLock]:
        return {}

    @contextmanager
    def _embedders(self) -> Iterator[Engines]:
        with self._engines.lease(self.engine_settings(), frozenset({"embed"})) as engines:
            if engines.embedder is None:
                # The first note is the failure. Another model would fill the index with its own vectors.
                reason = engines.notes[0] if engines.notes else "there is no embedding model"
                raise ModelError(reason, "search by words works; see: qmd doctor")
            self._warn_once(engines.notes)
            yield engines

    def _edited(self, config: Config) -> Config:
        self.mirror_configuration()
        return config
