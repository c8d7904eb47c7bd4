"""Pulls of models: only missing files, resumable, checked against sha256, installed when all of them are complete.

Versions are pinned: by the catalogue's commit and digests, else by the first pull, whose manifest keeps the commit and
every digest for later pulls until a refresh.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError, UsageError
from qmd.files import make_private_folder
from qmd.foreign import path_below
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.models.folders import STAGING, Manifest, check_space, locked, map_os_errors, read_manifest, sha256_of
from qmd.inference.models.stored_types import external_files, sibling
from qmd.inference.models.weights import file_size
from qmd.inference.records import UNPINNED, ModelFile, ModelRecord
from qmd.plugins.models.fetch.hub import HubFile, describe_file
from qmd.plugins.models.fetch.transfer import fetch
from qmd.plugins.models.inventory import install_files
from qmd.switches import is_on

Progress = Callable[[str, int, int | None], None]
"""(file, bytes so far, bytes in all if known)."""


class PullReport(Struct, frozen=True):
    folder: Path
    fetched: tuple[str, ...]
    fetched_bytes: int
    notes: tuple[str, ...] = ()
    """Messages about versions, a line each."""


def pull_model(
    record: ModelRecord,
    models_dir: Path,
    *,
    formats: Sequence[str] | None = None,
    form_share: float = 0.0,
    env: Mapping[str, str],
    on_progress: Progress | None = None,
    refresh: bool = False,
) -> PullReport:
    """Fetch a model's common files and the weights of some formats, with the files that their graphs name.

    An interrupted pull is continued by the next one. Files in use stay as they are until every new one is complete.

    Args:
        formats: Names of the formats to fetch; None takes the one for a CPU.
        form_share: Disk space of a form that is made of the weights afterwards, as a share of them.
        env: `QMD_OFFLINE`, `HF_HUB_OFFLINE`, `HF_ENDPOINT`.
        on_progress: Called for every piece that arrives.
        refresh: Take the newest version of a model that the catalogue does not pin, for all formats that are here.

    Raises:
        UsageError: If the model is built in, or has no such format.
        BusyModelError: If another process fetches it.
        ModelError: If offline, if the hub, the connection, the disk or a checksum fails, or if the hub's bytes differ
            from the pinned ones.
    """
    if record.tier == "built-in":
        locate_builtin(record)
        raise UsageError(f"model '{record.name}' is part of a package and needs no download")
    if "://" in record.repository:
        raise ModelError(
            f"model '{record.name}' is not on the model hub, but at '{record.repository}'",
            f"unpack it and take the folder: qmd models import FOLDER --name {record.name}",
        )
    if offline := next((name for name in ("QMD_OFFLINE", "HF_HUB_OFFLINE") if is_on(env.get(name))), None):
        hint = "bring it by file: qmd models import FILE"
        raise ModelError(f"model '{record.name}' is not fetched: {offline} is set", hint)
    weights = _weights_to_fetch(record, models_dir, formats, refresh=refresh)
    optional = {item.path for item in record.files} - {"tokenizer.json"}
    lock = models_dir / STAGING / f"{record.folder}.lock"
    # Two pulls of one model would write the same partial files.
    with map_os_errors(models_dir), locked(lock, f"model '{record.name}' is being fetched by another process"):
        pull = _Pull(record, models_dir, env.get("HF_ENDPOINT"), on_progress, refresh)
        pull.fetch_all([*record.files, *weights], optional, form_share)
        pull.fetch_all(pull.sibling_files(weights))
        pull.install()
        notes = pull.notes(weights)
    size = sum(item.size_bytes or 0 for item in pull.fetched.values())
    return PullReport(models_dir / record.folder, tuple(pull.fetched), size, notes)


def _weights_to_fetch(
    record: ModelRecord, models_dir: Path, formats: Sequence[str] | None, *, refresh: bool
) -> list[ModelFile]:
    """Return the weights of the requested formats, of a model that the hub has."""
    chosen = list(formats_to_pull(record, has_cuda=False) if formats is None else formats)
    if refresh:
        here = [item.name for item in record.formats if file_size(models_dir / record.folder / item.weights.path)]
        chosen = list(dict.fromkeys([*chosen, *here]))
    names = [item.name for item in record.formats]
    if unknown := next((name for name in chosen if name not in names), None):
        raise UsageError(f"model '{record.name}' has no format '{unknown}'", f"choose from: {', '.join(names)}")
    return [item.weights for item in record.formats if item.name in chosen]


def formats_to_pull(record: ModelRecord, *, has_cuda: bool) -> tuple[str, ...]:
    return (record.format_for("cuda" if has_cuda else "cpu").name,)


class _Pull:
    """One pull of one model: its version, and the fetched files.

    Attributes:
        fetched: Files that came from the hub, by path.
    """

    def __init__(
        self, record: ModelRecord, models_dir: Path, endpoint: str | None, on_progress: Progress | None, refresh: bool
    ) -> None:
        self.fetched: dict[str, ModelFile] = {}
        self._record, self._endpoint, self._on_progress = record, endpoint, on_progress
        self._folder, self._staging = models_dir / record.folder, models_dir / STAGING / record.folder
        make_private_folder(self._staging)
        known = None
        # Fetching again repairs a damaged manifest.
        with suppress(ModelError):
            known = read_manifest(self._folder)
        self._listed = {item.path: item for item in known.files} if known else {}
        self._old_commit = self._commit = known.commit if known else None
        self._revision = record.revision
        if record.revision == UNPINNED and not refresh and self._old_commit is not None:
            self._revision = self._old_commit
        # Files fetched before must have the same bytes, unless another version is requested.
        is_same = not refresh and self._revision == (self._old_commit or UNPINNED)
        self._promised = {path: item.sha256 for path, item in self._listed.items()} if is_same else {}

    def fetch_all(self, wanted: Sequence[ModelFile], optional: Container[str] = (), form_share: float = 0.0) -> None:
        """Fetch those files that are not complete here; the hub may lack `optional` paths."""
        planned = [item for file in wanted if (item := self._find_missing(file, file.path in optional)) is not None]
        sizes = [(item.size_bytes or 0) - file_size(self._partial_path(item)) for item in planned]
        weights = {item.weights.path for item in self._record.formats}
        form_bytes = int(form_share * sum(item.size_bytes or 0 for item in planned if item.path in weights))
        self._check_space(sum(max(0, size) for size in sizes), form_bytes)
        for item in planned:
            self.fetched[item.path] = self._fetch_checked(item)

    def sibling_files(self, weights: Sequence[ModelFile]) -> list[ModelFile]:
        """Return the files with tensors of some graphs, as the graphs name them."""
        found: dict[str, None] = {}
        for item in weights:
            graph = (self._staging if item.path in self.fetched else self._folder) / item.path
            try:
                found |= dict.fromkeys(sibling(item.path, name) for name in external_files(graph))
            except ModelError:
                # A retry would not accept this graph.
                shutil.rmtree(self._staging, ignore_errors=True)
                raise
        return [ModelFile(path) for path in found]

    def install(self) -> None:
        files = {**self._listed, **self.fetched}
        for path in files.keys() - self.fetched.keys():
            # Left by an interrupted pull of another version.
            (self._staging / path).unlink(missing_ok=True)
        manifest = Manifest(self._record.repository, self._commit, tuple(files[path] for path in sorted(files)))
        install_files(self._staging, self._folder, manifest)
        shutil.rmtree(self._staging, ignore_errors=True)

    def notes(self, weights: Sequence[ModelFile]) -> tuple[str, ...]:
        """Return notes on the version: this pull replaced another one, or a newer one is published."""
        repository = self._record.repository
        changed = [path for path, item in self.fetched.items() if self._listed.get(path, item).sha256 != item.sha256]
        if changed:
            old, new = ((commit or "unknown")[:12] for commit in (self._old_commit, self._commit))
            return (f"'{repository}' went from revision {old} to {new}: other bytes in {', '.join(changed)}",)
        if self._record.revision != UNPINNED or self._revision == UNPINNED:
            return ()
        for item in weights:
            newest = None
            with suppress(ModelError):  # the note is optional
                newest = describe_file(repository, item.path, UNPINNED, self._endpoint)
            here = self.fetched.get(item.path) or self._listed[item.path]
            if newest is not None and newest.sha256 not in (None, here.sha256):
                hint = f"'qmd models pull {self._record.name} --refresh' takes it"
                return (f"a newer '{item.path}' is published in '{repository}'; {hint}",)
        return ()

    def _find_missing(self, file: ModelFile, is_optional: bool) -> HubFile | None:
        """Return the file as the hub has it; None when it is complete here, or optional and absent from the hub.

        Raises:
            ModelError: If it is missing, or differs from the pinned one.
        """
        pinned = file.sha256 or self._promised.get(file.path)
        if self._is_here(file.path, pinned):
            return None
        title = f"'{file.path}' of '{self._record.repository}'"
        remote = describe_file(self._record.repository, file.path, self._revision, self._endpoint)
        if remote is None:
            if is_optional:
                return None
            hint = "the mirror may lack it: unset HF_ENDPOINT" if self._endpoint else "upgrade qmd"
            raise ModelError(f"the hub has no {title} at revision '{self._revision}'", hint)
        if self._revision == UNPINNED and remote.commit:
            # All files of one version.
            self._revision = remote.commit
        self._commit = remote.commit or self._commit
        expected = pinned or remote.sha256
        if expected and remote.sha256 not in (None, expected):
            difference = f"sha256 {remote.sha256:.12}… instead of {expected:.12}…"
            raise ModelError(f"{title} is not the pinned one: {difference}", self._hint(file.path))
        if pinned is None and self._is_here(file.path, expected):
            return None
        size = file.size_bytes if remote.size_bytes is None else remote.size_bytes
        return replace(remote, sha256=expected, size_bytes=size)

    def _is_here(self, path: str, digest: str | None) -> bool:
        """Return whether a file is here with these bytes. Reads it whole."""
        place = self._folder / path
        if digest is None or not place.is_file() or sha256_of(place) != digest:
            return False
        self._listed[path] = ModelFile(path, place.stat().st_size, digest)
        return True

    def _hint(self, path: str) -> str:
        """Return the hint for bytes that differ from the pinned ones."""
        if path in self._promised and self._record.revision == UNPINNED:
            return f"to take the published version: qmd models pull {self._record.name} --refresh"
        if self._endpoint:
            return "the mirror may be faulty or out of date: unset HF_ENDPOINT, then: qmd models pull"
        return "try again: qmd models pull; if it happens again, upgrade qmd"

    def _check_space(self, missing: int, form_bytes: int) -> None:
        """Refuse a pull that exceeds the disk space, with the way to omit the form if that is enough."""
        check_space(self._folder.parent, missing)
        try:
            check_space(self._folder.parent, missing + form_bytes)
        except ModelError as exc:
            raise ModelError(
                f"{exc.message}; {form_bytes >> 20} MiB of it are for the form that is fastest on this CPU",
                f"free some space, or skip the form: qmd models pull {self._record.name} --no-prepare",
            ) from exc

    def _partial_path(self, item: HubFile) -> Path:
        """Return the partial file, named after its version, so that two versions are never mixed."""
        version = (item.sha256 or item.commit or "unknown")[:12]
        return path_below(self._staging, f"{item.path}.{version}.partial", item.title)

    def _fetch_checked(self, item: HubFile) -> ModelFile:
        final, partial, on_progress = self._staging / item.path, self._partial_path(item), self._on_progress
        partial.parent.mkdir(parents=True, exist_ok=True)
        if final.exists() and item.sha256 is not None:
            # The pull ended between files: finished ones go through the check again.
            final.replace(partial)
        # Without a known size a partial file looks complete.
        if item.size_bytes is None:
            partial.unlink(missing_ok=True)
        report = None if on_progress is None else (lambda done: on_progress(item.path, done, item.size_bytes))
        fetch(item, partial, on_bytes=report)
        digest = sha256_of(partial)
        if item.sha256 is not None and digest != item.sha256:
            partial.unlink()
            difference = f"sha256 {digest:.12}… instead of {item.sha256:.12}…"
            raise ModelError(f"{item.title} is not what was expected: {difference}", self._hint(item.path))
        size = partial.stat().st_size
        partial.replace(final)
        return ModelFile(item.path, size, digest)
