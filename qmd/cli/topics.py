"""Help topics: query syntax, filters, variables and exit codes."""

from __future__ import annotations

from collections.abc import Mapping

EXIT_CODES: Mapping[str, str] = {
    "0": "done; an empty result is not a failure",
    "1": "failure; with `--format grep` also: nothing found",
    "2": "wrong usage",
    "3": "no such index, collection or document; 1 from `collection` and `context`",
    "4": "model or runtime unavailable",
    "5": "another process uses the index",
    "130": "interrupted; the work done so far is kept",
}

_QUERIES = """\
A query of 'qmd query' is plain text, or lines with a type:
  rate limiter        words and meaning; more matching words rank higher
  "per-seat pricing"  required phrase; +limiter is a required word
  -draft              excludes notes with this word
  lex: words          full text: "a phrase", -without, +must
  vec: question       meaning
  hyde: passage       a possible answer
  intent: purpose     your purpose: helps the ranking

A date in the question finds the notes of that day. Filters can appear among the
words: qmd help filters. Options can appear anywhere before '--'. -c NAME limits
the search to a collection.

Examples:
  qmd query "what did we decide last week" -c notes
  qmd query $'lex: "rate limit" 429\\nvec: how many requests may a client send'
"""

_FILTERS = """\
Filters apply before the best results are chosen. Among the words of a query:
  tag:work           with this tag, also work/plans
  path:daily/        in this folder
  title:runbook      with this word in the title
  collection:notes   of this collection
  on:yesterday       by date: also on:2026-03-12, on:oct-dec-2025
  after:2026-01      and before:2026-03, since:"last week"
  status:draft       by any field of the front matter; -status:draft: all others
  priority>=3        numbers, dates and text are compared: < <= > >=
  has:due            has the field, whatever its value
  sort:date          newest first; sort:-date: oldest first

'--filter' adds fields to any query, or works without one. To list the fields:
qmd collection metadata.

Examples:
  qmd query "rate limiter tag:ops after:2026-01"
  qmd search --filter 'status:draft priority>=3'
"""

_ENVIRONMENT = """\
Environment variables. All of them with their values: qmd doctor
  QMD_CONFIG_DIR       folder of index.yml [default: ~/.config/qmd]
  INDEX_PATH           file or address of the index
  QMD_AUTO_UPDATE      0: searches do not look for changed files first
  QMD_EMBED_MODEL      model that computes vectors; also QMD_RERANK_MODEL
  QMD_EMBED_URL        server that computes vectors; also QMD_RERANK_URL
  QMD_FORCE_CPU        1: keeps every model on the CPU
  QMD_OFFLINE          1: downloads no model, asks only servers on this machine
  QMD_DAEMON           auto: keeps models loaded between queries
  EDITOR               editor of 'qmd open'; VISUAL comes first
  PAGER                pager for long results; QMD_PAGER comes first
  NO_COLOR             no colours and no links; FORCE_COLOR: also through a pipe
  QMD_DEBUG            1: shows the traceback of an unexpected error
"""


_EXIT_CODES = "".join(f"  {code:<5}{meaning.replace('`', chr(39))}\n" for code, meaning in EXIT_CODES.items())

TOPICS: Mapping[str, str] = {
    "queries": _QUERIES,
    "filters": _FILTERS,
    "environment": _ENVIRONMENT,
    "exit-codes": f"Exit status of every command:\n{_EXIT_CODES}",
}
"""Topic → its text, at most 80 columns wide and one screen long."""
