"""Settings in, engines out: which model serves which role, and what is said when one cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.errors import ModelError
from qmd.inference.base import Embedder, Engines, Expander, Reranker
from qmd.inference.models.catalogue import (
    MAXSIM_NAME,
    MINILM,
    ModelRecord,
    Role,
    find_model,
    full_model,
    is_gguf_address,
)
from qmd.inference.models.weights import describe_folder, locate_builtin, locate_model
from qmd.inference.settings import AUTO, BUILT_IN, FASTEMBED_PREFIX, EngineSettings
from qmd.quick_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from qmd.inference.engines.embedder import OnnxEmbedder
    from qmd.inference.engines.remote_client import RemoteSettings

_ENV_URLS: Mapping[Role, str] = {
    "embed": "QMD_EMBED_URL",
    "rerank": "QMD_RERANK_URL",
    "expand": "QMD_GENERATE_URL",
}


@dataclass(frozen=True, slots=True)
class ModelChoice:
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
    notes, failures = _Lines(), _Lines()
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    expander: Expander | None = None
    if "embed" in roles:
        embedder = _load_embedder(settings, notes, failures)
    if "rerank" in roles:
        reranker = _load_reranker(settings, embedder, notes, failures)
    if "expand" in roles:
        expander = _load_expander(settings, notes, failures)
    return Engines(embedder, reranker, expander, tuple(dict.fromkeys([*failures, *notes])), tuple(failures))


def choose_model(settings: EngineSettings, role: Role) -> ModelChoice:
    """Which model serves `role`, opening nothing.

    A GGUF address, which configurations of tobi/qmd hold, stands for the full tier's model where that is here, and for
    the built-in one with a note where it is not.

    Raises:
        ModelError: The model asked for is unknown or not on this machine.
    """
    asked = settings.model_for(role)
    full = full_model(role)
    if asked == AUTO:
        folder = locate_model(full, settings.models_dir)
        return ModelChoice(full, folder) if folder is not None else ModelChoice(None, None)
    if asked == BUILT_IN:
        return ModelChoice(None, None)
    local = Path(asked).expanduser()
    if local.is_dir():
        known = find_model(local.name.replace("--", "/"), role)
        if known is None:
            own = replace(full, name=local.name, repository=str(local), revision="local", licence="unknown")
            known = describe_folder(local) if role == "embed" else own
        return ModelChoice(known, local)
    record = find_model(asked, role)
    if record is None:
        if is_gguf_address(asked):
            note = f"{role} model '{asked}' is not used: GGUF models cannot be read; see: qmd models list"
            return ModelChoice(None, None, note)
        raise ModelError("it is neither a folder nor in the catalogue", "see: qmd models list")
    if record.tier == BUILT_IN:
        return ModelChoice(None, None)
    folder = locate_model(record, settings.models_dir)
    if folder is None and is_gguf_address(asked):
        return ModelChoice(None, None, f"{role} model '{asked}' is not on this machine; get it: qmd models pull")
    if folder is None:
        raise ModelError("it is not on this machine", f"get it: qmd models pull {record.name}")
    return ModelChoice(record, folder)


class _Lines(list[str]):
    """Lines for the user."""

    def add(self, about: str, error: ModelError | ImportError) -> None:
        """Note an error with its remedy, on one line."""
        hint = f"; {error.hint}" if isinstance(error, ModelError) and error.hint else ""
        reason = f"{error}{hint}"
        # A missing package stops every role for one reason.
        if not any(line.endswith(reason) for line in self):
            self.append(f"{about}: {reason}")


def _load_embedder(settings: EngineSettings, notes: _Lines, failures: _Lines) -> Embedder | None:
    try:
        return _open_chosen_embedder(settings, notes)
    except (ModelError, ImportError) as exc:
        failures.add(f"embedding model '{_shown(settings, 'embed')}' cannot be used", exc)
        return None


def _open_chosen_embedder(settings: EngineSettings, notes: _Lines) -> Embedder | None:
    asked = settings.model_for("embed")
    server = _server(settings, "embed")
    if server is not None:
        from qmd.inference.engines.remote import connect_embedder

        return connect_embedder(server, settings.env)
    if asked.startswith(FASTEMBED_PREFIX):
        from qmd.inference.engines.fastembed_bulk import load_fastembed

        name = asked.removeprefix(FASTEMBED_PREFIX)
        return load_fastembed(name, settings.models_dir / "fastembed", threads=settings.usable_threads)
    choice = _choose(settings, "embed", notes)
    if choice.record is None or choice.folder is None:
        return _open_embedder(locate_builtin(), MINILM, settings)
    return _open_embedder(choice.folder, choice.record, settings)


def _open_embedder(folder: Path, record: ModelRecord, settings: EngineSettings) -> OnnxEmbedder:
    from qmd.inference.engines.embedder import load_embedder

    return load_embedder(folder, record, threads=settings.usable_threads, allow_gpu=settings.gpu_allowed)


def _load_reranker(
    settings: EngineSettings, embedder: Embedder | None, notes: _Lines, failures: _Lines
) -> Reranker | None:
    try:
        chosen = _open_chosen_reranker(settings, notes)
        if chosen is not None:
            return chosen
    except (ModelError, ImportError) as exc:
        failures.add(f"reranking model '{_shown(settings, 'rerank')}' cannot be used", exc)
    try:
        return _open_maxsim(settings, embedder)
    except (ModelError, ImportError) as exc:
        failures.add("built-in reranking cannot be used", exc)
        return None


def _open_chosen_reranker(settings: EngineSettings, notes: _Lines) -> Reranker | None:
    """The configured or full-tier reranker; None where the built-in one is meant."""
    server = _server(settings, "rerank")
    if server is not None:
        from qmd.inference.engines.remote import connect_reranker

        return connect_reranker(server, settings.env)
    choice = _choose(settings, "rerank", notes)
    if choice.record is None or choice.folder is None:
        return None
    from qmd.inference.engines.cross_encoder import load_cross_encoder
    from qmd.inference.models.weights_choice import prepared_notes

    notes.extend(prepared_notes(choice.folder, choice.record))
    return load_cross_encoder(choice.folder, settings, record=choice.record)


def _open_maxsim(settings: EngineSettings, embedder: Embedder | None) -> Reranker:
    from qmd.inference.engines.embedder import OnnxEmbedder
    from qmd.inference.engines.maxsim import MaxSimReranker

    is_shared = isinstance(embedder, OnnxEmbedder) and embedder.description.tier == BUILT_IN
    builtin = embedder if is_shared else _open_embedder(locate_builtin(), MINILM, settings)
    assert isinstance(builtin, OnnxEmbedder)
    return MaxSimReranker(builtin.encoder, MAXSIM_NAME)


def _load_expander(settings: EngineSettings, notes: _Lines, failures: _Lines) -> Expander | None:
    """The full tier's or a server's expander, or None: the built-in tier has none, for no small one earned its time."""
    try:
        server = _server(settings, "expand")
        if server is not None:
            from qmd.inference.engines.remote import connect_expander

            return connect_expander(server, settings.env)
        choice = _choose(settings, "expand", notes)
        if choice.record is None or choice.folder is None:
            return None
        from qmd.inference.engines.expansion import load_expander
        from qmd.inference.models.weights_choice import prepared_notes

        notes.extend(prepared_notes(choice.folder, choice.record))
        return load_expander(choice.folder, settings, record=choice.record)
    except (ModelError, ImportError) as exc:
        failures.add(f"expansion model '{_shown(settings, 'expand')}' cannot be used", exc)
        return None


def _server(settings: EngineSettings, role: Role) -> RemoteSettings | None:
    """The server that serves a role."""
    asked = settings.model_for(role)
    # Two look-ups before an import that every search would pay for.
    if not asked.startswith("http") and not settings.env.get(_ENV_URLS[role]):
        return None
    from qmd.inference.engines.remote_settings import remote_settings

    return remote_settings(role, "" if asked in (AUTO, BUILT_IN) else asked, settings.env)


def _shown(settings: EngineSettings, role: Role) -> str:
    """What messages call the model of a role: as it was asked for, without what may be a key."""
    asked = settings.model_for(role)
    if asked == AUTO:
        full = full_model(role)
        return full.name if locate_model(full, settings.models_dir) else MINILM.name
    address, _, name = asked.partition("#")
    return f"{address.partition('?')[0]}#{name}" if name else asked


def _choose(settings: EngineSettings, role: Role, notes: _Lines) -> ModelChoice:
    """`choose_model` with what it has to say in `notes`.

    Raises:
        ModelError: The model asked for is unknown or not on this machine.
    """
    choice = choose_model(settings, role)
    if choice.note is not None:
        notes.append(choice.note)
    return choice
