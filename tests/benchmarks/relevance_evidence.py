"""Evidence of relevance from real searches, on which `fit_relevance.py` fits the calibration.

The queries are the judged ones of test collections, and of folders of notes their names, headings and topics of one or
two words with questions that a person wrote; all of it once more in collections of 1 to 30 notes drawn from those.
Unanswerable queries are questions without an answer, every second question about another folder (`elsewhere`: some of
them have an answer), random words, keyboard noise and other languages.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from qmd.indexing.embed import embed_pending
from qmd.indexing.reading import stored_form
from qmd.inference.base import Engines
from qmd.ingest.document import parse_text
from qmd.ingest.outline import kind_of
from qmd.plugins.bench.fixture import read_fixture, same_file
from qmd.records import Collection, StoredDocument
from qmd.retrieval import pipeline
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import Mode, SearchRequest
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader, open_writer
from tests.benchmarks.answers import cases_of_names
from tests.benchmarks.corpus_index import COLLECTION, entry_id
from tests.benchmarks.judged import read_beir, read_corpus
from tests.benchmarks.known_items import known_item_queries

MODES: tuple[Mode, ...] = ("lexical", "hybrid", "dense")
SMALL_SIZES = (1, 3, 3, 10, 30)
SMALL_NOTE = 20_000
"""Most bytes of a note in a small collection: the vectors of long minutes would take an hour."""

JUDGED = 10
"""Judged hits of a query, as many as the pipeline judges at least."""

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
class Row:
    """A judged hit.

    Attributes:
        group: Kind of query and number of documents of the collection, if few: `topic`, `nonsense of 30` …
        query: Unique inside the source.
        is_answerable: Whether the query has an answer.
        rank: From 1; 0 for the row that records a query.
        evidence: As the pipeline measured it.
        is_relevant: Whether the hit is an answer.
    """

    group: str
    query: str
    is_answerable: bool
    rank: int
    evidence: Evidence
    is_relevant: bool


@dataclass(frozen=True)
class Asked:
    """A query with the paths that answer it; none for an unanswerable one."""

    group: str
    text: str
    answers: frozenset[str]


def of_collection(
    engines: Engines, folder: Path, index: Path, n_queries: int, n_nonsense: int
) -> dict[Mode, list[Row]]:
    """Return the evidence of a test collection whose index `bench_quality.py` made."""
    judged = read_beir(folder)
    names = list(judged.queries)
    step = max(1, len(names) // n_queries)
    asked = [
        Asked("judged", judged.queries[name], frozenset(one for one, grade in judged.qrels[name].items() if grade > 0))
        for name in names[::step][:n_queries]
    ]
    own = " ".join(f"{row.title} {row.text}" for row in read_corpus(folder))
    asked += [Asked("nonsense", text, frozenset()) for text in nonsense_queries(own, n_nonsense)]
    with open_reader(index) as reader:
        rows = ask_all(reader, engines, asked, entry_id)
        by_name = {entry_id(document): (document, text) for document, text in _documents(reader)}
    return with_small_parts(engines, rows, asked, by_name, entry_id, n_queries // 2)


def of_notes(
    engines: Engines,
    index: Path,
    fixtures: Sequence[Path],
    elsewhere: Sequence[Path],
    n_queries: int,
    n_nonsense: int,
    seed: int = 5,
) -> dict[Mode, list[Row]]:
    """Return the evidence of a folder of notes, as a whole and in small parts; `elsewhere` are questions about other
    folders."""
    with open_reader(index) as reader:
        texts = {document.id: text for document, text in _documents(reader)}
        asked = own_queries(reader, n_queries, seed)
        paths = [document.path for document in reader.iter_documents()]
        for query in (one for fixture in fixtures for one in read_fixture(fixture).cases.values()):
            answers = {path for path in paths for name in query.expected_files if same_file(path, name)}
            asked.append(Asked("question" if answers else "unanswerable", query.query, frozenset(answers)))
        for other in elsewhere:
            asked += [
                Asked("elsewhere", one.query, frozenset()) for one in list(read_fixture(other).cases.values())[::2]
            ]
        own = " ".join(texts.values())
        asked += [Asked("nonsense", text, frozenset()) for text in nonsense_queries(own, n_nonsense)]
        rows = ask_all(reader, engines, asked, path_of)
        short = [one for one in reader.iter_documents() if one.size <= SMALL_NOTE]
        by_path = {document.path: (document, texts[document.id]) for document in short}
    questions = [one for one in asked if one.group != "name"]
    return with_small_parts(engines, rows, questions, by_path, path_of, n_queries)


def own_queries(reader: IndexReader, count: int, seed: int) -> list[Asked]:
    """Return names, headings and topics (one or two words of a title or tag) of an index, `count` of each at most."""
    asked = []
    for case in cases_of_names(reader, count, seed).values():
        asked.append(Asked("name", case.query, frozenset(one.partition("/")[2] for one in case.expected_files)))
    judged = known_item_queries(reader, limit=count, seed=seed)
    for name, text in judged.queries.items():
        asked.append(Asked("heading", text, frozenset(one.partition("/")[2] for one in judged.qrels[name])))
    topics: dict[str, set[str]] = {}
    for document in reader.iter_documents():
        words = re.findall(r"[a-z]{4,}", document.title.lower())
        tags = document.metadata.get("tags", ())
        labels = {*words, *(" ".join(pair) for pair in pairwise(words))}
        labels |= {tag.rpartition("/")[2].lower() for tag in tags} if isinstance(tags, tuple) else set()
        for label in labels:
            topics.setdefault(label, set()).add(document.path)
    shared = sorted(label for label, paths in topics.items() if 2 <= len(paths) <= 30)
    chosen = random.Random(seed).sample(shared, min(count, len(shared)))
    return asked + [Asked("topic", label, frozenset(topics[label])) for label in chosen]


def with_small_parts(
    engines: Engines,
    rows: dict[Mode, list[Row]],
    asked: Sequence[Asked],
    by_name: Mapping[str, tuple[StoredDocument, str]],
    name_of: Callable[[StoredDocument], str],
    count: int,
    seed: int = 5,
) -> dict[Mode, list[Row]]:
    """Return `rows` with those of `count` small collections drawn from the same documents."""
    generator = random.Random(seed)
    for number in range(count):
        part = small_part(asked, by_name, SMALL_SIZES[number % len(SMALL_SIZES)], generator)
        for mode, more in _of_small(engines, part, asked, name_of, generator).items():
            rows[mode] += more
    return rows


def path_of(document: StoredDocument) -> str:
    """Return the name of a document in fixtures."""
    return document.path


def small_part(
    asked: Sequence[Asked], by_path: Mapping[str, tuple[StoredDocument, str]], size: int, generator: random.Random
) -> list[tuple[StoredDocument, str]]:
    """Return `size` notes, of which one at least answers a query."""
    answered = generator.choice([one for one in asked if one.answers & by_path.keys()])
    answer = generator.choice(sorted(answered.answers & by_path.keys()))
    others = [path for path in generator.sample(sorted(by_path), size) if path != answer]
    return [by_path[path] for path in (answer, *others[: size - 1])]


def _of_small(
    engines: Engines,
    part: Sequence[tuple[StoredDocument, str]],
    asked: Sequence[Asked],
    name_of: Callable[[StoredDocument], str],
    generator: random.Random,
) -> dict[Mode, list[Row]]:
    names = {name_of(document) for document, _ in part}
    answered = [one for one in asked if one.answers & names]
    others = [one for one in asked if not one.answers]
    chosen = [
        Asked(f"{one.group} of {len(part)}", one.text, one.answers & names)
        for one in (*generator.sample(answered, min(4, len(answered))), *generator.sample(others, min(4, len(others))))
    ]
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index.sqlite"
        with open_writer(index) as writer:
            writer.mirror_config([Collection(COLLECTION, Path(folder))], None, "bench")
            parsed = [parse_text(document.path, kind_of(document.path), text) for document, text in part]
            writer.put_documents(COLLECTION, [stored_form(document, 0, 0, 0, 0) for document in parsed])
            if engines.embedder is not None:
                embed_pending(writer, engines.embedder)
        with open_reader(index) as reader:
            return ask_all(reader, engines, chosen, name_of)


def ask_all(
    reader: IndexReader, engines: Engines, asked: Sequence[Asked], name_of: Callable[[StoredDocument], str]
) -> dict[Mode, list[Row]]:
    """Return the rows of every query in every mode."""
    found: dict[Mode, list[Row]] = {mode: [] for mode in MODES}
    for number, one in enumerate(asked):
        query = f"{number} {one.text}"
        for mode in MODES:
            found[mode].append(Row(one.group, query, bool(one.answers), 0, Evidence(0.0, 0.0, 0.0), False))
            for rank, (document, evidence) in enumerate(observe(reader, engines, one.text, mode), start=1):
                is_relevant = name_of(document) in one.answers
                found[mode].append(Row(one.group, query, bool(one.answers), rank, evidence, is_relevant))
    return found


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


def _documents(reader: IndexReader) -> Iterator[tuple[StoredDocument, str]]:
    for document in reader.iter_documents():
        yield document, reader.texts([document.hash]).get(document.hash, "")
