"""A recorded log, cut short → the files that a crash or a power loss would leave.

After a crash of the process everything that was written is there, the last write perhaps in part. After a loss of
power a write that was not followed by a sync of its file may be there, missing, or there up to some sector, whatever
became of the others. Names (create, rename, unlink) and lengths survive in their order, as journaling file systems
promise.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.robustness.recording import Operation

SECTOR_BYTES = 512

Files = dict[str, bytes]
Cause = Literal["crash", "power loss"]


@dataclass(frozen=True, slots=True)
class Accident:
    """How a run ended: the cause, and the number of its operations that were begun."""

    cause: Cause
    cut: int
    seed: int
    torn: bool = False
    """A crash in the middle of the last operation."""

    def __str__(self) -> str:
        return f"{self.cause} after operation {self.cut}{' (torn)' if self.torn else ''}, seed {self.seed}"


def draw_accident(seed: int, n_operations: int) -> Accident:
    """The accident number `seed`: four in five lose power, which leaves more to chance."""
    dice = random.Random(seed)
    if dice.random() < 0.2:
        return Accident("crash", dice.randint(0, n_operations), seed, torn=dice.random() < 0.4)
    return Accident("power loss", dice.randint(1, n_operations), seed)


def replay(start: Mapping[str, bytes], log: Sequence[Operation], accident: Accident) -> Files:
    """The files after `accident` befell a run that began with `start` and would have done `log`."""
    dice = random.Random(accident.seed)
    begun = log[: accident.cut]
    files = {name: bytearray(content) for name, content in start.items()}
    if accident.cause == "crash":
        for number, operation in enumerate(begun, start=1):
            is_torn = accident.torn and operation.kind == "write" and number == len(begun)
            _apply(files, operation, _torn(operation, dice) if is_torn else operation.data, grows=False)
    else:
        durable = _durable(begun)
        # How much of the cache reached the disk differs from one power loss to the next.
        survival = dice.choice((0.0, dice.random(), dice.random()))
        for operation, is_durable in zip(begun, durable, strict=True):
            data = operation.data
            if operation.kind == "write" and not is_durable and dice.random() >= survival:
                data = _torn(operation, dice) if dice.random() < 0.3 else b""
            _apply(files, operation, data, grows=dice.random() < 0.5)
    return {name: bytes(content) for name, content in files.items()}


def _durable(log: Sequence[Operation]) -> list[bool]:
    """For each operation whether a later sync of its file, which may have got another name by then, made it last."""
    durable = [False] * len(log)
    waiting: dict[str, list[int]] = {}
    for number, operation in enumerate(log):
        if operation.kind == "write":
            waiting.setdefault(operation.name, []).append(number)
        elif operation.kind == "rename":
            waiting[operation.target] = waiting.pop(operation.name, [])
        elif operation.kind == "unlink":
            waiting.pop(operation.name, None)
        elif operation.kind == "sync":
            for written in waiting.pop(operation.name, []):
                durable[written] = True
    return durable


def _torn(operation: Operation, dice: random.Random) -> bytes:
    """The first sectors of a write, at least one byte short of all."""
    ends = range(SECTOR_BYTES - operation.offset % SECTOR_BYTES, len(operation.data), SECTOR_BYTES)
    return operation.data[: dice.choice([0, *ends])]


def _apply(files: dict[str, bytearray], operation: Operation, data: bytes, *, grows: bool) -> None:
    """Change `files` as the operation does, a write with `data` only; with `grows` the file still gets its length."""
    content = files.setdefault(operation.name, bytearray()) if operation.kind not in ("rename", "unlink") else None
    if content is None:
        moved = files.pop(operation.name, None)
        if operation.kind == "rename" and moved is not None:
            files[operation.target] = moved
        return
    if operation.kind == "write":
        if data:
            content.extend(bytes(max(0, operation.offset - len(content))))
            content[operation.offset : operation.offset + len(data)] = data
        if grows:
            content.extend(bytes(max(0, operation.offset + len(operation.data) - len(content))))
    elif operation.kind == "truncate":
        del content[operation.offset :]
        content.extend(bytes(operation.offset - len(content)))
