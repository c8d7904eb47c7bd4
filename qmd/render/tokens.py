"""Moved to `qmd.analysis.tokens`."""

from qmd.analysis.tokens import count_tokens as count_tokens
