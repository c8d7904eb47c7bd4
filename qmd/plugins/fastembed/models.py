"""fastembed models opened from qmd's folders: tokenizer and pooling by fastembed, on a session of qmd.

fastembed's own sessions try CUDA wherever it is compiled in; given an open one it starts none. Nothing is downloaded
here: `qmd models pull` fetched every file in the folder.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from qmd.batching import batches
from qmd.errors import ModelError
from qmd.escapes import error_line
from qmd.inference.engines.embedder import sum_options
from qmd.inference.engines.encoder_graph import BATCH_TOKENS
from qmd.inference.models.stored_types import stored_format
from qmd.inference.records import ModelRecord
from qmd.inference.runtime.sessions import Session, open_session
from qmd.inference.runtime.tokenization import Tokenizer
from qmd.inference.settings import EngineSettings
from qmd.plugins.fastembed.catalogue import Kind, fastembed_classes, find_fastembed

_STATIC_BATCH = 256
"""Texts of one product if a model is a table of token vectors; such a model needs no padding."""


class OpenModel(Struct, frozen=True):
    """A model of fastembed's, ready to run."""

    own: Any
    """The object of fastembed's class for the model, as `TextEmbedding(...).model` is."""
    kind: Kind
    record: ModelRecord
    tokenizer: Tokenizer
    context: int
    """Tokens of one run; longer texts are cut at the end."""
    session: Session | None
    """With one thread for a run on the CPU; None for a table of token vectors, which numpy reads."""
    threads: int
    """Runs at the same time."""
    format: str
    """Format of the weights: `fp32`, `fp16`, `int8`, or `safetensors` for a table."""

    @property
    def provider(self) -> str:
        """`cpu` or `cuda`."""
        return "cpu" if self.session is None else self.session.got

    def runs(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Yield the indexes of the texts that share a run.

        On a CPU each text is a run, in the order given: padding costs more than a batch gains, and dynamic quantisation
        of a whole batch would make a text's vector depend on its neighbours. On a GPU texts of similar length share a
        run, longest first.
        """
        if self.session is None:
            yield from map(list, batches(range(len(texts)), _STATIC_BATCH))
        elif self.session.got == "cpu":
            yield from ([index] for index in range(len(texts)))
        else:
            lengths = [min(len(self.tokenizer.token_starts(text)) + 2, self.context) for text in texts]
            yield from batches_by_length(lengths, BATCH_TOKENS)


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield indexes of `lengths`, longest first, in batches of at most `budget` once each is padded to its longest.

    Example: lengths [2, 9, 3, 8], budget 18 → [1, 3], [2, 0].
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def open_fastembed(folder: Path, record: ModelRecord, settings: EngineSettings) -> OpenModel:
    """Open the model of `record` from a folder that `qmd models pull` made.

    Raises:
        ModelError: fastembed is missing, or a file is absent or damaged.
    """
    known = find_fastembed(record.name)
    if known is None:
        raise ModelError(f"fastembed has no model '{record.name}'", "see: qmd models list --available")
    weights = folder / record.formats[0].weights.path
    session: Session | None = None
    threads = 1
    with mapped_errors(record.name), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = fastembed_classes()[known.kind](
            known.own_name,
            # Stays empty: fastembed creates a given cache folder, or one of its own if none is given.
            cache_dir=str(folder),
            specific_model_path=str(folder),
            local_files_only=True,
            lazy_load=True,
        ).model
        if weights.suffix == ".onnx":
            format, gpu = stored_format(weights) or "int8", settings.gpu_use(record.role)
            session = open_session(
                weights, format=format, threads=1, allow_gpu=settings.gpu_allowed, gpu=gpu, options=sum_options()
            )
            threads = settings.threads_for(record.role) if session.got == "cpu" else 1
            # Replaces fastembed's session of ONNX Runtime, with the errors of qmd's sessions.
            ort = session.ort
            own.model = SimpleNamespace(run=session.run, get_inputs=ort.get_inputs, get_outputs=ort.get_outputs)
            own._ensure_tokenizer()
        else:
            format = record.formats[0].name
            own.load_model()
        truncation: dict[str, Any] = own.tokenizer.truncation or {}
        context = min(int(truncation.get("max_length", record.context)), record.context)
        tokenizer = Tokenizer.copy_of(own.tokenizer)
    return OpenModel(own, known.kind, record, tokenizer, context, session, threads, format)


@contextlib.contextmanager
def mapped_errors(name: str) -> Iterator[None]:
    """Turn errors of fastembed and the libraries below it into one `ModelError` line that names the model."""
    try:
        yield
    except ModelError:
        raise
    except Exception as exc:  # three libraries, with no common base
        message = f"model '{name}' cannot be used: {error_line(exc, 160)}"
        raise ModelError(message, f"fetch it again: qmd models pull {name}") from exc
