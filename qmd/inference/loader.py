"""Choice and opening of engines: settings in, one engine per role out, with a note for each that fails."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from qmd.config.paths import expand_home
from qmd.config.trust import ORIGINAL_MODELS
from qmd.errors import ModelError
from qmd.inference.base import Embedder, EngineDescription, EngineProvider, Engines, Expander, Reranker, engine_provider
from qmd.inference.models.builtin import MAXSIM_NAME, MINILM, MULTILINGUAL, locate_builtin
from qmd.inference.models.catalogue import advice_on, chunk_tokens, find_model, full_model, is_gguf_address
from qmd.inference.models.imported import find_imported
from qmd.inference.models.weights import locate_model
from qmd.inference.records import EmbedOverrides, ModelChoice, ModelRecord, Role
from qmd.inference.settings import AUTO, BUILT_IN, WORK, EngineSettings
from qmd.plugins import hooks

if TYPE_CHECKING:
    from qmd.inference.engines.cpu_fallback import FallbackEngine

_Engine = TypeVar("_Engine")
_Local = TypeVar("_Local", bound=Reranker | Expander)


def load_engines(settings: EngineSettings, roles: Collection[Role]) -> Engines:
    """Open the models of `roles`; a role without a usable model is None, with the reason in `notes`.

    `auto` takes the full tier if its files are complete, else the built-in tier. A reranker that fails to open is
    replaced by the built-in one. An embedder is not: its vectors are another model's, so the search is lexical only.
    Either way the reason is among the `failures`. The built-in reranker shares the embedder's session when both are the
    built-in model.
    """
    loading = _Loading(settings)
    is_split = bool(settings.by_collection) and chooses_by_language(settings)
    # An index from elsewhere may name anything.
    names = [name for name in ("", MULTILINGUAL.name) if name in settings.by_collection] if is_split else [""]
    opened = {
        name: loading.attempt(partial(loading.embedder, name), "embed", name) for name in names * ("embed" in roles)
    }
    embedders = {name: one for name, one in opened.items() if one is not None}
    embedder = next(iter(embedders.values()), None)
    reranker = loading.attempt(loading.reranker, "rerank") if "rerank" in roles else None
    if reranker is None and "rerank" in roles:
        reranker = loading.attempt(lambda: loading.maxsim(embedders.get("")), None)
    expander = loading.attempt(loading.expander, "expand") if "expand" in roles else None
    failures, lasting_notes = tuple(loading.failures), tuple(loading.lasting_notes)
    notes = tuple(dict.fromkeys([*failures, *loading.notes]))
    own = embedders if is_split else {}
    return Engines(embedder, reranker, expander, notes, failures, lasting_notes=lasting_notes, embedders=own)


def chooses_by_language(settings: EngineSettings) -> bool:
    """Return whether collections may have different built-in models: none is configured, or in the full tier."""
    is_auto = settings.model_for("embed") == AUTO and settings.provider_for("embed") is None
    return is_auto and choose_model(settings, "embed").record is None


def choose_model(settings: EngineSettings, role: Role) -> ModelChoice:
    """Return the model that serves `role`, without opening it.

    A GGUF address, as in configurations of tobi/qmd, means the model imported from that file. If it is not imported,
    the full tier's model replaces it if present, else the built-in one, with a note.

    Raises:
        ModelError: The model asked for is unknown or not on this machine.
    """
    name, provider, full = settings.model_for(role), settings.provider_for(role), full_model(role)
    if provider is not None:
        record = engine_provider(provider).find_record(name, role)
        return ModelChoice() if record is None else _fetched(record, settings)
    if name == AUTO:
        folder = locate_model(full, settings.models_dir)
        return ModelChoice(full if folder else None, folder)
    if name == BUILT_IN:
        return ModelChoice()
    local = expand_home(name)
    if local.is_dir():
        return ModelChoice(_describe(local, role, settings), local)
    imported = find_imported(name, settings.models_dir, role)
    if imported is not None:
        return ModelChoice(imported.record, settings.models_dir / imported.record.folder)
    if is_gguf_address(name):
        return _stand_in(name, settings, role)
    record = find_model(name, role)
    if record is None:
        raise ModelError("it is neither a folder nor in the catalogue", "see: qmd models list")
    if record is MINILM:
        return ModelChoice()
    return ModelChoice(record, locate_builtin(record)) if record.tier == BUILT_IN else _fetched(record, settings)


def _fetched(record: ModelRecord, settings: EngineSettings) -> ModelChoice:
    """Return a model that `models pull` fetches, if it is here."""
    folder = locate_model(record, settings.models_dir)
    if folder is None:
        raise ModelError("it is not on this machine", f"get it: qmd models pull {record.name}")
    return ModelChoice(record, folder)


def _describe(folder: Path, role: Role, settings: EngineSettings) -> ModelRecord:
    """Return the record of a user's own folder: of the model that it is named after, else by its files."""
    overrides = replace(settings.embed_overrides, max_tokens=None) if role == "embed" else EmbedOverrides()
    known = find_model(folder.name.replace("--", "/"), role) if overrides == EmbedOverrides() else None
    if known is not None and known is not MULTILINGUAL:
        return known
    if role == "embed":
        return hooks.describe_folder(folder, overrides)
    own = replace(full_model(role), name=folder.name, repository=str(folder), revision="local", licence="unknown")
    return replace(own, network=None)


def _stand_in(name: str, settings: EngineSettings, role: Role) -> ModelChoice:
    """Return the replacement of a GGUF model that is not imported, with a note."""
    remedy = hooks.gguf_remedy(name, settings.models_dir)
    record = find_model(name, role)
    folder = locate_model(record, settings.models_dir) if record is not None else None
    if record is None or folder is None:
        pull = f"; or get {record.name}: qmd models pull {record.name}" if record is not None else ""
        return ModelChoice(None, None, f"{role} model '{name}' is not used; {remedy}{pull}")
    return ModelChoice(record, folder, f"{record.name} replaces the {role} model '{name}'; {remedy}")


def advice_for(settings: EngineSettings, language: str) -> str | None:
    """Return the advice on notes in another language than English; None if the built-in model does not embed."""
    with suppress(ModelError):
        if settings.provider_for("embed") is None and choose_model(settings, "embed").record is None:
            return advice_on(language)
    return None


class EmbedderIdentity(Struct, frozen=True):
    """An `Embedder`'s description and fingerprint, known without opening it."""

    description: EngineDescription
    fingerprint: str


def identify_embedder(settings: EngineSettings, name: str = "") -> EmbedderIdentity | None:
    """Return the identity of the embedder that `load_engines` would open, read from its files in milliseconds.

    None if only opening it can tell: for a model of another provider, for a model that runs on a GPU if there is one,
    and for a model with a note or an error. `name` is another built-in model than the default one.
    """
    if settings.provider_for("embed") is not None:
        return None
    from qmd.inference.models.weights import encoder_fingerprint
    from qmd.inference.models.weights_choice import choose_weights, has_gpu_file
    from qmd.inference.runtime.gpu_memory import load_driver
    from qmd.inference.runtime.sessions import preferred_provider

    try:
        choice = choose_model(replace(settings, embed=name or settings.embed), "embed")
        record, folder = _with_chunks(choice.record or MINILM, settings), choice.folder or locate_builtin()
        weights = choose_weights(folder, record, allow_gpu=False)
        if choice.note is not None or preferred_provider(weights.format).provider != "cpu":
            return None
        if has_gpu_file(folder, record) and load_driver() is not None:
            return None
        fingerprint = encoder_fingerprint(folder, record, weights.path)
    except (ModelError, OSError):
        return None
    return EmbedderIdentity(EngineDescription("embed", record.name, weights.format, record.tier, "cpu"), fingerprint)


class _Loading:
    """Opener of one engine per role, which collects notes and failures."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self.notes: list[str] = []
        self.lasting_notes: list[str] = []
        self.failures: list[str] = []

    def attempt(self, load: Callable[[], _Engine | None], role: Role | None, name: str = "") -> _Engine | None:
        """Return what `load` returns; None after a failure, which is noted with its remedy on one line."""
        try:
            return load()
        except (ModelError, ImportError) as exc:
            hint = f"; {exc.hint}" if isinstance(exc, ModelError) and exc.hint else ""
            reason = f"{exc}{hint}"
        # A missing package fails every role for one reason.
        if not any(line.endswith(reason) for line in self.failures):
            what = f"{WORK[role]} model '{name or _shown(self._settings, role)}'" if role else "built-in reranking"
            self.failures.append(f"{what} cannot be used: {reason}")
        return None

    def embedder(self, name: str = "") -> Embedder:
        """Open the configured or full-tier embedder, else the built-in one, or another built-in one by its name."""
        if name:
            return _open_embedder(*choose_model(replace(self._settings, embed=name), "embed").here, self._settings)
        choice, provider = self._choice("embed"), self._settings.provider_for("embed")
        if provider is not None:
            return engine_provider(provider).open_embedder(choice, self._settings)
        return _open_embedder(*(choice.here if choice.folder else (locate_builtin(), MINILM)), self._settings)

    def reranker(self) -> Reranker | None:
        """Open the configured or full-tier reranker; None selects the built-in one."""
        return self._local("rerank", lambda provider: provider.open_reranker)

    def expander(self) -> Expander | None:
        """Open the configured or full-tier expander. There is no built-in one: no small one was worth its time."""
        return self._local("expand", lambda provider: provider.open_expander)

    def _local(
        self, role: Role, opener: Callable[[EngineProvider], Callable[[ModelChoice, EngineSettings], _Local]]
    ) -> _Local | FallbackEngine[_Local] | None:
        """Open a role's model; one with files here falls back to the CPU."""
        settings, choice, named = self._settings, self._choice(role), self._settings.provider_for(role)
        if choice.folder is None and named is None:
            return None
        open_with = opener(engine_provider(named or role))
        if choice.folder is None:
            return open_with(choice, settings)
        from qmd.inference.engines.cpu_fallback import FallbackEngine

        without = replace(settings, allow_gpu=False)
        return FallbackEngine(lambda with_gpu: open_with(choice, settings if with_gpu else without))

    def maxsim(self, embedder: Embedder | None) -> Reranker:
        """Open the built-in reranker, on the encoder of `embedder` if that is MiniLM, the one that it reads with."""
        from qmd.inference.engines.bulk_embedding import BulkEmbedder
        from qmd.inference.engines.embedder import OnnxEmbedder, load_embedder
        from qmd.inference.engines.maxsim import MaxSimReranker

        if isinstance(embedder, BulkEmbedder):
            embedder = embedder.inner
        # With the vectors of the multilingual model it ranked English notes no better, at twice the cost.
        if not isinstance(embedder, OnnxEmbedder) or embedder.record.repository != MINILM.repository:
            embedder = load_embedder(locate_builtin(), MINILM, threads=self._settings.threads_for("embed"))
        return MaxSimReranker(embedder.encoder, MAXSIM_NAME)

    def _choice(self, role: Role) -> ModelChoice:
        """Return the model that serves a role, and note its message."""
        choice = choose_model(self._settings, role)
        if choice.note is not None:
            self.notes.append(choice.note)
            if self._settings.model_for(role) in ORIGINAL_MODELS:
                self.lasting_notes.append(choice.note)
        if choice.folder is not None and role != "embed":
            from qmd.inference.models.prepared import prepared_notes
            from qmd.inference.models.weights_choice import form_note

            folder, record = choice.here
            note = form_note(folder, record, self._settings.form_for(role))
            self.notes.extend([note] if note else prepared_notes(record, folder))
        return choice


def _open_embedder(folder: Path, record: ModelRecord, settings: EngineSettings) -> Embedder:
    """Open a folder's embedder; if a GPU may be used, one that sends it documents once there are many."""
    from qmd.inference.engines.embedder import load_embedder
    from qmd.inference.runtime.gpu_memory import load_driver

    gpu, threads, record = settings.gpu_use("embed"), settings.threads_for("embed"), _with_chunks(record, settings)
    load = partial(load_embedder, folder, record, threads=threads, gpu=gpu)
    inner = load(allow_gpu=settings.gpu_allowed)
    if not settings.gpu_allowed or load_driver() is None:
        return inner
    from qmd.inference.engines.bulk_embedding import BulkEmbedder, open_batches
    from qmd.inference.engines.encoder_graph import BatchRuns

    if inner.session.got == "cuda":
        return BulkEmbedder(inner, lambda: BatchRuns(inner.session), lambda: load(allow_gpu=False), patience=0)
    if record.batches is None:
        return inner
    path = folder / record.batches.path
    return BulkEmbedder(inner, lambda: open_batches(path, replace(gpu, needs_fp32=True)), lambda: inner)


def _with_chunks(record: ModelRecord, settings: EngineSettings) -> ModelRecord:
    """Return a record with the length of chunks that is set, as far as the model's context permits."""
    most = settings.embed_overrides.max_tokens
    return replace(record, max_tokens=chunk_tokens(record.context, record.document_prompt, most)) if most else record


def _shown(settings: EngineSettings, role: Role) -> str:
    """Return a role's model as messages show it: the name asked for, without a possible key."""
    chosen = settings.model_for(role)
    if chosen == AUTO:
        full = full_model(role)
        return full.name if locate_model(full, settings.models_dir) else MINILM.name
    address, _, name = chosen.partition("#")
    return f"{address.partition('?')[0]}#{name}" if name else chosen
