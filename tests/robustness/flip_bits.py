"""Flip single bits of an index, or fill up to a block of it, and see what becomes of its answers.

    python tests/robustness/flip_bits.py --flips 500 --seed 1

Each damage, a block in every third try, is tried on a fresh copy: first a reader asks everything, then `mend` and an
update run as `qmd index` does, and a reader asks again. Prints how often each outcome occurred; exit status 1 when an
answer was wrong without a word or a failure was none that a user can act on.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from qmd.app.configuration import FileConfiguration
from qmd.app.mirroring import mend
from qmd.app.notices import Notices
from qmd.config.edits import add_collection
from qmd.config.paths import Locations, locate
from qmd.config.settings import load_config
from qmd.errors import QmdError
from qmd.indexing.embed import embed_pending
from qmd.indexing.update import update_collection
from qmd.records import LexicalTerm, Scope
from qmd.store.opening import open_reader
from tests.fakes import HashingEmbedder

WORDS = [f"{first}{second}{third}" for first in "bdfgklmnprstvz" for second in "aeiou" for third in ("rn", "lt", "mp")]
N_DOCUMENTS = 120
EMBEDDER = HashingEmbedder(dim=64)

Answers = Mapping[str, object]

FINE = ("same answers", "clean error")
"""Outcomes of a reader that a user can live with; others are defects."""


@dataclass(frozen=True)
class Outcome:
    """What one damage did."""

    offset: int
    read: str
    """`same answers`, `clean error`, or a defect."""
    healed: str
    """`untouched`, `rebuilt`, or a defect."""
    computed: int
    """Vectors that the rebuilt index had to compute again."""


def make_index(folder: Path) -> Locations:
    """An index of made-up notes below `folder`, with vectors, closed."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    chooser = random.Random(7)
    for number in range(N_DOCUMENTS):
        lines = [" ".join(chooser.choices(WORDS, k=12)) for _ in range(chooser.randint(3, 25))]
        front = f"---\ntags: [{chooser.choice(WORDS)}]\n---\n" if number % 3 == 0 else ""
        (notes / f"{number}.md").write_text(f"{front}# Note {number}\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    places = places_in(folder)
    add_collection(places, "notes", notes)
    index(places)
    return places


def places_in(folder: Path, cache: str = "cache") -> Locations:
    """The files of qmd below `folder`."""
    environ = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"), "XDG_CACHE_HOME": str(folder / cache)}
    return locate(None, folder, environ)


def index(places: Locations, *, verify: bool = True, embedder: HashingEmbedder = EMBEDDER) -> int:
    """What `qmd index` does; the number of vectors computed."""
    config = load_config(places)
    mend(places, lambda _: None, always=verify)
    with FileConfiguration(places, {}, Notices()).open_writer() as writer:
        update_collection(writer, config.collections[0])
        return embed_pending(writer, embedder).embedded


def ask(database: Path) -> Answers:
    """Everything that a reader can be asked, by path, so that two indexes of the same files agree."""
    with open_reader(database) as reader:
        documents = {document.id: document for document in reader.iter_documents()}
        answers: dict[str, object] = {
            "documents": sorted((d.path, d.title, d.hash, d.size, str(d.metadata)) for d in documents.values()),
            "texts": dict(reader.texts([document.hash for document in documents.values()])),
            "collections": [(one.name, str(one.path), one.pattern) for one in reader.collections()],
        }
        for word in WORDS[::5]:
            found = reader.search_lexical([LexicalTerm(word, word)], 200, Scope())
            answers[f"lex {word}"] = sorted((documents[one.document_id].path, round(one.score, 4)) for one in found)
        for vector in EMBEDDER.embed_queries([" ".join(WORDS[n : n + 3]) for n in range(0, 60, 12)]):
            near = reader.search_dense(np.asarray(vector), N_DOCUMENTS, Scope(), EMBEDDER.fingerprint)
            answers[f"vec {vector.nonzero()[0]}"] = sorted(
                (documents[one.document_id].path, round(one.score, 3), one.chunk_start) for one in near
            )
        status = reader.status(EMBEDDER.fingerprint)
        answers["counts"] = (status.documents, status.embedded_documents, status.chunks)
        return answers


def _compare(database: Path, expected: Answers) -> str:
    try:
        answers = ask(database)
    except QmdError:
        return "clean error"
    except Exception as exc:  # the point of this program is to see which ones there are
        return f"UNEXPECTED {type(exc).__name__}: {exc}"
    wrong = [name for name, answer in expected.items() if answers.get(name) != answer]
    return f"WRONG ANSWER: {wrong[0]}" if wrong else "same answers"


def harm(places: Locations, expected: Answers, offset: int, content: bytes) -> Outcome:
    """Write into the index, ask, mend, ask again."""
    with places.database.open("r+b") as file:
        file.seek(offset)
        file.write(content)
    read = _compare(places.database, expected)
    try:
        computed = index(places)
    except Exception as exc:
        return Outcome(offset, read, f"NOT HEALED {type(exc).__name__}: {exc}", 0)
    after = _compare(places.database, expected)
    if after != "same answers":
        return Outcome(offset, read, f"NOT HEALED: {after}", computed)
    is_rebuilt = any(places.database.parent.glob("*.damaged"))
    return Outcome(offset, read, "rebuilt" if is_rebuilt else "untouched", computed)


def run(folder: Path, n_flips: int, seed: int) -> Sequence[Outcome]:
    """Do `n_flips` damages, each on a fresh copy of one index below `folder`."""
    places = make_index(folder)
    expected = ask(places.database)
    # What a reader leaves beside the file would belong to another copy of it.
    pristine = folder / "pristine.sqlite"
    shutil.copyfile(places.database, pristine)
    whole, chooser = pristine.read_bytes(), random.Random(seed)
    outcomes = []
    for number in range(n_flips):
        shutil.rmtree(places.database.parent)
        places.database.parent.mkdir()
        shutil.copyfile(pristine, places.database)
        if number % 3:
            offset = chooser.randrange(len(whole))
            content = bytes([whole[offset] ^ 1 << chooser.randrange(8)])
        else:
            size = chooser.choice([2, 16, 128, 512, 4096])
            offset = chooser.randrange(len(whole) // size) * size
            content = chooser.choice([bytes(size), chooser.randbytes(size)])
        outcomes.append(harm(places, expected, offset, content))
    return outcomes


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(Path(folder), chosen.flips, chosen.seed)
    for kind, counts in (("read", Counter(o.read for o in outcomes)), ("index", Counter(o.healed for o in outcomes))):
        for outcome, count in counts.most_common():
            print(f"{kind:6} {count:6} {outcome}")
    rebuilt = [outcome.computed for outcome in outcomes if outcome.healed == "rebuilt"]
    if rebuilt:
        print(f"vectors computed again per rebuilt index: mean {sum(rebuilt) / len(rebuilt):.1f}, most {max(rebuilt)}")
    defects = [o for o in outcomes if o.read not in FINE or o.healed not in ("untouched", "rebuilt")]
    for defect in defects:
        print(f"defect at offset {defect.offset}: {defect.read}; {defect.healed}")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
