"""Opens a language model's folder: the weights that suit this machine, the session, the tokenizer."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from qmd.inference.base import EngineDescription
from qmd.inference.models.weights_choice import choose_weights
from qmd.inference.records import ModelRecord
from qmd.inference.runtime.sessions import Session, open_session
from qmd.inference.settings import EngineSettings
from qmd.plugins.qwen.chat_tokens import ChatTokenizer, load_chat_tokenizer


class LanguageModel(Struct, frozen=True):
    """An open model with its tokenizer, and what to call it."""

    session: Session
    tokenizer: ChatTokenizer
    description: EngineDescription


def open_language_model(folder: Path, record: ModelRecord, settings: EngineSettings) -> LanguageModel:
    """Open the folder of a reranker or an expander.

    Raises:
        ModelError: If a file is missing or damaged.
    """
    allow_gpu = settings.gpu_allowed
    weights = choose_weights(folder, record, allow_gpu=allow_gpu, form=settings.form_for(record.role))
    tokenizer = load_chat_tokenizer(folder)
    threads = settings.usable_threads
    session = open_session(
        weights.path,
        format=weights.format,
        threads=threads,
        allow_gpu=allow_gpu,
        gpu=settings.gpu_use(record.role),
    )
    description = EngineDescription(record.role, record.name, weights.format, record.tier, session.got)
    return LanguageModel(session, tokenizer, description)
