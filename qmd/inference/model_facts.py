"""What an open model is and where it computes, read from its graph and tokenizer. For `qmd doctor`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.errors import ModelError

if TYPE_CHECKING:
    from qmd.inference.records import Role
    from qmd.inference.runtime.sessions import Session
    from qmd.inference.settings import EngineSettings

_ARITHMETIC = re.compile("MatMul|Gemm|Conv|Attention|Norm|Gelu|Softmax|Sigmoid|Quant|Rotary|Einsum")
"""Operators whose place decides the speed. Those of shapes belong on the CPU, also in a graph that is on the GPU."""

_BULK_TEXTS = (
    "Stop the service, copy the archive into place and start it again.",
    "Meeting notes: the budget is approved, hiring waits until autumn.",
    "std::vector::push_back appends an element in amortised constant time.",
    "sourdough starter",
    "The borrow checker rejects two mutable references to the same value, since either could invalidate the other "
    "while it is still in use; a second scope, or splitting the slice, makes their lifetimes disjoint.",
    "How do I reset my password?",
)


class ModelFacts(Struct, frozen=True):
    """Numbers of a model; None for what it does not have or say."""

    context: int | None = None
    """Tokens in one run."""
    layers: int | None = None
    vocabulary: int | None = None
    kv_bytes_per_token: int | None = None
    end_tokens: tuple[str, ...] = ()

    @property
    def kv_bytes(self) -> int | None:
        """What the key-value tensors of a full context take."""
        if self.context is None or self.kv_bytes_per_token is None:
            return None
        return self.context * self.kv_bytes_per_token

    @property
    def line(self) -> str | None:
        """All of it in words."""
        parts = []
        if self.context is not None:
            parts.append(f"context {self.context} tokens")
        if self.layers is not None:
            parts.append(f"{self.layers} layers")
        if self.vocabulary is not None:
            parts.append(f"vocabulary {self.vocabulary} tokens")
        if self.kv_bytes is not None and self.kv_bytes_per_token is not None:
            each, whole = self.kv_bytes_per_token / 1024, self.kv_bytes / (1 << 20)
            parts.append(f"key-value tensors {each:.1f} KiB a token, {whole:.1f} MiB in all")
        if self.end_tokens:
            parts.append(f"ends at {' '.join(self.end_tokens)}")
        return ", ".join(parts) or None


def unwrapped(engine: object) -> object:
    """The engine that runs the model, inside the one that goes on without a GPU."""
    inner: object = getattr(engine, "engine", None) or getattr(engine, "inner", None) or engine
    return inner


def read_facts(engine: object, context: int | None) -> ModelFacts:
    """The facts of a local engine; `context` as its record has it."""
    inner = unwrapped(engine)
    session: Session | None = getattr(inner, "session", None)
    tokenizer = getattr(inner, "tokenizer", None)
    if session is None or tokenizer is None:
        return ModelFacts(context)
    from qmd.inference.runtime.decoder_signature import read_signature

    ends, vocabulary = tuple(tokenizer.end_tokens), tokenizer.n_tokens
    try:
        signature = read_signature(session)
    except ModelError:
        return ModelFacts(context, None, vocabulary, None, ends)
    if not signature.layers:
        return ModelFacts(context, None, vocabulary, None, ends)
    return ModelFacts(context, signature.layers, vocabulary, signature.kv_bytes_per_token, ends)


def operators_left_behind(session: Session) -> Mapping[str, int]:
    """Of a session on the GPU, the operators that compute on the CPU all the same: each run copies to them and back."""
    if session.got != "cuda":
        return {}
    return {
        operator: count
        for (provider, operator), count in sorted(session.operators().items())
        if provider == "cpu" and _ARITHMETIC.search(operator)
    }


def bulk_line(engine: object) -> str | None:
    """Where documents in bulk are embedded, tried; None where that is where everything is."""
    from qmd.inference.engines.bulk_embedding import BulkEmbedder

    if not isinstance(engine, BulkEmbedder):
        return None
    cosine = engine.open_now(_BULK_TEXTS)
    if cosine is None:
        return engine.description.note
    return f"many documents at a time run on cuda; cosine to single ones {cosine:.4f}"


def missing_gpu_file(settings: EngineSettings, role: Role) -> str | None:
    """The command that fetches a model's file for the GPU of this machine; None where it is here or of no use."""
    from qmd.inference.loader import choose_model
    from qmd.inference.models.weights_choice import has_gpu_file
    from qmd.inference.runtime.sessions import cuda_works

    if settings.room_for(role) is not None or not settings.gpu_allowed:
        return None
    choice = choose_model(settings, role)
    if choice.record is None or choice.folder is None or choice.record.revision == "local":
        return None
    is_made_for_it = any(item.device == "cuda" for item in choice.record.formats)
    if not is_made_for_it or has_gpu_file(choice.folder, choice.record) or not cuda_works():
        return None
    return f"qmd models pull {choice.record.name}"
