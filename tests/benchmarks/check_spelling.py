"""Check that typing errors are corrected to the word that was meant, and correct words without documents are kept.

    python tests/benchmarks/check_spelling.py DATABASE... [--typos N] [--words N] [--show N] [--next-to WORD]

Each DATABASE is an index of English text. The queries, single or next to a known word: words of its documents with one
random edit, common misspellings of its words, whole words of the built-in model's vocabulary that it lacks, and words
in three texts of another DATABASE that it and the model's vocabulary lack.
Prints how many typing errors are corrected to the word meant as first choice, to another word, or not at all, and how
many correct words are left alone. A typing error that is itself a word of the model, or of the index, is not drawn.
"""

from __future__ import annotations

import argparse
import random
import re
import string
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from qmd.records import LexicalTerm, Scope
from qmd.retrieval.lexical import lexical_query
from qmd.retrieval.trace import Trace
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader

TOKENIZER = Path(__file__).resolve().parents[2] / "models" / "all-minilm-l6-v2" / "tokenizer.json"

MISSPELLINGS = (
    "absense/absence accessable/accessible accomodate/accommodate acheive/achieve acknowlege/acknowledge"
    " adress/address agressive/aggressive alogrithm/algorithm anaylsis/analysis apparant/apparent arguement/argument"
    " availible/available becuase/because beggining/beginning beleive/believe buisness/business calender/calendar"
    " catagory/category changable/changeable charachter/character cheif/chief collegue/colleague comming/coming"
    " commitee/committee comparision/comparison concious/conscious configuraton/configuration consistant/consistent"
    " contraversy/controversy convienient/convenient copywrite/copyright decison/decision definately/definitely"
    " dependancy/dependency desparate/desperate developement/development diffrent/different dissapear/disappear"
    " enviroment/environment equiptment/equipment existance/existence experiance/experience explaination/explanation"
    " familar/familiar finaly/finally foriegn/foreign freind/friend goverment/government gaurd/guard happend/happened"
    " heirarchy/hierarchy immediatly/immediately independant/independent inital/initial intresting/interesting"
    " knowlege/knowledge langauge/language libary/library lisence/license maintainance/maintenance managment/management"
    " neccessary/necessary noticable/noticeable occured/occurred ocurrence/occurrence paralel/parallel"
    " performence/performance persistant/persistent posession/possession prefered/preferred priviledge/privilege"
    " probaly/probably proccess/process programing/programming publically/publicly recieve/receive recomend/recommend"
    " refered/referred relevent/relevant repitition/repetition reprsentative/representative resouce/resource"
    " responce/response rythm/rhythm seperate/separate sucessful/successful suprise/surprise syncronize/synchronize"
    " tommorow/tomorrow truely/truly untill/until usefull/useful wich/which wierd/weird writting/writing"
    " selction/selection chnage/change serach/search notebok/notebook"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Ask everything of each index and print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", type=Path, nargs="+", metavar="DATABASE")
    parser.add_argument("--typos", type=int, default=100)
    parser.add_argument("--words", type=int, default=100)
    parser.add_argument("--next-to", default="", help="word to add to every query")
    parser.add_argument("--show", type=int, default=0, help="print so many of the failures of each kind")
    options = parser.parse_args(argv)
    vocabulary = model_words()
    for path in options.databases:
        with open_reader(path) as reader:
            foreign = foreign_words(reader, [other for other in options.databases if other != path], vocabulary)
            kinds = {
                "random typos": random_typos(reader, vocabulary, options.typos),
                "misspellings": known_misspellings(reader, vocabulary),
                "absent words": [(word, word) for word in absent_words(reader, vocabulary, options.words)],
                "foreign words": [(word, word) for word in foreign[: options.words]],
            }
            for kind, pairs in kinds.items():
                report(reader, f"{path.stem}: {kind}", pairs, options.show, options.next_to)
    return 0


def report(reader: IndexReader, title: str, pairs: Sequence[tuple[str, str]], n_shown: int, neighbour: str) -> None:
    """Ask (typed, meant) pairs and print the results."""
    started = time.perf_counter()
    searched = [searched_for(reader, typed, neighbour) for typed, _ in pairs]
    each_ms = (time.perf_counter() - started) * 1000 / max(len(pairs), 1)
    wrong, counts = [], Counter[str]()
    for (typed, meant), found in zip(pairs, searched, strict=True):
        answer = "left alone" if found is None else "right" if same_documents(reader, found, meant) else "other word"
        counts[answer] += 1
        if (answer == "left alone") != (typed == meant) or answer == "other word":
            wrong.append(f"{typed} ({meant}): {found}" if typed != meant else f"{typed}: {found}")
    shares = ", ".join(f"{answer} {count} ({count / len(pairs):.0%})" for answer, count in sorted(counts.items()))
    print(f"{title}: {len(pairs)}; {shares}; {each_ms:.0f} ms each")
    print("".join(f"    {line}\n" for line in wrong[:n_shown]), end="")


def searched_for(reader: IndexReader, typed: str, neighbour: str = "") -> str | None:
    """Return the expression that a word is searched by, next to another or alone; None for the word itself."""
    (term, *_) = lexical_query(reader, f"{typed} {neighbour}", Scope(), Trace(), lex_syntax=False).terms
    return None if term.fts == f'"{typed}"' else term.fts


def same_documents(reader: IndexReader, found: str, meant: str) -> bool:
    """Return whether two words are forms of one for full-text search."""
    return documents_of(reader, found) == documents_of(reader, f'"{meant}"')


def documents_of(reader: IndexReader, fts: str) -> frozenset[int]:
    """Return the ids of all documents that match."""
    found = reader.search_lexical([LexicalTerm(fts, fts)], reader.count_documents(), Scope())
    return frozenset(candidate.document_id for candidate in found)


def frequency(reader: IndexReader, word: str) -> int:
    """Return the number of documents with a word."""
    return reader.document_frequencies([LexicalTerm(word, f'"{word}"')])[0]


def model_words() -> list[str]:
    """Return whole words of the built-in model, of letters alone, in the order of their number."""
    return re.findall(r'"([a-z]+)":\d', TOKENIZER.read_text(encoding="utf-8").partition('"vocab":')[2])


def random_typos(reader: IndexReader, vocabulary: Sequence[str], count: int) -> list[tuple[str, str]]:
    """Return (typed, meant): words of the documents, each with one random insertion, deletion, substitution or swap."""
    random.seed(20)
    words = words_of(reader, 2)
    known = set(vocabulary)
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        meant = random.choice(words)
        typed = with_edit(meant)
        if typed not in known and not frequency(reader, typed):
            pairs.append((typed, meant))
    return pairs


def words_of(reader: IndexReader, fewest_texts: int) -> list[str]:
    """Return words of five letters or more in a number of texts in lower case, outside paths and names, sorted."""
    texts = reader.texts([document.hash for document in reader.iter_documents()]).values()
    held = Counter(word for text in texts for word in set(re.findall(r"(?<![\w/.])[a-z]{5,}(?![\w/])", text)))
    return sorted(word for word, n_texts in held.items() if n_texts >= fewest_texts)


def with_edit(word: str) -> str:
    """Return the word with one random edit."""
    place, letter = random.randrange(len(word) - 1), random.choice(string.ascii_lowercase)
    edits = (
        word[:place] + letter + word[place:],
        word[:place] + word[place + 1 :],
        word[:place] + letter + word[place + 1 :],
        word[:place] + word[place + 1] + word[place] + word[place + 2 :],
    )
    return random.choice(edits)


def known_misspellings(reader: IndexReader, vocabulary: Sequence[str]) -> list[tuple[str, str]]:
    """Return (typed, meant): common misspellings that the index lacks, of words in its documents."""
    known = set(vocabulary)
    texts = reader.texts([document.hash for document in reader.iter_documents()]).values()
    held = {word for text in texts for word in re.findall("[a-z]+", text.lower())}
    pairs = [tuple(pair.split("/")) for pair in MISSPELLINGS.split()]
    return [
        (typed, meant)
        for typed, meant in pairs
        if typed not in known and meant in held and not frequency(reader, typed)
    ]


def absent_words(reader: IndexReader, vocabulary: Sequence[str], count: int) -> list[str]:
    """Return words of the model without documents, drawn from the more common half of it, which has fewer names."""
    random.seed(21)
    common = [word for word in vocabulary if len(word) > 4][: len(vocabulary) // 2]
    absent: list[str] = []
    for word in random.sample(common, len(common)):
        if not frequency(reader, word):
            absent.append(word)
            if len(absent) == count:
                break
    return absent


def foreign_words(reader: IndexReader, others: Sequence[Path], vocabulary: Sequence[str]) -> list[str]:
    """Return words of other indexes that this one and the model's vocabulary lack, in random order."""
    random.seed(22)
    words: set[str] = set()
    for path in others:
        with open_reader(path) as other:
            words.update(words_of(other, 3))
    absent = [word for word in sorted(words.difference(vocabulary)) if not frequency(reader, word)]
    return random.sample(absent, len(absent))


if __name__ == "__main__":
    sys.exit(main())
