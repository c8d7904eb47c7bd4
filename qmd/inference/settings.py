"""What the edge decided about models: settings in, no engine opened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from qmd.environment import usable_cpus
from qmd.errors import ModelError
from qmd.inference.records import EmbedOverrides, Role
from qmd.plugins import ENGINES, find

if TYPE_CHECKING:
    from qmd.inference.runtime.gpu_memory import GpuUse

AUTO = "auto"
BUILT_IN = "built-in"
SERVERS = "http://"
"""Key of the row of `ENGINES` for a server, whose address may stand in a variable as well."""

ENV_STEMS: Mapping[Role, str] = {"embed": "QMD_EMBED", "rerank": "QMD_RERANK", "expand": "QMD_GENERATE"}
"""What the variables of a role begin with: `QMD_EMBED_MODEL`, `QMD_EMBED_URL` and so on."""

EMBED_VARIABLES: Mapping[str, str] = {
    "query_prompt": "QMD_EMBED_QUERY_PROMPT",
    "document_prompt": "QMD_EMBED_DOCUMENT_PROMPT",
    "dim": "QMD_EMBED_DIM",
}
"""Options of `models.embed` in `index.yml` → the variables that apply where it does not say."""


def room_of(name: str) -> str | None:
    """The key of `ENGINES` that a model's name begins with, an interface's name before it or not (`tei+http://HOST`).

    None for names, folders, and the addresses of files that are downloaded or imported.
    """
    head, mark, rest = name.strip().partition(":")
    scheme = head.rpartition("+")[2].lower()
    # One letter is a drive of Windows.
    if not mark or len(scheme) < 2 or not scheme.replace("-", "").isalnum() or scheme in ("hf", "ollama"):
        return None
    key = f"{scheme}://" if rest.startswith("//") else f"{scheme}:"
    return key if find(ENGINES, key) is not None else None


class EngineSettings(Struct, frozen=True):
    """What the edge decided about models. A role's model is `auto`, `built-in`, a name, a repository, a folder, a
    server (`http://host:8000/v1#name`, `tei+http://host:8080#name`), or `fastembed:NAME` (not for expansion).
    """

    models_dir: Path
    embed: str = AUTO
    rerank: str = AUTO
    expand: str = AUTO
    rerank_form: str = AUTO
    expand_form: str = AUTO
    """Which file of a model is opened: `auto`, `published`, or a form that was prepared here."""
    sampling: Mapping[str, object] = field(default_factory=dict)
    """How an expander that runs here draws its tokens."""
    allow_gpu: bool = True
    embed_options: Mapping[str, str] = field(default_factory=dict)
    """What the configuration says besides the embedding model: `query_prompt`, `document_prompt`, `dim`."""
    threads: int | None = None
    """Threads per engine; None takes what this process may use."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that are heard: `QMD_FORCE_CPU`, `QMD_GPU_DEVICE`, `QMD_GPU_MEMORY`, the models `QMD_EMBED_MODEL`,
    `QMD_RERANK_MODEL`, `QMD_GENERATE_MODEL`, `QMD_EMBED_QUERY_PROMPT`, `QMD_EMBED_DOCUMENT_PROMPT`, `QMD_EMBED_DIM`,
    and those of servers (`qmd.plugins.servers.settings`).
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

    def room_for(self, role: Role) -> str | None:
        """Key of the row of `ENGINES` that the model's name begins with, or that of servers by the environment."""
        return SERVERS if self.env.get(f"{ENV_STEMS[role]}_URL", "").strip() else room_of(self.model_for(role))

    @property
    def embed_overrides(self) -> EmbedOverrides:
        """What applies to an embedding model of the user's own: the configuration's word, else the environment's.

        A prompt that is there and empty means none.

        Raises:
            ModelError: `dim` is no whole number above 0.
        """
        said = {
            name: self.embed_options.get(name, self.env.get(variable)) for name, variable in EMBED_VARIABLES.items()
        }
        dim = (said["dim"] or "").strip()
        if dim and not (dim.isdecimal() and int(dim)):
            raise ModelError(
                f"the dimensions of embeddings are '{dim}', not a whole number above 0",
                "correct QMD_EMBED_DIM, or 'dim' in index.yml",
            )
        return EmbedOverrides(said["query_prompt"], said["document_prompt"], int(dim) if dim else None)

    @property
    def usable_threads(self) -> int:
        """Threads to use, at least 1."""
        return max(1, self.threads) if self.threads is not None else usable_cpus()

    @property
    def gpu_allowed(self) -> bool:
        """False when switched off here or by `QMD_FORCE_CPU`."""
        from qmd.inference.runtime.sessions import gpu_allowed

        return self.allow_gpu and gpu_allowed(self.env)

    def gpu_use(self, role: Role) -> GpuUse:
        """The GPU that the environment names, and the share of its memory that the engine of a role may take.

        Raises:
            ModelError: A variable holds no number.
        """
        from qmd.inference.runtime.gpu_memory import GpuUse

        memory_mib = self._number("QMD_GPU_MEMORY")
        return GpuUse(role, self._number("QMD_GPU_DEVICE") or 0, memory_mib)

    def _number(self, name: str) -> int | None:
        value = self.env.get(name, "").strip()
        if value and not value.isdecimal():
            raise ModelError(f"'{name}' is '{value}', expected a whole number", f"unset {name}")
        return int(value) if value else None
