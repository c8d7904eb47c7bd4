"""Documents with vectors, for any engine."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from qmd.store.base import IndexWriter
from qmd.store.records import ChunkRecord, NewDocument

DIM = 96


def unit_vectors(n: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Return vectors about an offset, as embedding models make them; shape (n, DIM)."""
    random = np.random.default_rng(seed)
    made = random.standard_normal((n, DIM)) + np.random.default_rng(99).standard_normal(DIM)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float32)


def key_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def put_late(writer: IndexWriter, make: Callable[..., NewDocument], vector: npt.NDArray[np.float32]) -> None:
    """Add the document `late.md` with this one vector."""
    late = make("late.md", "late text")
    writer.put_documents("n", [late])
    writer.put_vectors("f", DIM, {b"late" * 4: vector})
    writer.put_chunks("f", DIM, {late.hash: [ChunkRecord(0, 0, 4, b"late" * 4)]})


def fill(writer: IndexWriter, make: Callable[..., NewDocument], n: int, per: int = 3) -> npt.NDArray[np.float32]:
    """Return `n` documents with `per` chunks each; their vectors, shape (n, per, DIM)."""
    documents = [make(f"d/{number}.md", f"text {number}", status=("even", "odd")[number % 2]) for number in range(n)]
    matrix = unit_vectors(n * per)
    contents = {
        document.hash: [ChunkRecord(seq, seq * 10, seq * 10 + 9, key_of(number * per + seq)) for seq in range(per)]
        for number, document in enumerate(documents)
    }
    with writer.transaction():
        writer.put_documents("n", documents)
        writer.put_vectors("f", DIM, dict(zip(map(key_of, range(n * per)), matrix, strict=True)))
        writer.put_chunks("f", DIM, contents)
    return matrix.reshape(n, per, DIM)
