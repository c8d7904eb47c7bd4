"""Validation of proposed sub-queries: each is kept, or refused with a reason for the user. Pure text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from qmd.analysis.scripts import has_unspaced, script_of
from qmd.analysis.stopwords import language_of, stop_words_of
from qmd.inference.base import Expansion
from qmd.records import SubQuery

_MAX_CHARACTERS = {"lex": 120, "vec": 240, "hyde": 800}
_MIN_SCRIPT_SHARE = 0.25
"""Share of a text's letters that must be in the query's script: technical names in Latin letters stay possible."""
_STEM = 5
"""Words that agree in this many first letters count as the same term (`deploy`, `deployment`)."""
_KANA = frozenset({"HIRAGANA", "KATAKANA"})
_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")

_TEMPLATE = re.compile(
    r"^\W*(?:here (?:is|are)\b|sure[,!. ]|certainly\b|of course\b|as an ai\b|i (?:can|cannot|will|am|would)\b"
    r"|the user (?:is|wants|asks|needs)\b|(?:this|the) (?:search )?(?:query|question) (?:is|asks|seeks|refers)\b"
    r"|(?:note|example|output|answer|query)\s*:|以下是|当然|好的|вот\b|конечно|hier (?:ist|sind)\b|natürlich\b"
    r"|voici\b|bien sûr|aquí (?:está|tienes)\b|claro[,.])"
    r"|[\[<{](?:insert|your|example|query|topic|keyword)|\.\.\.\s*$|\b(?:lex|vec|hyde)\s*:",
    re.IGNORECASE,
)


def check_expansions(query: str, proposed: Sequence[SubQuery], *, intent: str | None = None) -> Expansion:
    """Split proposals into kept and refused, in order.

    Refused are empty lines, repetitions of the query, of its intent or of an earlier line, template prose, repetitive
    text, another script or language than the query's, and drift: no term in common with query or intent.
    """
    kept: list[SubQuery] = []
    dropped: list[tuple[str, str]] = []
    seen = {_key(query)}
    for item in proposed:
        text = " ".join(item.text.split()).strip("\"'`“”«» -–*•")
        reason = _refusal(query, item.kind, text, intent)
        if reason is None and (key := _key(text)) in seen:
            reason = "repeats the query" if key == _key(query) else "repeats another expansion"
        if reason is not None:
            dropped.append((item.text.strip(), reason))
            continue
        seen.add(key)
        kept.append(SubQuery(item.kind, text, len(kept) + 1))
    return Expansion(tuple(kept), tuple(dropped))


def _refusal(query: str, kind: str, text: str, intent: str | None) -> str | None:
    if not any(letter.isalnum() for letter in text):
        return "is empty"
    if len(text) > _MAX_CHARACTERS[kind]:
        return f"is longer than {_MAX_CHARACTERS[kind]} characters"
    if _TEMPLATE.search(text):
        return "is template prose"
    words = _words(text)
    if len(words) >= 6 and Counter(words).most_common(1)[0][1] > len(words) / 2:
        return "repeats itself"
    if not same_script(query, text, strict=kind != "lex"):
        return "is in another script than the query"
    if not same_language(query, text):
        return "is in another language than the query"
    if intent and _repeats_intent(query, intent, text):
        return "repeats the intent"
    if not shares_term(f"{query} {intent or ''}", text):
        return "shares no term with the query"
    return None


def _key(text: str) -> tuple[str, ...]:
    """Return the words without case, order or repetition: two sub-queries with one key are the same search."""
    return tuple(sorted(set(_words(text))))


def _words(text: str) -> list[str]:
    return [match[0].casefold() for match in _WORD.finditer(unicodedata.normalize("NFKC", text))]


def query_scripts(query: str) -> frozenset[str]:
    """Return the non-Latin scripts of a good part of the query; empty for a query in Latin letters.

    One ideograph or syllable counts as about three letters.
    """
    shares = _script_shares(query)
    return frozenset(script for script, share in shares.items() if script != "LATIN" and share >= _MIN_SCRIPT_SHARE)


def same_script(query: str, text: str, *, strict: bool = True) -> bool:
    """Return True when `text` is written in the query's script, technical names aside.

    Japanese mixes scripts: a query with kana accepts ideographs in short lines, and requires kana in prose (`strict`);
    a query in ideographs only is Chinese and accepts no kana.
    """
    wanted, shares = query_scripts(query), _script_shares(text)
    if not wanted:
        foreign = sum(share for script, share in shares.items() if script != "LATIN")
        return foreign < _MIN_SCRIPT_SHARE or bool(_script_shares(query).keys() & (shares.keys() - {"LATIN"}))
    query_has_kana = bool(_script_shares(query).keys() & _KANA)
    if query_has_kana and strict:
        return bool(shares.keys() & _KANA)
    if "CJK" in wanted and not query_has_kana and shares.keys() & _KANA:
        return False
    accepted = wanted | ({"CJK"} | _KANA if query_has_kana else frozenset())
    return sum(shares.get(script, 0.0) for script in accepted) >= _MIN_SCRIPT_SHARE


def _script_shares(text: str) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for letter in text:
        script = script_of(letter)
        if script is not None:
            counts[script] += 3 if has_unspaced(letter) else 1
    total = counts.total()
    return {script: count / total for script, count in counts.items()}


def same_language(query: str, text: str) -> bool:
    """Return False when function words show two different languages; keywords without any show nothing."""
    ours, theirs = language_of(query, is_listed=True), language_of(text, is_listed=True)
    return ours is None or theirs is None or ours == theirs


def shares_term(query: str, text: str) -> bool:
    """Return True when a content word (or a pair of ideographs) of the query occurs in the text, endings aside.

    Always True for a query without content words.
    """
    ours = _terms(query)
    return not ours or bool(ours & _terms(text))


def _repeats_intent(query: str, intent: str, text: str) -> bool:
    """Return True for the intent's own words, or some of them that the query does not have."""
    terms = _terms(text)
    is_part = bool(terms) and terms <= _terms(intent) and not terms & _terms(query)
    return is_part or _key(text) == _key(intent)


def _terms(text: str) -> set[str]:
    terms: set[str] = set()
    words = _words(text)
    stop = stop_words_of(words)
    for word in words:
        if has_unspaced(word[0]):
            terms.update(word[start : start + 2] for start in range(max(1, len(word) - 1)))
        elif word not in stop and (len(word) >= 3 or not word.isalpha()):
            terms.add(word[:_STEM])
    return terms
