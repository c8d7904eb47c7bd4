"""Model records: identity, files and processing rules. Frozen records without any model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Tier = Literal["built-in", "full", "remote"]
Role = Literal["embed", "rerank", "expand"]
Pooling = Literal["mean", "first", "last", "max", "mean_sqrt_len", "weighted_mean", "none"]
Device = Literal["cpu", "cuda"]
Vectors: TypeAlias = "npt.NDArray[np.float32]"
PromptStyle = Literal["qwen3", "tobi"]
"""Prompt of an expander: of a plain instruction model, or of tobi/qmd's fine-tune."""

UNPINNED = "main"
"""The revision of a model whose version the first pull decides."""


class ModelFile(Struct, frozen=True):
    """One file of a model: its path in the repository, and its size and sha256 if known."""

    path: str
    size_bytes: int | None = None
    sha256: str | None = None


class ModelFormat(Struct, frozen=True):
    """One set of weights: a key of `sessions.PROVIDER_BY_FORMAT`, the file, and the device it is meant for."""

    name: str
    weights: ModelFile
    device: Device


class FolderRules(Struct, frozen=True):
    """Embedding rules of a folder outside the catalogue, beyond the fields of its record."""

    origins: tuple[tuple[str, str], ...] = ()
    """(`pooling`, `prompts` or `length`, the file or rule that sets it)."""
    only_in_graph: tuple[str, ...] = ()
    """Steps that qmd does not compute: the graph must contain them, in an output of its own."""
    is_lower_case: bool = False
    pools_prompt: bool = True
    """The tokens of a prompt count when the token vectors are pooled."""
    end_token: str | None = None
    """Token that ends every text, even if the tokenizer's file does not add it."""
    kept_dim: int | None = None
    """Leading values of a vector that are kept; None for all."""

    @property
    def computed(self) -> tuple[object, ...]:
        """The rules that change a vector. The first number counts changes of how outputs are chosen."""
        return (1, self.is_lower_case, self.pools_prompt, self.end_token, self.kept_dim)


class EmbedOverrides(Struct, frozen=True):
    """Settings for the user's own embedding model, a folder's or a server's; None leaves a choice to the model."""

    query_prompt: str | None = None
    document_prompt: str | None = None
    dim: int | None = None
    """For a folder's model: the leading values that are kept; for a server's: the required size of its vectors."""
    max_tokens: int | None = None
    """Most tokens of a chunk, for every model, the built-in ones included."""


class CosineScale(Struct, frozen=True):
    """Two cosines of a model, measured without labels: means over questions of the best and the third passage."""

    best: float
    third: float

    @classmethod
    def of(cls, facts: Mapping[str, str], fingerprint: str) -> CosineScale:
        """Decode the fact of an index, which may be untrusted; without one a model keeps its cosines."""
        found = re.fullmatch(r"(-?\d\.\d{4}) (-?\d\.\d{4})", facts.get(f"scale:{fingerprint}", ""))
        return cls(float(found[1]), float(found[2])) if found else MINILM_SCALE

    def mapped(self, cosine: float) -> float:
        """Return a cosine on the scale of the built-in model; unchanged if all texts are nearly alike to this one."""
        spread = self.best - self.third
        if self == MINILM_SCALE or not spread >= 0.02:  # also for NaN
            return cosine
        return MINILM_SCALE.third + (MINILM_SCALE.best - MINILM_SCALE.third) / spread * (cosine - self.third)


MINILM_SCALE = CosineScale(0.676, 0.138)


class ModelRecord(Struct, frozen=True):
    """A model: identity, files, and everything that changes what it computes."""

    name: str
    role: Role
    tier: Tier
    repository: str
    revision: str
    """Commit of the repository, or `UNPINNED`."""
    licence: str
    languages: tuple[str, ...]
    """ISO codes the model was trained on; `*` for a hundred or more."""
    scripts: tuple[str, ...]
    """Unicode scripts it reads, as the first word of a character's Unicode name; empty = all."""
    formats: tuple[ModelFormat, ...]
    """Best first within one device."""
    files: tuple[ModelFile, ...]
    """Files every format needs."""
    context: int
    """Tokens in one run, special tokens included."""
    max_tokens: int
    dim: int | None = None
    pooling: Pooling = "none"
    document_prompt: str = ""
    query_prompt: str = ""
    is_fused: bool = False
    """The graph was written fused; the runtime only folds constants."""
    batches: ModelFile | None = None
    """A graph for CUDA with the CPU format's weights, whose vectors agree with its own."""
    pieces: ModelFile | None = None
    """The index of its tokenizer, which older packages lack."""
    network: Literal["qwen3"] | None = None
    """The network, if `qmd.plugins.models` can write its graph."""
    rules: FolderRules | None = None
    """None for the models of the catalogue."""
    scale: CosineScale | None = None
    """Scale of its cosines; None for models whose scale is measured when an index gets their vectors."""

    @property
    def prompt_style(self) -> PromptStyle:
        """The expander's prompt, chosen by its name, which folders, exports and GGUF files of the fine-tune keep."""
        return "tobi" if "qmd-query-expansion" in f"{self.name} {self.repository}".lower() else "qwen3"

    @property
    def folder(self) -> str:
        """Name of its folder under the models folder."""
        if ":" in self.name:
            # For other providers, where several models may be in one repository.
            return self.name.replace(":", "--").replace("/", "--")
        return self.repository.replace("/", "--") if self.tier == "full" else self.name.lower()

    def format_for(self, device: Device) -> ModelFormat:
        """Return the format meant for `device`, else the first one."""
        return next((item for item in self.formats if item.device == device), self.formats[0])


class ModelChoice(Struct, frozen=True):
    """The choice for a role: a record and its folder; None for the built-in tier and for models without files here."""

    record: ModelRecord | None = None
    folder: Path | None = None
    note: str | None = None
    """Reason why it is not the model asked for."""

    @property
    def here(self) -> tuple[Path, ModelRecord]:
        """Folder and record of a model whose files are here."""
        assert self.folder is not None and self.record is not None
        return self.folder, self.record
