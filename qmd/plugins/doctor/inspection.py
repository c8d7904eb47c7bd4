"""Inspection of each role's engine on this machine, for `qmd doctor`: model, format, placement, cost."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import asdict

from qmd.errors import ModelError
from qmd.inference.base import EngineDescription, Engines
from qmd.inference.models.builtin import MINILM
from qmd.inference.models.imported import read_imported
from qmd.inference.models.stored_types import Network, read_network
from qmd.inference.records import ModelChoice, Role
from qmd.plugins import hooks

if TYPE_CHECKING:
    from qmd.inference.runtime.sessions import Session
    from qmd.inference.settings import EngineSettings

_PROBE_TEXT = "how to restore a backup"
_ARITHMETIC = re.compile("MatMul|Gemm|Conv|Attention|Norm|Gelu|Softmax|Sigmoid|Quant|Rotary|Einsum")
"""Operators whose place decides the speed. Operators of shapes belong on the CPU, also in a graph on the GPU."""

_BULK_TEXTS = (
    "Stop the service, copy the archive into place and start it again.",
    "std::vector::push_back appends an element in amortised constant time.",
    "sourdough starter",
)


class ModelFacts(Network, frozen=True):
    """Numbers of a model; None for unknown ones."""

    context_tokens: int | None = None
    """Tokens that it reads in one run."""
    vocabulary: int | None = None
    kv_type: str | None = None
    kv_bytes_per_token: int | None = None
    kv_bytes: int | None = None
    """Size of the key-value tensors of a full context."""
    end_tokens: tuple[str, ...] = ()
    file_type: str | None = None
    """Number formats of the file that it was imported from."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Texts of all numbers: the network, then the input."""
        kv_heads = f", {self.kv_heads} KV" if self.kv_heads != self.heads else ""
        network = {
            f"{(self.parameters or 0) / 1e6:,.0f}M x {self.bits_per_weight or 0:.1f} bits": self.parameters,
            f"{self.layers} layers x {self.width}": self.layers and self.width,
            f"{self.heads} heads{kv_heads}": self.heads,
            f"rope {self.rope_base or 0:.3g}".replace("e+0", "e"): self.rope_base,
        }
        reads = {
            f"imported from {self.file_type}": self.file_type,
            f"context {self.context_tokens} tokens": self.context_tokens,
            f"KV cache {self.kv_type} {(self.kv_bytes or 0) / (1 << 20):.1f} MiB": self.kv_bytes,
            f"vocabulary {self.vocabulary}": self.vocabulary,
            f"ends at {' '.join(self.end_tokens)}": self.end_tokens,
        }
        lines = (", ".join(words for words, is_known in parts.items() if is_known) for parts in (network, reads))
        return tuple(filter(None, lines))


_JSON_NAMES = {"asked": "provider_asked", "left_behind": "operators_on_cpu", "gpu_step": "gpu_advice"}


class EngineReport(Struct, frozen=True, rename=_JSON_NAMES):
    """One role's engine, loaded and tested."""

    role: Role
    description: EngineDescription | None
    """None if no model serves the role; `notes` have the reason."""
    load_s: float
    notes: tuple[str, ...]
    answer_s: float | None = None
    """Time of a first, short piece of work; None if there was none, or if it failed."""
    memory_bytes: int | None = None
    """Growth of the process; None if the system does not report it."""
    asked: str | None = None
    """Provider for the model's format (`cpu`, `cuda`); None for servers and foreign runtimes."""
    reason: str | None = None
    """Reason for this provider, or for another one in use."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Graph nodes by provider; empty if unknown."""
    handling: tuple[str, ...] = ()
    """Settings that run an embedding model, and their sources, a line each; empty for other roles."""
    sampling: Mapping[str, str] = field(default_factory=dict)
    """Settings with which a local expander draws tokens, as far as they are not neutral."""
    facts: ModelFacts = ModelFacts()
    left_behind: Mapping[str, int] = field(default_factory=dict)
    """Operators that compute on the CPU although the model is on the GPU, and the number of each."""
    bulk: str | None = None
    """Provider for many documents, if it differs from the one for single documents."""
    gpu_step: str | None = None
    """Command that fetches the file for the GPU of this machine."""
    is_decoder: bool = False
    """Whether it reads prompts here, in a context of limited tokens."""
    form: str | None = None
    """Open file of the model with the reason, and other forms in its folder."""
    step: str | None = None
    """Command that makes it faster; None if no command does."""

    @property
    def more(self) -> tuple[str, ...]:
        """Further lines about the model."""
        answer = "" if self.answer_s is None else f", first answer {1000 * self.answer_s:.0f} ms"
        memory = "" if self.memory_bytes is None else f", memory {self.memory_bytes / (1 << 20):.0f} MiB"
        left = ", ".join(f"{count} {operator}" for operator, count in self.left_behind.items())
        sampling = ", ".join(f"{name} {value}" for name, value in self.sampling.items())
        lines = (
            f"load {self.load_s:.2f} s{answer}{memory}",
            *self.facts.lines,
            left and f"still computed on the CPU: {left}",
            self.bulk,
            sampling and f"sampling: {sampling}",
            self.form and f"form: {self.form}",
            *self.handling,
            *(f"note: {note}" for note in self.notes),
        )
        return tuple(line for line in lines if line)

    @property
    def nodes_elsewhere(self) -> int:
        """Number of nodes that are not on the provider of the format."""
        return sum(count for provider, count in self.nodes.items() if provider != self.asked)


def inspect_engine(settings: EngineSettings, role: Role) -> EngineReport:
    """Load the engine of a role, test it, and describe both; the notes contain its failures."""
    from qmd.inference.loader import choose_model, load_engines

    # Import the common packages first, so that the first engine's load time is its own.
    for library in ("numpy", "onnxruntime", "tokenizers"):
        with suppress(ImportError):
            import_module(library)
    memory, started = resident_bytes(), time.monotonic()
    engines = load_engines(settings, [role])
    load_s = time.monotonic() - started
    engine = {"embed": engines.embedder, "rerank": engines.reranker, "expand": engines.expander}[role]
    if engine is None:
        return EngineReport(role, None, load_s, engines.notes)
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
    inner, bulk = unwrapped(engine), bulk_line(engine)
    session: Session | None = getattr(inner, "session", None)
    # These details do not concern the model of another package.
    model = choose_model(settings, role) if settings.provider_for(role) is None else None
    form, step = _form(settings, model, engine.description) if model else (None, None)
    return EngineReport(
        role=role,
        description=engine.description,
        load_s=round(load_s, 3),
        answer_s=answer_s and round(answer_s, 3),
        memory_bytes=grown,
        notes=tuple(notes),
        handling=getattr(inner, "handling", ()),
        sampling=getattr(inner, "drawing", {}),
        facts=read_facts(engine, model),
        bulk=bulk,
        is_decoder=hasattr(inner, "context"),
        gpu_step=missing_gpu_file(settings, model) if model else None,
        form=form,
        step=step,
        **({} if session is None else _placement(session)),
    )


def _placement(session: Session) -> dict[str, Any]:
    """Return the report fields that a session adds."""
    from qmd.inference.runtime.sessions import preferred_provider

    return {
        "asked": session.preferred,
        "reason": session.note or preferred_provider(session.format).reason,
        "nodes": session.nodes_by_provider(),
        "left_behind": operators_on_cpu(session),
    }


def _form(settings: EngineSettings, model: ModelChoice, loaded: EngineDescription) -> tuple[str | None, str | None]:
    """Return `EngineReport.form` and `EngineReport.step` of an engine."""
    from qmd.inference.models.prepared import form_to_make, forms_for
    from qmd.inference.models.weights_choice import choose_weights, unused_forms

    if loaded.role == "embed" or loaded.tier != "full" or model.folder is None:
        return None, None
    folder, record = model.here
    if not forms_for(record):
        return None, None
    wanted = settings.form_for(loaded.role)
    chosen = choose_weights(folder, record, allow_gpu=settings.gpu_allowed, form=wanted)
    line = "; ".join([f"{chosen.format}, {chosen.reason}", *unused_forms(folder, record, chosen.format)])
    can_be_faster = wanted == "auto" and form_to_make(record, folder, has_cuda=loaded.provider != "cpu") is not None
    return line, f"qmd models prepare {record.name}" if can_be_faster else None


def _try(engines: Engines) -> None:
    """Run one short piece of work: a graph that opens may fail to run, and a server may be missing."""
    if engines.embedder is not None:
        engines.embedder.embed_queries([_PROBE_TEXT])
    if engines.reranker is not None:
        engines.reranker.score(_PROBE_TEXT, ["Stop the service and copy the archive into place."])
    if engines.expander is not None:
        engines.expander.expand(_PROBE_TEXT)


def resident_bytes() -> int | None:
    """Return the present memory of this process; None if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def unwrapped(engine: object) -> object:
    """Return the engine that runs the model, inside the one that continues without a GPU."""
    inner: object = getattr(engine, "engine", None) or getattr(engine, "inner", None) or engine
    return inner


def read_facts(engine: object, model: ModelChoice | None) -> ModelFacts:
    """Return the facts of a local engine, from its session, its files and its record (None for another package's)."""
    inner = unwrapped(engine)
    context: int | None = getattr(inner, "context", (model.record or MINILM).context if model else None)
    session, tokenizer = getattr(inner, "session", None), getattr(inner, "tokenizer", None)
    if session is None:
        return ModelFacts(context_tokens=context)
    folder = (model and model.folder) or session.path.parent
    found = {**asdict(read_network(session.path, folder)), "context_tokens": context}
    with suppress(ModelError):
        made = read_imported(folder)
        found["file_type"] = ", ".join(made.number_formats[:2]) or None if made else None
    if tokenizer is not None:
        found |= {"vocabulary": tokenizer.n_tokens, "end_tokens": tuple(tokenizer.end_tokens)}
    with suppress(ModelError):
        signature = hooks.read_signature(session)
        if each := signature.kv_bytes_per_token:
            found |= {"layers": signature.layers, "kv_heads": signature.kv_heads, "kv_type": signature.kv_dtype}
            found |= {"kv_bytes_per_token": each, "kv_bytes": (context or 0) * each}
    return ModelFacts(**found)


def operators_on_cpu(session: Session) -> Mapping[str, int]:
    """Return the operators of a session on the GPU that compute on the CPU: each run copies to them and back."""
    if session.got != "cuda":
        return {}
    return {
        operator: count
        for (provider, operator), count in sorted(session.operators().items())
        if provider == "cpu" and _ARITHMETIC.search(operator)
    }


def bulk_line(engine: object) -> str | None:
    """Return the provider for documents in bulk, tested; None if it is the same as for single ones."""
    from qmd.inference.engines.bulk_embedding import BulkEmbedder

    if not isinstance(engine, BulkEmbedder):
        return None
    engine.open_now(_BULK_TEXTS)
    if engine.runs is None:
        return engine.description.note
    return f"many documents at a time run on cuda; cosine to single ones {engine.cosine:.4f}"


def missing_gpu_file(settings: EngineSettings, model: ModelChoice) -> str | None:
    """Return the command that fetches a model's file for the GPU of this machine; None if it is present or useless."""
    from qmd.inference.models.weights_choice import has_gpu_file
    from qmd.inference.runtime.sessions import cuda_works

    if not settings.gpu_allowed or model.folder is None:
        return None
    folder, record = model.here
    is_made_for_it = record.revision != "local" and any(item.device == "cuda" for item in record.formats)
    if not is_made_for_it or has_gpu_file(folder, record) or not cuda_works():
        return None
    return f"qmd models pull {record.name}"
