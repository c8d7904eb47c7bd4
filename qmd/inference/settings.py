"""What the edge decided about models: settings in, no engine opened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from qmd.environment import usable_cpus
from qmd.inference.models.catalogue import Role

AUTO = "auto"
BUILT_IN = "built-in"
FASTEMBED_PREFIX = "fastembed:"

ENV_STEMS: Mapping[Role, str] = {"embed": "QMD_EMBED", "rerank": "QMD_RERANK", "expand": "QMD_GENERATE"}
"""What the variables of a role begin with: `QMD_EMBED_MODEL`, `QMD_EMBED_URL` and so on."""


class EngineSettings(Struct, frozen=True):
    """What the edge decided about models. A role's model is `auto`, `built-in`, a name, a repository, a folder, a
    server (`http://host:8000/v1#name`), or (embedding only) `fastembed:NAME`.
    """

    models_dir: Path
    embed: str = AUTO
    rerank: str = AUTO
    expand: str = AUTO
    rerank_form: str = AUTO
    expand_form: str = AUTO
    """Which file of a model is opened: `auto`, `published`, or a form that was prepared here."""
    allow_gpu: bool = True
    threads: int | None = None
    """Threads per engine; None takes what this process may use."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that are heard: `QMD_FORCE_CPU`, the models `QMD_EMBED_MODEL`, `QMD_RERANK_MODEL`,
    `QMD_GENERATE_MODEL`, and those of servers (`qmd.inference.engines.remote_settings`).
    """

    def model_for(self, role: Role) -> str:
        """The model asked for: the configured one, else the environment's, else `auto`."""
        configured = {"embed": self.embed, "rerank": self.rerank, "expand": self.expand}[role]
        if configured not in ("", AUTO):
            return configured
        return self.env.get(f"{ENV_STEMS[role]}_MODEL", "").strip() or AUTO

    def form_for(self, role: Role) -> str:
        """The form asked for: the configured one, else the environment's, else `auto`."""
        configured = {"embed": AUTO, "rerank": self.rerank_form, "expand": self.expand_form}[role]
        if configured not in ("", AUTO):
            return configured
        return self.env.get(f"{ENV_STEMS[role]}_FORM", "").strip().lower() or AUTO

    def names_server(self, role: Role) -> bool:
        """Whether a server may serve the role: its model is written as an address, or the environment has one."""
        return self.model_for(role).lower().startswith("http") or bool(self.env.get(f"{ENV_STEMS[role]}_URL"))

    @property
    def usable_threads(self) -> int:
        """Threads to use, at least 1."""
        return max(1, self.threads) if self.threads is not None else usable_cpus()

    @property
    def gpu_allowed(self) -> bool:
        """False when switched off here or by `QMD_FORCE_CPU`."""
        from qmd.inference.runtime.sessions import gpu_allowed

        return self.allow_gpu and gpu_allowed(self.env)
