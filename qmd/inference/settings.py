"""Engine settings: what the command line, environment and configuration decided about models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from qmd.errors import ModelError
from qmd.foreign import short
from qmd.inference.records import EmbedOverrides, Role
from qmd.plugins import ENGINES, find
from qmd.process import usable_cpus

if TYPE_CHECKING:
    from qmd.inference.runtime.gpu_memory import GpuUse

AUTO = "auto"
BUILT_IN = "built-in"
SERVERS = "http://"
"""Key of the row of `ENGINES` for a server, whose address may also come from a variable."""

ENV_STEMS: Mapping[Role, str] = {"embed": "QMD_EMBED", "rerank": "QMD_RERANK", "expand": "QMD_GENERATE"}
"""Prefix of a role's variables: `QMD_EMBED_MODEL`, `QMD_EMBED_URL` and so on."""

WORK: Mapping[Role, str] = {"embed": "embedding", "rerank": "reranking", "expand": "expansion"}
"""Name of each role's work in messages."""

SLOTS: Mapping[Role, str] = {"embed": "embed", "rerank": "rerank", "expand": "generate"}
"""Name of each role under `models` in `index.yml`."""

OPTION_VARIABLES: Mapping[str, str] = {
    "embed.query_prompt": "QMD_EMBED_QUERY_PROMPT",
    "embed.document_prompt": "QMD_EMBED_DOCUMENT_PROMPT",
    "embed.dim": "QMD_EMBED_DIM",
    "embed.max_tokens": "QMD_EMBED_MAX_TOKENS",
    "embed.threads": "QMD_EMBED_PARALLELISM",
    "rerank.context": "QMD_RERANK_CONTEXT_SIZE",
    "generate.context": "QMD_EXPAND_CONTEXT_SIZE",
}
"""Options of `models` in `index.yml` → the variables that apply if they are not set."""

_MOST_THREADS = 256
_ALL_LAYERS = ("", "-1", "all", "auto")


def provider_prefix(name: str) -> str | None:
    """Return the key of `ENGINES` that begins a model's name, with or without an interface's name (`tei+http://HOST`).

    None for names, folders, and addresses of files that are downloaded or imported.
    """
    head, mark, rest = name.strip().partition(":")
    scheme = head.rpartition("+")[2].lower()
    # One letter is a drive of Windows.
    if not mark or len(scheme) < 2 or not scheme.replace("-", "").isalnum() or scheme in ("hf", "ollama"):
        return None
    key = f"{scheme}://" if rest.startswith("//") else f"{scheme}:"
    return key if find(ENGINES, key) is not None else None


class EngineSettings(Struct, frozen=True):
    """Settings of all engines. A role's model is `auto`, `built-in`, a name, a repository, a folder, a server
    (`http://host:8000/v1#name`, `tei+http://host:8080#name`), or `fastembed:NAME` (not for expansion)."""

    models_dir: Path
    embed: str = AUTO
    by_collection: frozenset[str] = frozenset()
    """Built-in models that `auto` opens, by name, "" for the default one; empty where no collection has its own."""
    rerank: str = AUTO
    expand: str = AUTO
    sampling: Mapping[str, object] = field(default_factory=dict)
    """Sampling settings of a local expander."""
    allow_gpu: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """Other options in the configuration (`qmd.config.settings.MODEL_OPTIONS`)."""
    threads: int | None = None
    """Threads per engine, if no option sets them; None takes the CPUs that this process may use."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that apply: `QMD_FORCE_CPU`, `QMD_LLAMA_GPU`, `QMD_GPU_DEVICE`, `QMD_GPU_MEMORY`, the models
    `QMD_EMBED_MODEL`, `QMD_RERANK_MODEL`, `QMD_GENERATE_MODEL`, those of `OPTION_VARIABLES`, and those of servers
    (`qmd.plugins.servers.settings`)."""

    def model_for(self, role: Role) -> str:
        """Return the model asked for: the configured one, else the environment's, else `auto`."""
        configured = {"embed": self.embed, "rerank": self.rerank, "expand": self.expand}[role]
        if configured not in ("", AUTO):
            return configured
        return self.env.get(f"{ENV_STEMS[role]}_MODEL", "").strip() or AUTO

    def form_for(self, role: Role) -> str:
        """Return the form to open: the configured one, else the environment's, else `auto`."""
        configured = self.options.get(f"{SLOTS[role]}_form", AUTO)
        if configured not in ("", AUTO):
            return configured
        return self.env.get(f"{ENV_STEMS[role]}_FORM", "").strip().lower() or AUTO

    def provider_for(self, role: Role) -> str | None:
        """Return the key of `ENGINES` that begins the model's name, or the key of servers by the environment."""
        return SERVERS if self.env.get(f"{ENV_STEMS[role]}_URL", "").strip() else provider_prefix(self.model_for(role))

    @property
    def embed_overrides(self) -> EmbedOverrides:
        """Overrides for the user's own embedding model. An empty prompt means none.

        Raises:
            ModelError: `dim` or `max_tokens` is no whole number, or too small or large.
        """
        dim, max_tokens = self.number("embed.dim", 1, 1 << 16), self.number("embed.max_tokens", 16, 1 << 16)
        query_prompt, document_prompt = map(self.option_value, ("embed.query_prompt", "embed.document_prompt"))
        return EmbedOverrides(query_prompt, document_prompt, dim, max_tokens)

    def option_value(self, option: str) -> str | None:
        """Return an option of the configuration, else of the environment, by its variable or its own name."""
        return self.options.get(option, self.env.get(OPTION_VARIABLES.get(option, option)))

    def number(self, option: str, least: int, most: int) -> int | None:
        """Return `option_value` as a whole number, None if unset.

        Raises:
            ModelError: It is something else, or outside `least` to `most`.
        """
        value = (self.option_value(option) or "").strip()
        if value and not (value.isdecimal() and len(value) < 10 and least <= int(value) <= most):
            place = f"models.{option} in index.yml" if option in self.options else OPTION_VARIABLES.get(option, option)
            raise ModelError(f"'{option}' is '{short(value)}', expected {least} to {most}", f"correct {place}")
        return int(value) if value else None

    def threads_for(self, role: Role) -> int:
        """Return the number of threads, at least 1; for an embedder on a CPU, of texts read at the same time."""
        texts = self.number("embed.threads", 1, _MOST_THREADS) if role == "embed" else None
        chosen = texts or self.number("threads", 1, _MOST_THREADS) or self.threads
        return usable_cpus() if chosen is None else max(1, chosen)

    @property
    def gpu_allowed(self) -> bool:
        """False when switched off here, by `gpu_layers: 0` or a variable; a ModelError for no number of layers."""
        from qmd.inference.runtime.sessions import gpu_allowed

        is_whole = self.options.get("gpu_layers", "").strip().lower() in _ALL_LAYERS
        return self.allow_gpu and gpu_allowed(self.env) and (is_whole or self.number("gpu_layers", 0, 9999) != 0)

    def gpu_use(self, role: Role) -> GpuUse:
        """Return the GPU that the environment names, and the share of its memory that a role's engine may take.

        Raises:
            ModelError: A variable is no number.
        """
        from qmd.inference.runtime.gpu_memory import GpuUse

        memory_mib = self.number("QMD_GPU_MEMORY", 0, 1 << 24)
        return GpuUse(role, self.number("QMD_GPU_DEVICE", 0, 255) or 0, memory_mib)
