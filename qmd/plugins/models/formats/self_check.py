"""Agreement of a prepared form of a model with the published file, on thirty prompts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

_QUERIES = (
    "how to restore a database backup",
    "why does the login page show an error",
    "what did we decide about the release date",
    "数据库备份如何恢复",
    "как изменить размер шрифта",
)
_PASSAGES = (
    "To restore a backup, stop the service, copy the archive into place and run the restore command. Check the log.",
    "The login page answers with an error when the session cookie has expired. Clear it, or sign in again.",
    "In Tuesday's meeting we moved the release to the second week of March, because the translation is late.",
    "恢复数据库备份之前请先停止服务，然后把备份文件复制到数据目录并执行恢复命令。",
    "Размер шрифта меняется в настройках, раздел «Внешний вид»; там же выбирается тема.",
    "Boil the pasta in salted water for nine minutes and keep a cup of the water for the sauce.",
)
CHECK_PAIRS: tuple[tuple[str, str], ...] = tuple((query, text) for query in _QUERIES for text in _PASSAGES)
"""Thirty (query, passage) pairs, a fifth of them relevant; in three scripts."""

_MIN_CORRELATION = {"fp32": 0.999, "i16w16": 0.999, "i16w8": 0.99, "q8": 0.98, "q4": 0.90}
_MIN_TAU = {"fp32": 0.98, "i16w16": 0.98, "i16w8": 0.90, "q8": 0.90}
"""Lowest agreement of the order of scores."""


class Agreement(Struct, frozen=True):
    """Measures of agreement with the published file."""

    correlation: float
    """Pearson's, of scores over the prompts, or of a vocabulary's logits, averaged over the prompts."""
    tau: float | None
    """Kendall's, of the scores' order; None for a language model."""
    top1: float | None
    """Share of prompts with the same likeliest token; None for a reranker."""

    def summary(self) -> str:
        order = f", rank agreement {self.tau:.3f}" if self.tau is not None else ""
        token = f", same likeliest token in {self.top1:.0%}" if self.top1 is not None else ""
        return f"correlation {self.correlation:.3f} with the published file{order}{token}"

    def refusal(self, form: str) -> str | None:
        """Return why the form must not be used; None if it may be."""
        if not self.correlation >= _MIN_CORRELATION[form]:
            return f"correlation {self.correlation:.3f} with the published file is below {_MIN_CORRELATION[form]}"
        if self.tau is not None and not self.tau >= _MIN_TAU[form]:
            return f"rank agreement {self.tau:.3f} with the published file is below {_MIN_TAU[form]}"
        return None


def compare_scores(expected: npt.NDArray[np.float32], got: npt.NDArray[np.float32]) -> Agreement:
    """Return the agreement of two rerankers' logits, shape (prompts, 1)."""
    a, b = expected[:, 0].astype(np.float64), got[:, 0].astype(np.float64)
    return Agreement(_correlation(a, b), _kendall(a, b), None)


def compare_logits(expected: npt.NDArray[np.float32], got: npt.NDArray[np.float32]) -> Agreement:
    """Return the agreement of two language models' logits, shape (prompts, vocabulary)."""
    a, b = expected.astype(np.float64), got.astype(np.float64)
    mean = float(np.mean([_correlation(x, y) for x, y in zip(a, b, strict=True)]))
    top1 = float((a.argmax(1) == b.argmax(1)).mean())
    return Agreement(mean, None, top1)


def _correlation(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Return Pearson's correlation; 1 for two constants, 0 if only one is constant."""
    a, b = a - a.mean(), b - b.mean()
    scale = float((a @ a) ** 0.5 * (b @ b) ** 0.5)
    if scale == 0.0:
        return 1.0 if float(abs(a - b).max()) == 0.0 else 0.0
    return float(a @ b) / scale


def _kendall(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Return Kendall's tau over the pairs whose first scores differ by more than a hundredth of the spread.

    Closer scores are equal for every purpose, and their order is chance.
    """
    rows, columns = np.triu_indices(len(a), 1)
    first, second = a[rows] - a[columns], b[rows] - b[columns]
    is_apart = np.abs(first) > 0.01 * (float(np.ptp(a)) or 1.0)
    if not is_apart.any():
        return 1.0
    return float(np.sign(first[is_apart] * second[is_apart]).mean())
