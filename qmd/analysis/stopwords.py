"""Stop words of nine languages, and language detection by them, by letters and by scripts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, filterfalse


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


ENGLISH = _word_set(
    "a about after all also am an and any are as at be because been before being between both but by can could"
    " did do does doing don during each few for from had has have having he her here hers him his how i if in into"
    " is it its just me more most my no nor not of off on once only or other our out over own s same she should so"
    " some such t than that the their them then there these they this those through to too under until up very was"
    " we were what when where which while who whom why will with would you your"
)

_OTHERS: Mapping[str, frozenset[str]] = {
    "de": _word_set(
        "aber als am an auch auf aus bei bin bis das dass dem den der des die durch ein eine einem einen einer eines"
        " er es für gibt hat haben ich ihr im in ist kann man mein mit nach nicht noch oder sich sie sind so um und"
        " uns von vor wann war warum was welche welcher welches wenn wer werden wie wir wird wo zu zum zur über"
    ),
    "fr": _word_set(
        "au aux avec c ce ces cette comment d dans de des du elle en es est et eux il ils j je l la le les leur lui"
        " ma mais me mes mon n ne nos notre nous on ou où par pas pour pourquoi qu quand que quel quelle quels qui"
        " quoi s sa se ses son sont sur ta te tes ton tu un une vos votre vous y à été être"
    ),
    "es": _word_set(
        "a al como con cuando cuál cómo de del desde donde dónde e el ella en entre era es esta este está estos hay"
        " la las le les lo los me mi muy más no nos o para pero por porque que qué se ser si sin sobre son su sus"
        " también te tiene un una uno y ya yo él"
    ),
    "pt": _word_set(
        "a ao aos as com como da das de do dos e ela ele em entre era essa esse esta este eu foi isso já mais mas me"
        " meu minha muito na nas no nos não o onde os ou para pela pelo por porque qual quando que quem se sem ser seu"
        " sua são também tem um uma você à é"
    ),
    "it": _word_set(
        "a ai al alla anche che chi ci come con cosa da dal dalla de dei del della delle di dove e ed era gli ha ho i"
        " il in io la le lo ma mi nel nella non o per perché più quale quando quello questa questo se si sono su sul"
        " sulla un una uno è"
    ),
    # Without `die`, `door` and `hoe`: `the door is hot` minus its article would be taken for Dutch.
    "nl": _word_set(
        "aan als bij dat de deze dit een en er geen had heb heeft het hij hun ik in is je kan maar me met"
        " mijn naar niet nog of om ook op over te tot uit van voor waar waarom wanneer was wat we welke werd wie wij"
        " worden wordt ze zich zij zijn zo zonder"
    ),
    "ru": _word_set(
        "а без бы был была были было быть в вам вас весь во вот все всё где да для до его ее если есть же за и из или"
        " им их к как какая какие какой когда кто ли мне можно мы на надо не него нет ни но о об он она они от по под"
        " при с со так такое там то только у уже что чтобы эта эти это этот я"
    ),
    "sv": _word_set(
        "att av de den denna det detta dig du där efter eller en ett från för hon hur här i inte jag kan med mig min"
        " mitt måste ni när och också om på sig sin ska som till under utan vad var varför vi vilka vilken är över"
    ),
}

_CODES = "pl cs hu ro tr vi da uk sr fa ja zh ko el he ar hi th lo km my bo"
_NAMES = (
    "German,French,Spanish,Portuguese,Italian,Dutch,Russian,Swedish,Polish,Czech or Slovak,Hungarian,Romanian,Turkish,"
    "Vietnamese,Danish or Norwegian,Ukrainian,Serbian,Persian,Japanese,Chinese,Korean,Greek,Hebrew,Arabic,Hindi,Thai,"
    "Lao,Khmer,Burmese,Tibetan"
)
LANGUAGES: Mapping[str, str] = dict(zip([*_OTHERS, *_CODES.split()], _NAMES.split(","), strict=True))
"""Languages other than English, with their names: those with stop words, by letters, and by script alone."""

_ACCENTED = (
    "äöüß àâçèéêëîïôùûüœ áéíñóúü áâãàçéêíóôõú àèéìòù éëï - åäöé óąćęłńśźż áéíóúýčďěňřšťůž áéíóöúüőű âîăşţșț"
    " âçîöûüğış\u0307 àáâãèéêìíòóôõùúýăđĩũơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ åæø єіїґ ђјљњћџ پچژگ"
)
_SCRIPTS = "HIRAGANA CJK HANGUL GREEK HEBREW ARABIC DEVANAGARI THAI LAO KHMER MYANMAR TIBETAN"
_LETTERS = dict(zip(LANGUAGES, map(frozenset(map(chr, range(128))).union, _ACCENTED.split()), strict=False))
_BY_SCRIPT = dict(zip(_SCRIPTS.split(), list(LANGUAGES)[len(_LETTERS) :], strict=True))
# Croatian and Slovenian have no letters of their own.
_USES = Counter(chain("ćčđšž", *_LETTERS.values()))
_OWN = {name: {one for one in _LETTERS[name] if _USES[one] == 1} for name in _LETTERS if name not in _OTHERS}
_FOREIGN = frozenset[str]().union(*_OTHERS.values())

STEMMED = frozenset(_OTHERS)
"""Languages with stop words, in which other forms of a word are searched."""

LANGUAGE_MARK = "in0"
"""Prefix of the index term for the language of a document; no text contains `in0de0`."""


def stop_words_of(words: Sequence[str]) -> frozenset[str]:
    """Return the stop words among `words` (lower-case), in the one language whose list covers most of them.

    Another language than English needs at least two of its words and more than English has: `die hard` is not German.
    """
    best: Collection[str] = ENGLISH
    most = max(sum(word in ENGLISH for word in words), 1)
    for listed in _OTHERS.values():
        if (count := sum(word in listed for word in words)) > most:
            best, most = listed, count
    return frozenset(word for word in words if word in best)


def language_of(text: str, least: int = 1, *, is_listed: bool = False) -> str | None:
    """Return the ISO 639-1 language of most words by stop words (alone, if `is_listed`), letters or script.

    None on a tie, as for keywords without a function word, and with fewer than `least` matches of a foreign language.
    """
    # A single letter proves nothing: `c` is French, and a programming language.
    language = language_of_words(re.findall(r"[^\W\d_]{2,}", text.lower()), least)
    return language if not is_listed or language in ("en", *_OTHERS) else None


def language_of_words(words: Collection[str], least: int) -> str | None:
    """Return the language of lower-case words; surrounding signs hide some."""
    accents = set(filterfalse(str.isascii, words))
    english, foreign = ENGLISH.intersection(words), _FOREIGN.intersection(words)
    if len(english) > len(foreign) + len(accents):
        return "en"
    if accents and (by_script := _language_of_script(words, accents)):
        return by_script
    signs = {"en": len(english)}
    by_own = {name: n for name, own in _OWN.items() if (n := sum(not own.isdisjoint(word) for word in accents))}
    for name, listed in _OTHERS.items():
        if common := foreign & listed:
            signs[name] = len(common) + sum(map(_LETTERS[name].issuperset, accents)) - sum(by_own.values())
    for name, n_own in by_own.items():
        if (n_signs := n_own + sum(map(_LETTERS[name].issuperset, accents))) >= 2 * least:
            signs[name] = n_signs
    best = max(signs, key=signs.__getitem__)
    if list(signs.values()).count(signs[best]) > 1 or not signs[best]:
        return None
    return best if best == "en" or signs[best] - len(english & _OTHERS.get(best, english)) >= least else None


def _language_of_script(words: Collection[str], accents: Collection[str]) -> str | None:
    """Return the language of most letters by their script; None for Latin and for a few letters among others."""
    far = [word for word in accents if any(one >= "\u0370" and one.isalpha() for one in word)]
    # A character of Chinese, Japanese or Korean is a syllable or more.
    if not far or 3 * sum(map(len, far)) < sum(map(len, filter(str.isascii, words))):
        return None
    from qmd.analysis.scripts import script_of

    letters = list(filter(str.isalpha, "".join(far)))[:300]
    counts = Counter(map(script_of, letters))
    if 10 * (counts["HIRAGANA"] + counts["KATAKANA"]) > len(letters):
        return "ja"
    for language in ("uk", "sr", "fa"):
        if 50 * sum(map(_OWN[language].__contains__, letters)) > len(letters):
            return language
    return _BY_SCRIPT.get(str(max(counts, key=counts.__getitem__)))
