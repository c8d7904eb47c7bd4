"""Text → the days that it names, in six languages; dates of ours rather than of a library.

In: text and, for words like `yesterday`, today. Out: spans of days with their place in the text. Knows neither
documents nor queries. The general library for this needs 0.4 s to import and 5 s for its first text, takes `do` and
`set` for dates, and misses `letzte Woche`, `2024-W42` and `20181017`.
"""

from __future__ import annotations
