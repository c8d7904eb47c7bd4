"""Evidence of relevance from real searches in vaults of notes, on which `fit_relevance.py` fits the calibration.

Each question that a person wrote is asked of its vault, and once more with its accepted notes deleted (`hidden`): a
transaction removes them, with their vectors and their share of every word count, and is rolled back. Other questions
without an answer are those written as such (`unanswerable`), those about other vaults (`elsewhere`: a few have an
answer by chance), and random words, keyboard noise and other languages (`nonsense`). Headings and topics are queries
that no one wrote; and some questions are asked again where only 1 to 30 of the vault's notes are left.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from qmd.inference.base import Engines
from qmd.plugins.bench.fixture import same_file
from qmd.records import StoredDocument
from qmd.retrieval import pipeline
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import Mode, SearchRequest
from qmd.store.base import IndexReader, IndexWriter
from qmd.store.opening import open_writer
from tests.benchmarks.known_items import known_item_queries

MODES: tuple[Mode, ...] = ("hybrid", "lexical", "dense")
SMALL_SIZES = (1, 3, 3, 10, 30)

JUDGED = 10
"""Judged hits of a query, as many as the pipeline judges at least."""

N_ELSEWHERE, N_NONSENSE, N_OWN, N_SMALL = 30, 66, 15, 5
"""Queries of each kind for a vault, and small parts of it."""

FOREIGN = (
    "où acheter du pain frais près de la gare demain matin",
    "recette facile de gâteau au chocolat pour les enfants",
    "wie lange muss ich die kartoffeln im ofen backen",
    "der zug nach münchen hat heute leider verspätung",
    "cuánto cuesta un billete de autobús para la playa",
    "mi abuela cocina la mejor sopa de pescado",
    "dove posso trovare una farmacia aperta di notte",
    "quanto custa alugar um apartamento em lisboa no verão",
    "как приготовить борщ на большую семью",
    "завтра мы поедем на дачу собирать яблоки",
    "jak upiec sernik bez spodu na święta",
    "hoe laat vertrekt de laatste trein naar utrecht",
    "var kan jag köpa färska blommor till bröllopet",
    "明日の天気はどうですか傘が必要ですか",
    "周末去哪里吃火锅比较便宜",
    "오늘 저녁에 뭐 먹을까 김치찌개 어때",
    "ما هو أفضل مطعم في المدينة القديمة",
    "आज शाम को बाजार से सब्जी लाना है",
    "πού μπορώ να αγοράσω φρέσκα ψάρια",
    "bugün hava çok güzel denize gidelim mi",
)
"""Everyday sentences that no test collection answers."""


@dataclass(frozen=True)
class Asked:
    """A query and the paths of its answers; `is_hidden` deletes these while it is asked."""

    group: str
    text: str
    answers: frozenset[str]
    is_hidden: bool = False


@dataclass(frozen=True)
class Row:
    """A judged hit.

    Attributes:
        group: Kind of query and number of documents of the collection, if few: `topic`, `nonsense of 30` …
        query: Unique inside the source.
        is_answerable: Whether the query has an answer.
        rank: From 1; 0 for the row that records a query.
        evidence: As the pipeline measured it.
        is_relevant: Whether the hit is an answer.
        path: Of the hit.
    """

    group: str
    query: str
    is_answerable: bool
    rank: int
    evidence: Evidence
    is_relevant: bool
    path: str = ""


def read_questions(file: Path, vault: str) -> dict[str, tuple[str, ...]]:
    """Return the questions about a vault with the names of their answers, of a fixture of `qmd bench` or of a file
    about several vaults (`tree`, `accept`)."""
    raw = json.loads(file.read_text(encoding="utf-8"))
    if "queries" in raw:
        return {row["query"]: tuple(row["expected_files"]) for row in raw["queries"]}
    return {row["query"]: tuple(row["accept"]) for row in raw["questions"] if row["tree"] == vault}


def of_vault(
    engines: Engines, index: Path, questions: Mapping[str, Sequence[str]], elsewhere: Sequence[str], seed: int = 5
) -> dict[Mode, list[Row]]:
    """Return the evidence of a vault in every mode; `elsewhere` are questions about others."""
    generator = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "index.sqlite"
        shutil.copyfile(index, copy)
        with open_writer(copy) as writer:
            documents = list(writer.iter_documents())
            asked = [_ask(documents, text, names) for text, names in questions.items()]
            asked += [replace(one, group="hidden", is_hidden=True) for one in asked if one.answers]
            chosen = generator.sample(list(elsewhere), min(N_ELSEWHERE, len(elsewhere)))
            asked += [Asked("elsewhere", text, frozenset()) for text in chosen]
            own = " ".join(writer.texts([document.hash for document in documents]).values())
            asked += [Asked("nonsense", text, frozenset()) for text in nonsense_queries(own, N_NONSENSE)]
            asked += own_queries(writer, documents, N_OWN, seed)
            rows = ask_all(writer, engines, asked)
            for number in range(N_SMALL):
                size = SMALL_SIZES[number % len(SMALL_SIZES)]
                for mode, more in _ask_small(writer, engines, documents, asked, size, generator).items():
                    rows[mode] += more
    return rows


def _ask(documents: Sequence[StoredDocument], text: str, names: Sequence[str]) -> Asked:
    answers = frozenset(one.path for one in documents for name in names if same_file(one.path, name))
    return Asked("question" if answers else "unanswerable", text, answers)


def own_queries(reader: IndexReader, documents: Sequence[StoredDocument], count: int, seed: int) -> list[Asked]:
    """Return headings and topics (one or two words of a title or tag) of an index, `count` of each at most."""
    judged = known_item_queries(reader, limit=count, seed=seed)
    asked = []
    for name, text in judged.queries.items():
        asked.append(Asked("heading", text, frozenset(one.partition("/")[2] for one in judged.qrels[name])))
    topics: dict[str, set[str]] = {}
    for document in documents:
        words = re.findall(r"[a-z]{4,}", document.title.lower())
        tags = document.metadata.get("tags", ())
        labels = {*words, *(" ".join(pair) for pair in pairwise(words))}
        labels |= {tag.rpartition("/")[2].lower() for tag in tags} if isinstance(tags, tuple) else set()
        for label in labels:
            topics.setdefault(label, set()).add(document.path)
    shared = sorted(label for label, paths in topics.items() if 2 <= len(paths) <= 30)
    chosen = random.Random(seed).sample(shared, min(count, len(shared)))
    return asked + [Asked("topic", label, frozenset(topics[label])) for label in chosen]


def _ask_small(
    writer: IndexWriter,
    engines: Engines,
    documents: Sequence[StoredDocument],
    asked: Sequence[Asked],
    size: int,
    generator: random.Random,
) -> dict[Mode, list[Row]]:
    """Return the rows of eight queries where `size` notes are left, of which one at least answers one."""
    shown = [one for one in asked if not one.is_hidden]
    answered = generator.choice([one for one in shown if one.group == "question"])
    paths = [document.path for document in documents]
    kept = {generator.choice(sorted(answered.answers)), *generator.sample(paths, size - 1)}
    right = [one for one in shown if one.answers & kept]
    wrong = [one for one in shown if not one.answers & kept and one.group != "topic"]
    chosen = [
        Asked(f"{one.group if one.answers & kept or not one.answers else 'elsewhere'} of {size}", one.text, one.answers)
        for one in (*generator.sample(right, min(4, len(right))), *generator.sample(wrong, 4))
    ]
    with deleted(writer, [path for path in paths if path not in kept]):
        return ask_all(writer, engines, [replace(one, answers=one.answers & kept) for one in chosen])


class _RollbackError(Exception):
    pass


@contextmanager
def deleted(writer: IndexWriter, paths: Sequence[str]) -> Iterator[None]:
    """Ask without some notes: delete them, and undo it."""
    try:
        with writer.transaction():
            for name in writer.collections_with_documents():
                writer.remove_documents(name, paths)
            yield
            raise _RollbackError
    except _RollbackError:
        # Caches in memory compare a counter that a rollback does not turn back.
        writer.set_facts({"rolled_back": None})


def ask_all(writer: IndexWriter, engines: Engines, asked: Sequence[Asked]) -> dict[Mode, list[Row]]:
    """Return the rows of every query in every mode."""
    found: dict[Mode, list[Row]] = {mode: [] for mode in MODES}
    for number, one in enumerate(asked):
        with deleted(writer, sorted(one.answers)) if one.is_hidden else nullcontext():
            for mode in MODES:
                found[mode] += _ask_one(writer, engines, one, f"{number} {one.text}", mode)
    return found


def _ask_one(reader: IndexReader, engines: Engines, one: Asked, query: str, mode: Mode) -> list[Row]:
    is_answerable = bool(one.answers) and not one.is_hidden
    rows = [Row(one.group, query, is_answerable, 0, Evidence(0.0, 0.0), False)]
    for rank, (document, evidence) in enumerate(observe(reader, engines, one.text, mode), start=1):
        is_relevant = is_answerable and document.path in one.answers
        rows.append(Row(one.group, query, is_answerable, rank, evidence, is_relevant, document.path))
    return rows


def observe(reader: IndexReader, engines: Engines, text: str, mode: Mode) -> list[tuple[StoredDocument, Evidence]]:
    """Return the first ten hits of the real pipeline, each with the evidence that its judge received."""
    seen: list[Evidence] = []
    options = SearchRequest(mode=mode, expand=False, limit=JUDGED, folds_copies=False)

    def listen(evidence: Evidence) -> float:
        seen.append(evidence)
        return 1.0 - len(seen) * 1e-3

    answer = pipeline.search(reader, engines, parse_query(text), options, judge=listen)
    return [(hit.document, evidence) for hit, evidence in zip(answer.hits, seen, strict=False)]


def nonsense_queries(own: str, count: int, seed: int = 7) -> list[str]:
    """Return random words, keyboard noise, and other languages, a third each; Chinese is no noise for a Chinese
    collection.

    Half of the random words come from the collection itself, whose text is `own`; three at least, since two may be a
    real query.
    """
    generator = random.Random(seed)
    is_chinese = len(re.findall(r"[\u4e00-\u9fff]", own[:5000])) > 500
    words = sorted(set(re.findall(r"[a-z]{4,}", own.lower())) | set(COMMON))
    foreign = [text for text in FOREIGN if not (is_chinese and re.search(r"[\u4e00-\u9fff]", text))]
    queries = []
    for number in range(count):
        if number % 3 == 0:
            pool = COMMON if number % 2 or is_chinese else words
            queries.append(" ".join(generator.sample(list(pool), generator.randint(3, 5))))
        elif number % 3 == 1:
            queries.append(" ".join(_noise(generator) for _ in range(generator.randint(1, 4))))
        else:
            text = generator.choice(foreign).split()
            kept = max(2, generator.randint(len(text) // 2, len(text)))
            queries.append(" ".join(text[:kept]))
    return queries


_COMMON_WORDS = (
    "apple river candle window purple tango elephant marble whisper thunder basket velvet pepper saddle lantern "
    "orchard pillow harvest mustard blanket spider copper violin garden feather biscuit umbrella carpet anchor "
    "pigeon helmet butter castle dolphin emperor fountain glacier hammock island jacket kettle lemon meadow "
    "necklace onion parade quarrel ribbon shadow trumpet uncle vinegar walnut yellow zebra wedding poetry "
    "dentist football ballet monkey cousin sausage holiday perfume tailor pirate squirrel tulip cathedral bakery "
    "honey grandmother"
)
COMMON = tuple(_COMMON_WORDS.split(" "))
"""Everyday words, drawn at random."""


def _noise(generator: random.Random) -> str:
    row = generator.choice(("qwertyuiop", "asdfghjkl", "zxcvbnm", "abcdefghijklmnopqrstuvwxyz"))
    return "".join(generator.choice(row) for _ in range(generator.randint(3, 9)))
