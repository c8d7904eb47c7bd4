"""Rule for prompts: the words to search, and the relevance that a note needs.

Orders need more than questions and are searched without their verb. Prompts that point at the screen or name a file of
the code are ignored, unless they recall a decision.
"""

from __future__ import annotations

import re

ASKED, ORDERED = 0.4, 0.8
"""Lowest relevance of a note for a question and for an order. With each of four trees left out in turn, bench_hook.py
chooses .3 and .75 or .8: these answer fewer questions and orders of which no note treats."""
_MOST_CHARS, _FEWEST_BYTES = 2_000, (16, 13)
"""Characters that are searched, as later text is pasted, and the least bytes of an order and of a question: more than
"yes, go on" and "what's next?"; six Chinese characters may do."""

_PASTED = r"(?ms)^ *(```|~~~).*?(?:^ *\1|\Z)|^(?:    |\t| *(?:at|File) |Traceback ).*?$"
_REQUEST = (
    r"(?:(?:please|bitte|ok|okay|now|jetzt|(?:can|could|would|will) (?:you|we)|let'?s"
    r"|(?:kannst|könntest|würdest) du|(?:können|könnten) (?:wir|sie)|lass uns|mir|mal),? )*"
)
_EXPLAIN = rf"{_REQUEST}(?:explain|tell me|remind me|erklär\w*|sag\w* mir|erinner\w*)\b"
_ASKS = (
    rf"(?i){_EXPLAIN}"
    r"|(?:\w{2,4} )?(?:what|how|why|who|whom|whose|which|was|wie|wer|wen|wem|wann|warum|wieso|weshalb|welche[mnrs]?)\b"
    r"|(?:where|when) (?:is|are|was|were|do|does|did|can|should)\b|wo(?:her|hin|mit|für|zu|von|r\w+)?\b"
    r"|(?:can|should|do|did) (?:i|we)\b|(?:is|are) there\b|(?:kann|darf|muss|soll) (?:ich|man)\b|gibt es\b"
)
_POINTS = r"(?i)\b(?:this|these|here|dies\w*|hier|eben|d(?:as|er|ie|en) da)\b"
_ORDER_POINTS = rf"{_POINTS}|\bthe (?:last|previous)\b|\bletzte|(?<![\w.])[a-z_][\w/-]+\.[a-z]{{1,4}}\b"
_RECALLS = r"(?i)\b(?:decide|agree|discuss|beschlossen|besprochen|entschieden|vereinbart|abgemacht)"
_BEFORE_MATTER = (
    rf"(?i)^(?:{_EXPLAIN},?|(?:\S+ ){{1,6}}?about|(?:schreib|erzähl)\w* (?:\S+ ){{0,4}}?über"
    r"|wie \w+ (?:ich|man|wir),?) "
)


def search_of(prompt: str) -> tuple[str, float] | None:
    """Return the words of a prompt to search, and the lowest relevance for them; None if it asks nothing of notes."""
    text = re.sub(_PASTED, "\n", prompt[:_MOST_CHARS])
    recalls = re.search(_RECALLS, text) is not None
    sentences = [*filter(None, map(str.strip, re.split(r"(?<=[.!?])\s|(?<=[。！？؟])|\n", text)))]
    asked = [one for one in sentences if _asks(one) and (recalls or not re.search(_POINTS, one))]
    is_about_screen = not asked and not recalls and re.search(_ORDER_POINTS, text)
    if is_about_screen or prompt.lstrip().startswith(("/", "!", "#")):
        return None
    order = " ".join(asked or sentences)
    words = _plain_words(" ".join(re.sub(_BEFORE_MATTER, "", one) for one in asked) or _matter(order))
    is_long = len(_plain_words(order).encode("utf-8", "replace")) >= _FEWEST_BYTES[bool(asked)]
    return (words, ASKED if asked or recalls else ORDERED) if is_long else None


def _asks(sentence: str) -> bool:
    is_request = re.match(rf"(?i){_REQUEST}(?<= )", sentence)
    return bool(re.match(_ASKS, sentence) or (sentence.endswith(("?", "？", "؟")) and not is_request))


def _plain_words(text: str) -> str:
    """Remove the marks of the query language: a prompt must not filter, exclude or choose collections."""
    return " ".join(re.sub(r"[^\w\s.'’?]+", " ", text).split())


def _matter(order: str) -> str:
    """Return an order without its verb: the first word, with its prefix, or in German the infinitive at the end."""
    order = re.sub(f"(?i)^{_REQUEST}", "", order)
    matter = re.sub(r" (?!zusammen)[a-zäöüß]+(?:en|[eln]ln|ern)[.!]?$", "", order)
    return matter if matter != order else re.sub(rf"{_BEFORE_MATTER}|^\S+ | (?:hinzu|zurück|zusammen)[.!]?$", "", order)
