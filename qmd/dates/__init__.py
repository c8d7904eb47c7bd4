"""Dates named in text, in six languages.

Comes in: text and, for words like `yesterday`, today. Goes out: spans of days with their place in the text. Must not
know documents or queries. The general library for this needs 0.4 s to import and 5 s for its first text, takes `do` and
`set` for dates, and misses `letzte Woche`, `2024-W42` and `20181017`.
"""

from __future__ import annotations
