"""What each role's engine really is on this machine: model, format, placement, cost. For `qmd doctor`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from qmd.errors import ModelError
from qmd.inference.base import EngineDescription, Engines
from qmd.inference.models.builtin import MINILM
from qmd.inference.records import ModelChoice, Role
from qmd.plugins import hook

if TYPE_CHECKING:
    from qmd.inference.runtime.sessions import Session
    from qmd.inference.settings import EngineSettings

_PROBE_TEXT = "how to restore a backup"
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


class EngineReport(Struct, frozen=True):
    """One role's engine, loaded and tried."""

    role: Role
    description: EngineDescription | None
    """None where no model serves the role; `notes` say why."""
    asked: str | None
    """Where the model's format belongs (`cpu`, `cuda`); None for servers and foreign runtimes."""
    reason: str | None
    """Why it belongs there, or why it runs elsewhere."""
    nodes: Mapping[str, int]
    """Graph nodes by provider; empty where that is not known."""
    load_s: float
    answer_s: float | None
    """A first, short piece of work; None where there was none, or where it failed."""
    memory_bytes: int | None
    """What the process grew by; None where the system does not say."""
    notes: tuple[str, ...]
    handling: tuple[str, ...] = ()
    """How an embedding model in a folder is run, and who says so, a line each; empty for the others."""
    sampling: Mapping[str, str] = field(default_factory=dict)
    """How an expander that runs here draws tokens: what is not neutral."""
    facts: ModelFacts = ModelFacts()
    left_behind: Mapping[str, int] = field(default_factory=dict)
    """Operators that compute on the CPU although the model is on the GPU, and how many of each."""
    bulk: str | None = None
    """Where many documents are embedded, where that is not where one is."""
    gpu_step: str | None = None
    """The command that fetches the file for the GPU of this machine."""

    form: str | None = None
    """Which file of the model is open and why, and which other forms are there."""
    step: str | None = None
    """The command that makes it faster; None where nothing does."""

    @property
    def more(self) -> tuple[str, ...]:
        """What else is to be said of the model, line by line."""
        left = ", ".join(f"{count} {operator}" for operator, count in self.left_behind.items())
        lines = (self.facts.line, f"computed on the CPU all the same: {left}" if left else None, self.bulk)
        return tuple(line for line in lines if line)

    @property
    def nodes_elsewhere(self) -> int:
        """Nodes that are not on the provider the format belongs to."""
        return sum(count for provider, count in self.nodes.items() if provider != self.asked)


def inspect_engine(settings: EngineSettings, role: Role) -> EngineReport:
    """Load the engine of a role, try it, and describe both; what fails is in the notes."""
    from qmd.inference.loader import choose_model, load_engines

    # What every engine needs is imported first, so that the first one's load time is its own.
    for library in ("numpy", "onnxruntime", "tokenizers"):
        with suppress(ImportError):
            import_module(library)
    memory, started = resident_bytes(), time.monotonic()
    engines = load_engines(settings, [role])
    load_s = time.monotonic() - started
    engine = {"embed": engines.embedder, "rerank": engines.reranker, "expand": engines.expander}[role]
    if engine is None:
        return EngineReport(role, None, None, None, {}, load_s, None, None, engines.notes)
    notes = list(engines.notes)
    answer_s: float | None = None
    started = time.monotonic()
    try:
        _try(engines)
        answer_s = time.monotonic() - started
    except ModelError as exc:
        notes.append(f"{exc.message}{f'; {exc.hint}' if exc.hint else ''}")
    after = resident_bytes()
    grown = max(0, after - memory) if memory is not None and after is not None else None
    asked, reason, nodes = _placement(engine)
    handling: tuple[str, ...] = getattr(unwrapped(engine), "handling", ())
    sampling: Mapping[str, str] = getattr(unwrapped(engine), "drawing", {})
    bulk = bulk_line(engine)
    session: Session | None = getattr(engine, "session", None)
    # None of it is of interest where the model is another room's.
    model = choose_model(settings, role) if settings.room_for(role) is None else None
    form, step = _form(settings, model, engine.description) if model else (None, None)
    return EngineReport(
        role=role,
        description=engine.description,
        asked=asked,
        reason=reason,
        nodes=nodes,
        load_s=load_s,
        answer_s=answer_s,
        memory_bytes=grown,
        notes=tuple(notes),
        handling=handling,
        sampling=sampling,
        facts=read_facts(engine, (model.record or MINILM).context if model else None),
        left_behind={} if session is None else operators_left_behind(session),
        bulk=bulk,
        gpu_step=missing_gpu_file(settings, model) if model else None,
        form=form,
        step=step,
    )


def _form(settings: EngineSettings, model: ModelChoice, loaded: EngineDescription) -> tuple[str | None, str | None]:
    """`EngineReport.form` and `EngineReport.step` of an engine."""
    from qmd.inference.models.prepared import form_to_make, forms_for
    from qmd.inference.models.weights_choice import choose_weights, idle_forms

    if loaded.role == "embed" or loaded.tier != "full" or model.folder is None:
        return None, None
    folder, record = model.here
    if not forms_for(record):
        return None, None
    wanted = settings.form_for(loaded.role)
    chosen = choose_weights(folder, record, allow_gpu=settings.gpu_allowed, form=wanted)
    line = "; ".join([f"{chosen.format}, {chosen.reason}", *idle_forms(folder, record, chosen.format)])
    can_be_faster = wanted == "auto" and form_to_make(record, folder, has_cuda=loaded.provider != "cpu") is not None
    return line, f"qmd models prepare {record.name}" if can_be_faster else None


def _try(engines: Engines) -> None:
    """One short piece of work: a graph that opens may still fail to run, and a server may not be there."""
    if engines.embedder is not None:
        engines.embedder.embed_queries([_PROBE_TEXT])
    if engines.reranker is not None:
        engines.reranker.score(_PROBE_TEXT, ["Stop the service and copy the archive into place."])
    if engines.expander is not None:
        engines.expander.expand(_PROBE_TEXT)


def _placement(engine: object) -> tuple[str | None, str | None, Mapping[str, int]]:
    """Where the engine's format belongs, the reason for that or for its running elsewhere, nodes by provider."""
    session: Session | None = getattr(engine, "session", None)
    if session is None:
        return None, None, {}
    from qmd.inference.runtime.sessions import preferred_provider

    return session.asked, session.note or preferred_provider(session.format).reason, session.nodes_by_provider()


def resident_bytes() -> int | None:
    """Memory that this process holds now; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


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
    ends, vocabulary = tuple(tokenizer.end_tokens), tokenizer.n_tokens
    try:
        signature = hook("doctor: inputs of a decoder")(session)
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


def missing_gpu_file(settings: EngineSettings, model: ModelChoice) -> str | None:
    """The command that fetches a model's file for the GPU of this machine; None where it is here or of no use."""
    from qmd.inference.models.weights_choice import has_gpu_file
    from qmd.inference.runtime.sessions import cuda_works

    if not settings.gpu_allowed or model.folder is None:
        return None
    folder, record = model.here
    is_made_for_it = record.revision != "local" and any(item.device == "cuda" for item in record.formats)
    if not is_made_for_it or has_gpu_file(folder, record) or not cuda_works():
        return None
    return f"qmd models pull {record.name}"
