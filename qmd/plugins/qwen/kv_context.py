"""Key-value contexts: a decoder's memory of the tokens it has read, bound to a session, never copied to the host.

Two kinds. An `InPlaceContext` allocates its tensors once and binds each as input and as output; GroupQueryAttention
then writes new tokens into it, and going back costs nothing. A `GrowingContext` passes the tensors of one run to the
next, for graphs whose attention concatenates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.runtime.sessions import Session, import_runtime, mapped_errors
from qmd.plugins.qwen.decoder_signature import DecoderSignature

Rows = Sequence[Sequence[int]]


class Checkpoint(Struct, frozen=True):
    """Lengths of a context's rows, and the tensors of a growing one."""

    lengths: tuple[int, ...]
    past: tuple[Any, ...] = ()
    seen: npt.NDArray[np.int64] | None = None


class KeyValueContext(ABC):
    """A batch of token sequences that a decoder has read.

    `append` reads more tokens, `checkpoint` and `restore` go back to an earlier length, `fork` continues one sequence
    in several ways as a batch.
    """

    def __init__(self, session: Session, signature: DecoderSignature, batch: int) -> None:
        self._session, self._signature = session, signature
        self._binding: Any = session.ort.io_binding()
        self._device = session.got
        self._runtime = import_runtime()
        self.reads_in_two = session.got == "cuda" and signature.logits_rank == 3
        """Read all but the last tokens first and leave their logits on the device: for a prompt of 100 tokens they are
        30 MB, which would be copied to the host for nothing."""
        self.batch = batch
        self.is_on_cpu = self._device == "cpu"
        """Rows can be selected (`keep`)."""
        self.tokens: list[list[int]] = [[] for _ in range(batch)]
        """Tokens read, per row."""

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.tokens]

    def append(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Read more tokens.

        Args:
            rows: One non-empty token sequence per row of the batch.

        Returns:
            The logits after each row's last token: (batch, vocabulary), or (batch, labels) for a scoring head.

        Raises:
            ModelError: If the runtime fails.
            ValueError: If a row is empty or the number of rows is not the batch.
        """
        counts = [len(row) for row in rows]
        if len(rows) != self.batch or not all(counts):
            raise ValueError(f"expected {self.batch} non-empty rows, got lengths {counts}")
        if self.reads_in_two and min(counts) > 1:
            self._read([row[:-1] for row in rows], self._device)
            rows = [row[-1:] for row in rows]
        logits = self._read(rows, "cpu").numpy()
        if logits.ndim == 3:
            last = [0 if logits.shape[1] == 1 else len(row) - 1 for row in rows]
            logits = logits[np.arange(self.batch), last]
        logits = logits.astype(np.float32)
        if self._session.head is not None:
            logits = self._session.head.finish(logits)
        if np.isnan(logits).any():
            reason = f"model '{self._session.name}' returns values that are not numbers"
            raise ModelError(reason, "check it: qmd models verify")
        result: npt.NDArray[np.float32] = logits
        return result

    def _read(self, rows: Rows, logits_device: str) -> Any:
        """Run the graph on more tokens and return the logits as a tensor of the runtime."""
        counts = [len(row) for row in rows]
        ids = np.zeros((self.batch, max(counts)), self._signature.id_dtype)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        with mapped_errors(self._session.name, self._session.got):
            self._bind_common(ids, counts)
            logits = self._run(counts, logits_device)
        for read, row in zip(self.tokens, rows, strict=True):
            read.extend(row)
        return logits

    @abstractmethod
    def checkpoint(self) -> Checkpoint:
        """Return the present state, for `restore`. It stays valid while only later tokens are read and forgotten."""

    @abstractmethod
    def restore(self, state: Checkpoint) -> None:
        """Forget every token read since the checkpoint."""

    @abstractmethod
    def fork(self, tails: Rows, n_more: int) -> tuple[KeyValueContext, npt.NDArray[np.float32]]:
        """Return a batch in which row i is this single sequence followed by `tails[i]`, and its logits.

        This context does not change. Each row may get `n_more` tokens beyond its tail.
        """

    @abstractmethod
    def keep(self, rows: Sequence[int]) -> KeyValueContext:
        """Return the batch without its other rows, for tensors in CPU memory. This context is unusable afterwards.

        `rows` ascend.
        """

    @abstractmethod
    def _mask(self, counts: Sequence[int]) -> npt.NDArray[np.int64]: ...

    @abstractmethod
    def _run(self, counts: Sequence[int], logits_device: str) -> Any: ...

    def _bind_common(self, ids: npt.NDArray[Any], counts: Sequence[int]) -> None:
        self._binding.bind_cpu_input("input_ids", ids)
        if self._signature.has_mask:
            self._binding.bind_cpu_input("attention_mask", self._mask(counts).astype(self._signature.id_dtype))
        if self._signature.has_positions:
            starts = np.array(self.lengths, self._signature.id_dtype)[:, None]
            positions = starts + np.arange(ids.shape[1], dtype=ids.dtype)
            self._binding.bind_cpu_input("position_ids", np.ascontiguousarray(positions))
        if self._signature.keep_input is not None:
            # All positions if rows end at different ones, else only the last.
            keep = 1 if min(counts) == max(counts) else max(counts)
            self._binding.bind_cpu_input(self._signature.keep_input, np.array(keep, np.int64))

    def _bind_output(self, name: str, device: str) -> None:
        self._binding.bind_output(name, device, self._session.device_id if device == self._device else 0)

    def _forget(self, lengths: Sequence[int]) -> None:
        for row, length in zip(self.tokens, lengths, strict=True):
            del row[length:]

    def _full_rows(self, tails: Rows) -> Rows:
        """Return the full rows, which branches read again on devices whose memory is not accessible here."""
        return [[*self.tokens[0], *tail] for tail in tails]


class InPlaceContext(KeyValueContext):
    """Tensors of fixed capacity, each bound as past and as present.

    GroupQueryAttention reads several new tokens over a past only in a batch of one; batches take one token a step.
    """

    def __init__(
        self,
        session: Session,
        signature: DecoderSignature,
        batch: int,
        capacity: int,
        arrays: Sequence[npt.NDArray[Any]] = (),
    ) -> None:
        super().__init__(session, signature, batch)
        self.capacity = capacity
        self._binding.bind_output(signature.logits, "cpu")
        shape = (batch, signature.kv_heads, capacity, signature.head_size)
        dtype = np.dtype(signature.kv_dtype)
        self._arrays: list[npt.NDArray[Any]] = []
        for index, (past, present) in enumerate(zip(signature.past, signature.present, strict=True)):
            # Zeros: a NaN that another program left in unwritten cells would pass a mask that multiplies.
            zeros = arrays[index] if arrays else np.zeros(shape, dtype)
            value = self._runtime.OrtValue.ortvalue_from_numpy(zeros, self._device, session.device_id)
            if self._device == "cpu":
                # The tensor is a view of the array, which lets `fork` copy a prefix without asking the runtime.
                self._arrays.append(zeros)
            self._binding.bind_ortvalue_input(past, value)
            self._binding.bind_ortvalue_output(present, value)

    def append(self, rows: Rows) -> npt.NDArray[np.float32]:
        needed = max(length + len(row) for length, row in zip(self.lengths, rows, strict=True))
        if needed > self.capacity:
            raise ValueError(f"context of {self.capacity} tokens cannot hold {needed}")
        if self.batch > 1 and any(self.lengths) and max(map(len, rows)) > 1:
            raise ValueError("a batch with a past takes one token a step")
        return super().append(rows)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(tuple(self.lengths))

    def restore(self, state: Checkpoint) -> None:
        self._forget(state.lengths)

    def fork(self, tails: Rows, n_more: int) -> tuple[KeyValueContext, npt.NDArray[np.float32]]:
        start = self.lengths[0]
        capacity = start + max(map(len, tails)) + n_more
        branches = InPlaceContext(self._session, self._signature, len(tails), capacity)
        if not self._arrays:
            return branches, branches.append(self._full_rows(tails))
        read: dict[tuple[int, ...], npt.NDArray[np.float32]] = {}
        for tail in dict.fromkeys(map(tuple, tails)):
            read[tail] = self.append([tail])
            end = self.lengths[0]
            for index in (index for index, one in enumerate(tails) if tuple(one) == tail):
                for source, target in zip(self._arrays, branches._arrays, strict=True):
                    target[index, :, :end] = source[0, :, :end]
                branches.tokens[index] = list(self.tokens[0])
            self._forget([start])
        return branches, np.concatenate([read[tuple(tail)] for tail in tails])

    def keep(self, rows: Sequence[int]) -> KeyValueContext:
        # Adjacent rows need no copy.
        chosen = slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] < len(rows) else list(rows)
        arrays = [array[chosen] for array in self._arrays]
        kept = InPlaceContext(self._session, self._signature, len(rows), self.capacity, arrays)
        kept.tokens = [self.tokens[row] for row in rows]
        return kept

    def _mask(self, counts: Sequence[int]) -> npt.NDArray[np.int64]:
        ends = np.array(self.lengths) + np.array(counts)
        mask: npt.NDArray[np.int64] = (np.arange(ends.max())[None] < ends[:, None]).astype(np.int64)
        return mask

    def _run(self, counts: Sequence[int], logits_device: str) -> Any:
        # Rebinding drops the previous step's tensor, whose shape may differ. It keeps its place: first.
        self._bind_output(self._signature.logits, logits_device)
        self._session.ort.run_with_iobinding(self._binding)
        return self._binding.get_outputs()[0]


class GrowingContext(KeyValueContext):
    """Tensors that each run returns one token longer, passed on without a copy."""

    def __init__(self, session: Session, signature: DecoderSignature, batch: int) -> None:
        super().__init__(session, signature, batch)
        shape = (batch, signature.kv_heads, 0, signature.head_size)
        empty = np.zeros(shape, signature.kv_dtype)
        self._past = [self._runtime.OrtValue.ortvalue_from_numpy(empty) for _ in signature.past]
        self._seen: npt.NDArray[np.int64] = np.zeros((batch, 0), np.int64)
        """Mask over the tensors' tokens; zero for padding of a shorter row."""

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(tuple(self.lengths), tuple(self._past), self._seen)

    def restore(self, state: Checkpoint) -> None:
        assert state.seen is not None
        self._past, self._seen = list(state.past), state.seen
        self._forget(state.lengths)

    def fork(self, tails: Rows, n_more: int) -> tuple[KeyValueContext, npt.NDArray[np.float32]]:
        branches = GrowingContext(self._session, self._signature, len(tails))
        if self._device != "cpu":
            return branches, branches.append(self._full_rows(tails))
        # Each tail is read once over the shared prefix, and the results are copied into one padded batch.
        start = self.checkpoint()
        width = self._seen.shape[1] + max(map(len, tails))
        shape = (len(tails), self._signature.kv_heads, width, self._signature.head_size)
        arrays = [np.zeros(shape, self._signature.kv_dtype) for _ in self._past]
        branches._seen = np.zeros((len(tails), width), np.int64)
        logits = []
        for index, tail in enumerate(tails):
            logits.append(self.append([tail]))
            end = self._seen.shape[1]
            for target, value in zip(arrays, self._past, strict=True):
                target[index, :, :end] = value.numpy()[0]
            branches._seen[index, :end] = self._seen[0]
            branches.tokens[index] = list(self.tokens[0])
            self.restore(start)
        branches._past = [self._runtime.OrtValue.ortvalue_from_numpy(array) for array in arrays]
        return branches, np.concatenate(logits)

    def keep(self, rows: Sequence[int]) -> KeyValueContext:
        kept = GrowingContext(self._session, self._signature, len(rows))
        from_numpy = self._runtime.OrtValue.ortvalue_from_numpy
        kept._past = [from_numpy(value.numpy()[list(rows)]) for value in self._past]
        kept._seen = self._seen[list(rows)]
        kept.tokens = [self.tokens[row] for row in rows]
        return kept

    def _mask(self, counts: Sequence[int]) -> npt.NDArray[np.int64]:
        new = (np.arange(max(counts))[None] < np.array(counts)[:, None]).astype(np.int64)
        return np.concatenate([self._seen, new], axis=1)

    def _run(self, counts: Sequence[int], logits_device: str) -> Any:
        for name, value in zip(self._signature.past, self._past, strict=True):
            self._binding.bind_ortvalue_input(name, value)
        self._bind_output(self._signature.logits, logits_device)
        for name in self._signature.present:
            self._bind_output(name, self._device)
        mask = self._mask(counts)
        self._session.ort.run_with_iobinding(self._binding)
        outputs: list[Any] = self._binding.get_outputs()
        self._past, self._seen = outputs[1:], mask
        # Up to ONNX Runtime 1.24 these are memory of their binding, which its next run would overwrite.
        self._binding.clear_binding_inputs()
        self._binding = self._session.ort.io_binding()
        return outputs[0]
