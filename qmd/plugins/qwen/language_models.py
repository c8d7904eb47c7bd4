"""Language models opened from a folder: the weights that suit this machine, the session, the tokenizer."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.base import EngineDescription
from qmd.inference.models.stored_types import read_network
from qmd.inference.models.weights_choice import choose_weights
from qmd.inference.records import ModelRecord
from qmd.inference.runtime.sessions import Session, open_session, preferred_provider
from qmd.inference.settings import SLOTS, EngineSettings
from qmd.plugins.qwen.chat_tokens import ChatTokenizer, load_chat_tokenizer


class LanguageModel(Struct, frozen=True):
    """An open model with its tokenizer and its label."""

    session: Session
    tokenizer: ChatTokenizer
    description: EngineDescription


def configured_context(model: LanguageModel, folder: Path, settings: EngineSettings, least: int) -> int | None:
    """Return the configured limit of tokens, from `least` to the graph's own limit; None if none is set."""
    option = f"{SLOTS[model.description.role]}.context"
    most = (read_network(model.session.path, folder).positions or least) if settings.option_value(option) else least
    return settings.number(option, least, most)


def open_language_model(folder: Path, record: ModelRecord, settings: EngineSettings) -> LanguageModel:
    """Open the folder of a reranker or an expander; its output head is opened apart if possible.

    Raises:
        ModelError: If a file is missing or damaged.
    """
    allow_gpu = settings.gpu_allowed
    weights = choose_weights(folder, record, allow_gpu=allow_gpu, form=settings.form_for(record.role))
    tokenizer = load_chat_tokenizer(folder)
    threads = settings.threads_for(record.role)
    gpu = settings.gpu_use(record.role)
    opened = partial(open_session, weights.path, format=weights.format, threads=threads, allow_gpu=allow_gpu, gpu=gpu)
    session: Session | None = None
    if record.role == "expand" and preferred_provider(weights.format).provider == "cpu":
        from qmd.plugins.qwen.output_head import OutputHead

        with suppress(LookupError, ModelError, TypeError, ValueError):  # opened below as a whole, or refused there
            head = OutputHead(weights.path, threads)
            session = replace(opened(graph=head.graph, options=head.options), head=head)
    session = session or opened()
    description = EngineDescription(record.role, record.name, weights.format, record.tier, session.got)
    return LanguageModel(session, tokenizer, description)
