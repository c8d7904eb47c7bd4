"""Judge the rules of ranking and of passages on several vaults: what each changes where it is edited away.

    python -m tests.benchmarks.bench_rules INDEX=QUESTIONS… --edits EDITS.json [--modes hybrid,lexical] [--save FILE]

EDITS.json maps the name of a variant to edits of the source: {"no lead": [["fusion", "0.3,", "0.0,"]]} replaces the
first occurrence in `qmd/retrieval/fusion.py`. For each vault, mode and variant prints the difference to the program as
it is, and how many questions are better or worse: an expected file first, or in three, its reciprocal rank; for edits
of `snippets` and `layout` the shown passage of the first expected file (`passage`), or any passage of it for further
reading (`reads`), with an expected text, and the characters of all. Models and the index answer each question once;
all else is computed again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from msgspec.structs import replace

from qmd.inference.engines.maxsim import MaxSimReranker
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.ingest import outline
from qmd.plugins.bench.fixture import same_file
from qmd.plugins.bench.running import BACKENDS
from qmd.retrieval import matching
from qmd.retrieval.query import parse_query
from qmd.store.opening import open_reader
from tests.benchmarks.answers import SHOWN, AnswerCase, holds_any, path_in_collection, read_cases
from tests.benchmarks.metrics import average

MODULES = "layout snippets fusion date_matches lexical name_matches literal_matches dense reranking hits pipeline"
PASSAGES = {"layout", "snippets"}
Figures = dict[str, dict[str, float]]
"""Measure → question → value."""


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every question under every edit and print a line for each vault, mode, variant and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="INDEX=QUESTIONS")
    parser.add_argument("--edits", type=Path, required=True)
    parser.add_argument("--modes", default="hybrid,lexical")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args(argv)
    variants: dict[str, list[list[str]]] = json.loads(options.edits.read_text(encoding="utf-8"))
    engines = load_engines(
        EngineSettings(Path("no-full-tier"), embed="built-in", rerank="built-in"), ("embed", "rerank")
    )
    saved: dict[str, Figures] = {}
    for index, _, questions in (one.partition("=") for one in options.sets):
        cases = [case for case in read_cases(Path(questions)).values() if case.expected_files]
        with open_reader(Path(index)) as reader:
            for mode in options.modes.split(","):
                vault = Vault(Remembering(reader), engines, cases, mode)
                base = vault.rank([]) | vault.show([])
                saved[f"{Path(questions).stem} {mode} as it is"] = base
                for name, edits in variants.items():
                    found = (vault.show if {one[0] for one in edits} <= PASSAGES else vault.rank)(edits)
                    saved[f"{Path(questions).stem} {mode} {name}"] = found
                    for what, values in found.items():
                        changes = [value - base[what][case] for case, value in values.items()]
                        better, worse = sum(one > 0 for one in changes), sum(one < 0 for one in changes)
                        if better or worse:
                            row = f"{Path(questions).stem:12} {mode:8} {name:28} {what:8}"
                            print(f"{row} {average(changes):+.4f} +{better} -{worse}")
                    sys.stdout.flush()
                if options.save:
                    options.save.write_text(json.dumps(saved))
    return 0


class Vault:
    """A vault's questions in one mode, answered under edits of the source."""

    def __init__(self, reader: Any, engines: Any, cases: Sequence[AnswerCase], mode: str) -> None:
        self._reader, self._engines, self._cases = reader, engines, cases
        self._options = BACKENDS["full" if mode == "hybrid" else "bm25"]
        self._right: dict[str, tuple[Any, ...]] = {}
        remember(outline, "read_outline")
        remember(matching, "fold")
        if engines.embedder is not None:
            remember(type(engines.embedder), "embed_queries")
            remember(MaxSimReranker, "score", skip=1)

    def rank(self, edits: Sequence[Sequence[str]]) -> Figures:
        """Return the ranks of the expected files, and keep the first of them for `show`."""
        modules = edited(edits)
        found: Figures = {"first": {}, "three": {}, "mrr": {}}
        for case in self._cases:
            seen: list[Any] = []

            def keep(reader: Any, ranked: Any, scale: Any, request: Any, seen: list[Any] = seen) -> Any:
                seen.extend((ranked, scale))
                return (), ()

            modules["pipeline"]["build_hits"] = keep
            query = parse_query(case.query)
            modules["pipeline"]["search"](
                self._reader, self._engines, query, replace(self._options, folds_copies=False, limit=SHOWN)
            )
            ranked: Any
            scale: Any
            ranked, scale = seen or ((), None)
            rank = next(
                (
                    number
                    for number, one in enumerate(ranked[:SHOWN], start=1)
                    if any(same_file(name, path_in_collection(one.document)) for name in case.expected_files)
                ),
                sys.maxsize,
            )
            found["first"][case.id], found["three"][case.id] = float(rank == 1), float(rank <= 3)
            found["mrr"][case.id] = 1 / rank if rank <= SHOWN else 0.0
            if not edits and rank <= SHOWN and case.expected_text:
                document = ranked[rank - 1].document
                text = self._reader.texts([document.hash])[document.hash]
                names = matching.header_lines(document) + scale.known_text.get(document.id, "")
                matched = matching.match_text(text, scale.terms, before=names)
                self._right[case.id] = (ranked[rank - 1], text, scale.terms, matched, rank, case.expected_text)
        return found

    def show(self, edits: Sequence[Sequence[str]]) -> Figures:
        """Return whether the passages of the right files contain an expected text."""
        modules = edited(edits)
        snippets = modules["snippets"]
        found: Figures = {"passage": {}, "reads": {}, "chars": {}}
        for name, (entry, text, terms, matched, rank, expected) in self._right.items():
            best, all_passages = snippets["choose_passages"](
                text,
                terms,
                matched=matched,
                chunk=entry.span,
                path=entry.document.path,
                title=entry.document.title,
                fill_chars=snippets["FILL_CHARS"] // (1 if rank == 1 else 2),
            )
            found["passage"][name] = float(holds_any(best.text, expected))
            found["reads"][name] = float(any(holds_any(one.text, expected) for one in all_passages))
            found["chars"][name] = float(sum(len(one.text) for one in all_passages))
        return found


def edited(edits: Sequence[Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Load the modules again with edits of their source, and return their names by module."""
    modules = {}
    for short in MODULES.split():
        module = importlib.import_module(f"qmd.retrieval.{short}")
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        for _, old, new in (one for one in edits if one[0] == short):
            if old not in source:
                raise SystemExit(f"{short} has no {old!r}")
            source = source.replace(old, new, 1)
        exec(compiled(source, str(module.__file__)), module.__dict__)
        modules[short] = module.__dict__
    return modules


@lru_cache(maxsize=64)
def compiled(source: str, name: str) -> CodeType:
    """Compile a module."""
    return compile(source, name, "exec")


class Remembering:
    """An index reader that answers each question once."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._known: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._reader, name)

        def ask(*args: Any, **options: Any) -> Any:
            key = (name, frozen(args), frozen(options))
            if name.startswith("iter") or name == "links_to":
                return method(*args, **options)
            if key not in self._known:
                self._known[key] = method(*args, **options)
            return self._known[key]

        return ask


def remember(owner: Any, name: str, skip: int = 0) -> None:
    """Let a function, or a method of which the first `skip` arguments do not matter, answer each question once."""
    function = getattr(owner, name)
    if hasattr(function, "known"):
        return
    known: dict[Any, Any] = {}

    def ask(*args: Any, **options: Any) -> Any:
        key = frozen(args[skip:])
        if key not in known:
            known[key] = function(*args, **options)
        return known[key]

    ask.known = known  # type: ignore[attr-defined]
    setattr(owner, name, ask)


def frozen(value: Any) -> Any:
    """Return a value as a key."""
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if isinstance(value, Mapping):
        return tuple(sorted((key, frozen(one)) for key, one in value.items()))
    return value.tobytes() if hasattr(value, "tobytes") else value


if __name__ == "__main__":
    sys.exit(main())
