"""Questions that follow a matter over time, and the shortest quotations of the notes that answer them."""

from __future__ import annotations

import re

from msgspec.structs import replace

from qmd.app.budget import cut_text
from qmd.records import Hit, Passage
from qmd.retrieval.layout import SUMMARY

QUESTION_CHARS, ITEM_CHARS = 300, 240
"""Longest question that follows a matter, and longest item of a note."""

_PIECE, _END = r" [^,:;?!]+?", r"(?= ?(?:[,:;?!]|$))"
_OVER_TIME = (
    rf"(?i).*?\b(?:(?:from|von|vom|desde|depuis|dal|dalla|van){_PIECE} (?:to|until|bis|hasta|até|al|alla|tot){_PIECE}"
    rf"|(?:between|zwischen|entre|tra|fra|tussen){_PIECE} (?:and|und|et|y|e|en){_PIECE}"
    rf"|(?:before and after|vor und nach|avant et après|antes [ye] des?p\w+|prima e dopo|voor en na){_PIECE}){_END}"
    r"|.*?\b(?:how (?:did|has|have)\b.* (?:develop|evolve|change|gr[eo]w)|(?:development|evolution|growth|history) of\b"
    r"|(?:later|afterwards|over (?:the years?|time))\b|first\b.* (?:new|then|last)\b)"
)
HEADING = re.compile(r"#{1,6}\s")


def follows_matter(question: str) -> bool:
    """Return whether a question follows a matter over time: from A to B, before and after, how did it develop."""
    return len(question) <= QUESTION_CHARS and re.match(_OVER_TIME, question) is not None


def find_summary(hit: Hit) -> tuple[Passage, ...]:
    """Return the passage with the decision or summary of the section, if there is one."""
    others = (one for one in hit.all_passages[1:] if one.heading_trail)
    return tuple(one for one in others if re.match(SUMMARY, one.heading_trail[-1]))[:1]


def find_item(hit: Hit) -> Passage:
    """Return the summary of the section, or else the best line, each from its first line that is no heading."""
    own = find_summary(hit)
    one, line = (own[0], own[0].start_line) if own else (hit.passage, hit.passage.line)
    lines = one.text.split("\n")[line - one.start_line :] or [one.text]
    while lines[1:] and (not lines[0].strip() or HEADING.match(lines[0])):
        lines, line = lines[1:], line + 1
    text = cut_text("\n".join(lines if own else lines[:1]), ITEM_CHARS)
    return replace(one, text=text, start_line=line, end_line=line + text.count("\n"), line=line)
