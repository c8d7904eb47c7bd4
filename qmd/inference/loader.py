"""Settings in, engines out: which model serves which role, and what is said when one cannot."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.errors import ModelError
from qmd.inference.base import Embedder, Engines, Expander, Reranker
from qmd.inference.catalogue import MAXSIM_NAME, MINILM, ModelRecord, Role, find_model, full_model, is_gguf_address
from qmd.inference.weights import describe_folder, locate_builtin, locate_model

if TYPE_CHECKING:
    from qmd.inference.embedder import OnnxEmbedder

AUTO = "auto"
BUILT_IN = "built-in"
FASTEMBED_PREFIX = "fastembed:"

_ENV_NAMES: Mapping[Role, str] = {
    "embed": "QMD_EMBED_MODEL",
    "rerank": "QMD_RERANK_MODEL",
    "expand": "QMD_GENERATE_MODEL",
}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the edge decided about models. A role's model is `auto`, `built-in`, a name, a repository, a
    folder, or (embedding only) `fastembed:NAME`.
    """

    models_dir: Path
    embed: str = AUTO
    rerank: str = AUTO
    expand: str = AUTO
    allow_gpu: bool = True
    threads: int | None = None
    """Threads per engine; None takes what this process may use."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that override: `QMD_EMBED_MODEL`, `QMD_RERANK_MODEL`, `QMD_GENERATE_MODEL`, `QMD_FORCE_CPU`."""

    def model_for(self, role: Role) -> str:
        """The model asked for: the configured one, else the environment's, else `auto`."""
        configured = {"embed": self.embed, "rerank": self.rerank, "expand": self.expand}[role]
        if configured not in ("", AUTO):
            return configured
        return self.env.get(_ENV_NAMES[role], "").strip() or AUTO

    @property
    def usable_threads(self) -> int:
        """Threads to use, at least 1."""
        return max(1, self.threads) if self.threads is not None else usable_cpus()

    @property
    def gpu_allowed(self) -> bool:
        """False when switched off here or by `QMD_FORCE_CPU`."""
        from qmd.inference.sessions import gpu_allowed

        return self.allow_gpu and gpu_allowed(self.env)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """What serves a role: a catalogue record and its folder, None for nothing, and why it is not what was asked."""

    record: ModelRecord | None
    folder: Path | None
    note: str | None = None


def usable_cpus() -> int:
    """CPUs this process may use: its affinity, and the quota of its control group."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()[:2]
        return max(1, min(cpus, round(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return max(1, cpus)


def load_engines(settings: EngineSettings, roles: Collection[Role]) -> Engines:
    """Open the models of `roles`; a role without a usable model is None, with the reason in `notes`.

    `auto` takes the full tier where its files are whole, else the built-in tier. A full-tier model that fails to open
    falls back to the built-in one, with a note: the search goes on with less. The built-in reranker shares the
    embedder's session when both are the built-in model.
    """
    notes: list[str] = []
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    expander: Expander | None = None
    if "embed" in roles:
        embedder = _load_embedder(settings, notes)
    if "rerank" in roles:
        reranker = _load_reranker(settings, embedder, notes)
    if "expand" in roles:
        expander = _load_expander(settings, notes)
    return Engines(embedder, reranker, expander, tuple(dict.fromkeys(notes)))


def choose_model(settings: EngineSettings, role: Role) -> ModelChoice:
    """Which model serves `role`, opening nothing.

    Raises:
        ModelError: A local folder holds no model.
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
            known = describe_folder(local) if role == "embed" else full
        return ModelChoice(known, local)
    record = find_model(asked, role)
    if record is None:
        reason = "GGUF models cannot be read" if is_gguf_address(asked) else "it is not in the catalogue"
        return ModelChoice(None, None, f"{role} model '{asked}' is not used: {reason}; see: qmd models list")
    if record.tier == BUILT_IN:
        return ModelChoice(None, None)
    folder = locate_model(record, settings.models_dir)
    if folder is None:
        return ModelChoice(None, None, f"{role} model '{asked}' is not on this machine; get it: qmd models pull")
    return ModelChoice(record, folder)


def _load_embedder(settings: EngineSettings, notes: list[str]) -> Embedder | None:
    asked = settings.model_for("embed")
    if asked.startswith(FASTEMBED_PREFIX):
        try:
            from qmd.inference.fastembed_bulk import load_fastembed

            name = asked.removeprefix(FASTEMBED_PREFIX)
            return load_fastembed(name, settings.models_dir / "fastembed", threads=settings.usable_threads)
        except (ModelError, ImportError) as exc:
            notes.append(f"built-in embedding instead of '{asked}': {exc}")
            return _open_builtin(settings, notes)
    choice = _choose(settings, "embed", notes)
    if choice.record is not None and choice.folder is not None:
        try:
            return _open_embedder(choice.folder, choice.record, settings)
        except ModelError as exc:
            notes.append(f"built-in embedding instead of '{choice.record.name}': {exc.message}")
    return _open_builtin(settings, notes)


def _open_builtin(settings: EngineSettings, notes: list[str]) -> OnnxEmbedder | None:
    try:
        return _open_embedder(locate_builtin(), MINILM, settings)
    except ModelError as exc:
        notes.append(f"no embedding model: {exc.message}")
        return None


def _open_embedder(folder: Path, record: ModelRecord, settings: EngineSettings) -> OnnxEmbedder:
    try:
        from qmd.inference.embedder import load_embedder

        embedder = load_embedder(folder, record, threads=settings.usable_threads, allow_gpu=settings.gpu_allowed)
    except ImportError as exc:
        raise ModelError(f"the inference packages cannot be imported: {exc}", "reinstall qmd") from exc
    return embedder


def _load_reranker(settings: EngineSettings, embedder: Embedder | None, notes: list[str]) -> Reranker | None:
    choice = _choose(settings, "rerank", notes)
    if choice.record is not None and choice.folder is not None:
        try:
            from qmd.inference.cross_encoder import load_cross_encoder
            from qmd.inference.weights_choice import prepared_notes

            notes.extend(prepared_notes(choice.folder, choice.record))
            return load_cross_encoder(choice.folder, settings)
        except (ModelError, ImportError) as exc:
            notes.append(f"built-in reranking instead of '{choice.record.name}': {exc}")
    from qmd.inference.embedder import OnnxEmbedder
    from qmd.inference.maxsim import MaxSimReranker

    shared = isinstance(embedder, OnnxEmbedder) and embedder.description.tier == BUILT_IN
    builtin = embedder if shared else _open_builtin(settings, notes)
    return MaxSimReranker(builtin.encoder, MAXSIM_NAME) if isinstance(builtin, OnnxEmbedder) else None


def _load_expander(settings: EngineSettings, notes: list[str]) -> Expander | None:
    """The full tier's expander, or None: the built-in tier has none, for no small model earned its time."""
    choice = _choose(settings, "expand", notes)
    if choice.record is None or choice.folder is None:
        return None
    try:
        from qmd.inference.expansion import load_expander
        from qmd.inference.weights_choice import prepared_notes

        notes.extend(prepared_notes(choice.folder, choice.record))
        return load_expander(choice.folder, settings)
    except (ModelError, ImportError) as exc:
        notes.append(f"no query expansion: {exc}")
        return None


def _choose(settings: EngineSettings, role: Role, notes: list[str]) -> ModelChoice:
    """`choose_model` with everything it has to say in `notes`."""
    try:
        choice = choose_model(settings, role)
    except ModelError as exc:
        choice = ModelChoice(None, None, exc.message)
    if choice.note is not None:
        notes.append(choice.note)
    return choice
