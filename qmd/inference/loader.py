"""Settings in, engines out: which model serves which role, and what is said when one cannot."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from qmd.config.paths import expand_home
from qmd.config.trust import ORIGINAL_MODELS
from qmd.errors import ModelError
from qmd.inference.base import Embedder, EngineDescription, Engines, Expander, Reranker
from qmd.inference.models.catalogue import (
    MAXSIM_NAME,
    MINILM,
    EmbedOverrides,
    ModelRecord,
    Role,
    find_model,
    full_model,
    is_fastembed,
    is_gguf_address,
)
from qmd.inference.models.imported import find_imported
from qmd.inference.models.weights import describe_folder, locate_builtin, locate_model
from qmd.inference.settings import AUTO, BUILT_IN, EngineSettings
from qmd.plugins import hook

if TYPE_CHECKING:
    from qmd.inference.engines.bulk_embedding import BulkEmbedder
    from qmd.inference.engines.embedder import OnnxEmbedder
    from qmd.plugins.servers.client import RemoteClient

_WORK: Mapping[Role, str] = {"embed": "embedding", "rerank": "reranking", "expand": "expansion"}
_Engine = TypeVar("_Engine")


class ModelChoice(Struct, frozen=True):
    """What serves a role: a catalogue record and its folder, None for nothing, and why it is not what was asked."""

    record: ModelRecord | None
    folder: Path | None
    note: str | None = None


def load_engines(settings: EngineSettings, roles: Collection[Role]) -> Engines:
    """Open the models of `roles`; a role without a usable model is None, with the reason in `notes`.

    `auto` takes the full tier where its files are whole, else the built-in tier. A reranker that fails to open is
    replaced by the built-in one. An embedder is not: its vectors are another model's, so the search goes on by words.
    Either way the reason is among the `failures`. The built-in reranker shares the embedder's session when both are the
    built-in model.
    """
    loading = _Loading(settings)
    embedder = loading.attempt(loading.chosen_embedder, "embed") if "embed" in roles else None
    reranker = loading.attempt(loading.chosen_reranker, "rerank") if "rerank" in roles else None
    if reranker is None and "rerank" in roles:
        reranker = loading.attempt(lambda: loading.maxsim(embedder), None)
    expander = loading.attempt(loading.chosen_expander, "expand") if "expand" in roles else None
    notes = tuple(dict.fromkeys([*loading.failures, *loading.notes]))
    return Engines(
        embedder, reranker, expander, notes, standing=tuple(loading.standing), failures=tuple(loading.failures)
    )


def choose_model(settings: EngineSettings, role: Role) -> ModelChoice:
    """Which model serves `role`, opening nothing.

    A GGUF address, which configurations of tobi/qmd hold, means the model imported from that file. Where it has not
    been imported it stands for the full tier's model if that is here, else for the built-in one; a note says so.

    Raises:
        ModelError: The model asked for is unknown or not on this machine.
    """
    asked = settings.model_for(role)
    full = full_model(role)
    if asked == AUTO:
        folder = locate_model(full, settings.models_dir)
        return ModelChoice(full if folder else None, folder)
    if asked == BUILT_IN:
        return ModelChoice(None, None)
    local = expand_home(asked)
    if local.is_dir():
        overrides = settings.embed_overrides if role == "embed" else EmbedOverrides()
        known = find_model(local.name.replace("--", "/"), role) if overrides == EmbedOverrides() else None
        if known is None:
            own = replace(full, name=local.name, repository=str(local), revision="local", licence="unknown")
            own = replace(own, network=None)
            known = describe_folder(local, overrides) if role == "embed" else own
        return ModelChoice(known, local)
    imported = find_imported(asked, settings.models_dir, role)
    if imported is not None:
        return ModelChoice(imported.record, settings.models_dir / imported.record.folder)
    if is_gguf_address(asked):
        return _stand_in(asked, settings, role)
    if is_fastembed(asked):
        from qmd.plugins.fastembed.catalogue import fastembed_record

        record: ModelRecord | None = fastembed_record(asked, role)
    else:
        record = find_model(asked, role)
    if record is None:
        raise ModelError("it is neither a folder nor in the catalogue", "see: qmd models list")
    if record.tier == BUILT_IN:
        return ModelChoice(None, None)
    folder = locate_model(record, settings.models_dir)
    if folder is None:
        raise ModelError("it is not on this machine", f"get it: qmd models pull {record.name}")
    return ModelChoice(record, folder)


def _stand_in(asked: str, settings: EngineSettings, role: Role) -> ModelChoice:
    """What serves in place of a GGUF model that has not been imported, and the line that says so."""
    here = expand_home(asked)
    file = here if here.is_file() else hook("GGUF address: file")(asked, settings.models_dir)
    remedy = f"to use it: qmd models import {shlex.quote(str(file or 'FILE'))}"
    record = find_model(asked, role)
    folder = locate_model(record, settings.models_dir) if record is not None else None
    if record is None or folder is None:
        pull = f"; or get {record.name}: qmd models pull {record.name}" if record is not None else ""
        return ModelChoice(None, None, f"{role} model '{asked}' is not used; {remedy}{pull}")
    return ModelChoice(record, folder, f"{record.name} stands in for the {role} model '{asked}'; {remedy}")


class EmbedderIdentity(Struct, frozen=True):
    """What an `Embedder` says of itself."""

    description: EngineDescription
    fingerprint: str


def identify_embedder(settings: EngineSettings) -> EmbedderIdentity | None:
    """The embedder that `load_engines` would open, told from its files in milliseconds.

    None where only opening it tells: a server's model, one of fastembed, one that runs on a GPU where there is one; and
    where something is to be said of the model, or is wrong with it.
    """
    if settings.names_server("embed") or is_fastembed(settings.model_for("embed")):
        return None
    from qmd.inference.models.fingerprints import encoder_fingerprint
    from qmd.inference.models.weights_choice import choose_weights, has_gpu_file
    from qmd.inference.runtime.gpu_memory import load_driver
    from qmd.inference.runtime.sessions import preferred_provider

    try:
        choice = choose_model(settings, "embed")
        record, folder = choice.record or MINILM, choice.folder or locate_builtin()
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
    """Opens one engine per role and keeps what is to be said of them."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self.notes: list[str] = []
        self.standing: list[str] = []
        self.failures: list[str] = []

    def attempt(self, load: Callable[[], _Engine | None], role: Role | None) -> _Engine | None:
        """What `load` gives; None after a failure, which is noted with its remedy on one line."""
        try:
            return load()
        except (ModelError, ImportError) as exc:
            hint = f"; {exc.hint}" if isinstance(exc, ModelError) and exc.hint else ""
            reason = f"{exc}{hint}"
        # A missing package stops every role for one reason.
        if not any(line.endswith(reason) for line in self.failures):
            what = f"{_WORK[role]} model '{_shown(self._settings, role)}'" if role else "built-in reranking"
            self.failures.append(f"{what} cannot be used: {reason}")
        return None

    def chosen_embedder(self) -> Embedder:
        """The configured or full-tier embedder, else the built-in one."""
        settings = self._settings
        server = self._server("embed")
        if server is not None:
            from qmd.plugins.servers.engines import connect_embedder

            return connect_embedder(server)
        found = self._found("embed")
        if found is None:
            return self._builtin()
        if is_fastembed(found[1].name):
            from qmd.plugins.fastembed.bulk import load_fastembed_embedder

            return load_fastembed_embedder(*found, settings)
        return _open_embedder(*found, settings)

    def chosen_reranker(self) -> Reranker | None:
        """The configured or full-tier reranker; None where the built-in one is meant."""
        server = self._server("rerank")
        if server is not None:
            from qmd.plugins.servers.engines import RemoteReranker

            return RemoteReranker(server)
        found = self._found("rerank")
        if found is None:
            return None
        from qmd.inference.engines.cpu_fallback import FallbackReranker

        if is_fastembed(found[1].name):
            from qmd.plugins.fastembed.rerankers import load_fastembed_reranker

            return FallbackReranker(lambda with_gpu: load_fastembed_reranker(*found, self._with_gpu(with_gpu)))
        from qmd.plugins.qwen.cross_encoder import load_cross_encoder

        return FallbackReranker(lambda with_gpu: load_cross_encoder(*found, self._with_gpu(with_gpu)))

    def chosen_expander(self) -> Expander | None:
        """The configured or full-tier expander; the built-in tier has none, for no small one earned its time."""
        server = self._server("expand")
        if server is not None:
            from qmd.plugins.servers.expander import RemoteExpander

            return RemoteExpander(server)
        found = self._found("expand")
        if found is None:
            return None
        from qmd.inference.engines.cpu_fallback import FallbackExpander
        from qmd.plugins.qwen.expansion import load_expander

        return FallbackExpander(lambda with_gpu: load_expander(*found, self._with_gpu(with_gpu)))

    def _with_gpu(self, with_gpu: bool) -> EngineSettings:
        return self._settings if with_gpu else replace(self._settings, allow_gpu=False)

    def maxsim(self, embedder: Embedder | None) -> Reranker:
        """The built-in reranker, over the encoder of `embedder` where that is the built-in model."""
        from qmd.inference.engines.bulk_embedding import BulkEmbedder
        from qmd.inference.engines.embedder import OnnxEmbedder
        from qmd.inference.engines.maxsim import MaxSimReranker

        if isinstance(embedder, BulkEmbedder):
            embedder = embedder.inner
        if not isinstance(embedder, OnnxEmbedder) or embedder.description.tier != BUILT_IN:
            from qmd.inference.engines.embedder import load_embedder

            embedder = load_embedder(locate_builtin(), MINILM, threads=self._settings.usable_threads)
        return MaxSimReranker(embedder.encoder, MAXSIM_NAME)

    def _builtin(self) -> Embedder:
        return _open_embedder(locate_builtin(), MINILM, self._settings)

    def _found(self, role: Role) -> tuple[Path, ModelRecord] | None:
        """The folder and record of the chosen model, None for the built-in tier; what is to be said is noted."""
        choice = choose_model(self._settings, role)
        if choice.note is not None:
            self.notes.append(choice.note)
            if self._settings.model_for(role) in ORIGINAL_MODELS:
                self.standing.append(choice.note)
        if choice.record is None or choice.folder is None:
            return None
        if role != "embed":
            from qmd.inference.models.prepared import prepared_notes
            from qmd.inference.models.weights_choice import form_note

            note = form_note(choice.folder, choice.record, self._settings.form_for(role))
            self.notes.extend([note] if note else prepared_notes(choice.record, choice.folder))
        return choice.folder, choice.record

    def _server(self, role: Role) -> RemoteClient | None:
        """The client of the server that serves a role."""
        # Asked before an import that every search would pay for.
        if not self._settings.names_server(role):
            return None
        from qmd.plugins.servers.client import RemoteClient
        from qmd.plugins.servers.settings import remote_settings

        asked = self._settings.model_for(role)
        overrides = self._settings.embed_overrides if role == "embed" else EmbedOverrides()
        server = remote_settings(role, "" if asked in (AUTO, BUILT_IN) else asked, self._settings.env, overrides)
        return None if server is None else RemoteClient(server, _WORK[role])


def _open_embedder(folder: Path, record: ModelRecord, settings: EngineSettings) -> OnnxEmbedder | BulkEmbedder:
    """The embedder of a folder; where a GPU may be used, one that gives it documents once there are many."""
    from qmd.inference.engines.embedder import load_embedder
    from qmd.inference.runtime.gpu_memory import load_driver

    def load(allow_gpu: bool) -> OnnxEmbedder:
        gpu = settings.gpu_use("embed")
        return load_embedder(folder, record, threads=settings.usable_threads, allow_gpu=allow_gpu, gpu=gpu)

    inner = load(settings.gpu_allowed)
    if not settings.gpu_allowed or load_driver() is None:
        return inner
    from qmd.inference.engines.bulk_embedding import BulkEmbedder, batches_of_session, open_batches

    if inner.session.got == "cuda":
        return BulkEmbedder(inner, lambda: batches_of_session(inner.session), lambda: load(False), patience=0)
    if record.batches is None:
        return inner
    path, use = folder / record.batches.path, replace(settings.gpu_use("embed"), needs_fp32=True)
    return BulkEmbedder(inner, lambda: open_batches(path, use), lambda: inner)


def _shown(settings: EngineSettings, role: Role) -> str:
    """What messages call the model of a role: as it was asked for, without what may be a key."""
    asked = settings.model_for(role)
    if asked == AUTO:
        full = full_model(role)
        return full.name if locate_model(full, settings.models_dir) else MINILM.name
    address, _, name = asked.partition("#")
    return f"{address.partition('?')[0]}#{name}" if name else asked
