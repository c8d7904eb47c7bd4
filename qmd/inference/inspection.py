"""What each role's engine really is on this machine: model, format, placement, cost. For `qmd doctor`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from qmd.config.sampling import SamplingSettings, changed_sampling
from qmd.errors import ModelError
from qmd.inference.base import EngineDescription, Engines
from qmd.inference.model_facts import (
    ModelFacts,
    bulk_line,
    missing_gpu_file,
    operators_left_behind,
    read_facts,
    unwrapped,
)
from qmd.inference.models.catalogue import MINILM
from qmd.inference.records import Role

if TYPE_CHECKING:
    from qmd.inference.runtime.sessions import Session
    from qmd.inference.settings import EngineSettings

_PROBE_TEXT = "how to restore a backup"


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
    from qmd.inference.loader import load_engines

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
    drawn: SamplingSettings = getattr(unwrapped(engine), "sampling", SamplingSettings())
    sampling = changed_sampling(drawn, than=SamplingSettings())
    bulk = bulk_line(engine)
    session: Session | None = getattr(engine, "session", None)
    form, step = _form(settings, role, engine.description)
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
        facts=read_facts(engine, _context(settings, role)),
        left_behind={} if session is None else operators_left_behind(session),
        bulk=bulk,
        gpu_step=missing_gpu_file(settings, role),
        form=form,
        step=step,
    )


def _form(settings: EngineSettings, role: Role, held: EngineDescription) -> tuple[str | None, str | None]:
    """`EngineReport.form` and `EngineReport.step` of an engine."""
    from qmd.inference.loader import choose_model
    from qmd.inference.models.prepared import form_to_make, forms_for
    from qmd.inference.models.weights_choice import choose_weights, idle_forms

    if role == "embed" or held.tier != "full" or settings.room_for(role) is not None:
        return None, None
    choice = choose_model(settings, role)
    if choice.record is None or choice.folder is None or not forms_for(choice.record):
        return None, None
    record, folder, wanted = choice.record, choice.folder, settings.form_for(role)
    chosen = choose_weights(folder, record, allow_gpu=settings.gpu_allowed, form=wanted)
    line = "; ".join([f"{chosen.format}, {chosen.reason}", *idle_forms(folder, record, chosen.format)])
    can_be_faster = wanted == "auto" and form_to_make(record, folder, has_cuda=held.provider != "cpu") is not None
    return line, f"qmd models prepare {record.name}" if can_be_faster else None


def _context(settings: EngineSettings, role: Role) -> int | None:
    """Tokens in one run of the local model that serves a role; None for a server's and foreign ones."""
    from qmd.inference.loader import choose_model

    if settings.room_for(role) is not None:
        return None
    record = choose_model(settings, role).record
    return (record or MINILM).context


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
