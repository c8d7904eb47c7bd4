# ruff: noqa: E501 - a change and what replaces it read best side by side
"""Forty changes that break a rule, each of which some test has to notice.

`python -m tests.robustness.mutants [N…]` makes each change (or those numbered) in a copy of the tree, runs the tests of
its room, and prints which stayed alive. A change is a piece of source that occurs once in the package, and what takes its
place; where the source is written anew, write the change anew as well.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_ROOT = Path(__file__).resolve().parents[2]

FUSION = ("tests/retrieval",)
SCOPE = (
    "tests/store/contract/test_words.py",
    "tests/store/contract/test_documents.py",
    "tests/retrieval",
    "tests/store",
)
GLOBS = ("tests/ingest",)
TRUST = (
    "tests/config",
    "tests/cli/test_cli_project.py",
    "tests/cli/test_cli_strange_projects.py",
    "tests/conformance",
)
MIGRATIONS = (
    "tests/upgrade",
    "tests/store/test_store_failures.py",
    "tests/clients/test_index_of_the_original.py",
    "tests/store",
)
DATES = ("tests/dates", "tests/retrieval/test_date_matches.py", "tests/ingest/test_note_dates.py")
FOREIGN = ("tests/plugins/models", "tests/inference", "tests/plugins/models/test_hostile_imports.py")

MUTANTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("key=lambda entry: (-entry.score, entry.document_id))\n    return tuple(fused)",
     "key=lambda entry: (entry.score, entry.document_id))\n    return tuple(fused)", FUSION),
    ("head += [0.0] * (min(SCORE_DEPTH, n_documents) - len(head))", "pass", FUSION),
    ("(min(head) - mean) / spread", "(max(head) - mean) / spread", FUSION),
    ("slope = min(max(slope, 0.0), 1.0)", "slope = max(slope, 0.0)", FUSION),
    ("for rank, candidate in enumerate(ranking.candidates, start=1)\n    }",
     "for rank, candidate in enumerate(ranking.candidates, start=0)\n    }", FUSION),
    ("before.score + bonus, (", "before.score - bonus, (", FUSION),
    ("left + weight * right for left, right", "left + right for left, right", FUSION),
    ("missing = found & unknown - dense.standard.keys()", "missing = found - dense.standard.keys()", FUSION),
    ("return mean, spread if spread > SPREAD_FLOOR else 1.0", "return mean, spread or 1.0", FUSION),
    ("{len(text)}) = {self.value(text)}", "{len(text)}) >= {self.value(text)}", SCOPE),
    ("NOT coalesce({self._filter(replace(asked, op='='))}, false)", "NOT {self._filter(replace(asked, op='='))}", SCOPE),
    ("self.value(last + _AFTER_ANY_DAY)", "self.value(last)", SCOPE),
    ("self.tagged(value.strip(\"#/\").casefold())", "self.tagged(value.strip(\"#/\"))", SCOPE),
    ("{self.begins(found, f'{tag}/')}", "{self.begins(found, f'{tag}')}", SCOPE),
    ("m.type NOT IN ('integer', 'real'), {test}", "m.type IN ('integer', 'real'), {test}", SCOPE),
    ("{_FIRST_DAY} < {self.value(value)}", "{_FIRST_DAY} <= {self.value(value)}", SCOPE),
    ("return wanted or ([\"**\"] if excluded else [DEFAULT_PATTERN])", "return wanted or [DEFAULT_PATTERN]", GLOBS),
    ("excluded = [part for part in parts if part.startswith(\"!\") and not part.startswith(\"!(\")]",
     "excluded = [part for part in parts if part.startswith(\"!\")]", GLOBS),
    ("return glob.removeprefix(\"./\").lstrip(\"/\")", "return glob.lstrip(\"/\")", GLOBS),
    ("for ignore in reversed(ignores):", "for ignore in ignores:", GLOBS),
    ("return _deciding(path, is_dir, [one for one in ignores if not one.is_git])", "return None", GLOBS),
    ("if len(raw) > _MAX_BYTES or raw.count(b\"\\n\") > _MAX_LINES:", "if len(raw) > _MAX_BYTES:", GLOBS),
    ("if not items or is_vouched_for(environ):", "if is_vouched_for(environ) or True:", TRUST),
    ("content |= {\"links\": self.links} if self.links else {}", "pass", TRUST),
    ("if not path.is_relative_to(root))),", "if path.is_relative_to(root))),", TRUST),
    ("collections=tuple(replace(c, update_command=None) for c in config.collections if c.name not in outside),",
     "collections=tuple(replace(c, update_command=None) for c in config.collections),", TRUST),
    ("if (slot, model) not in items.models},", "},", TRUST),
    ("        editor_uri=None,\n    )\n\n\ndef record_trust", "    )\n\n\ndef record_trust", TRUST),
    ("if version < len(MIGRATIONS):", "if version < len(MIGRATIONS) - 1:", MIGRATIONS),
    ("steps(database, _own_version(database), len(", "steps(database, version, len(", MIGRATIONS),
    ("database.run(\"DELETE FROM meta WHERE key GLOB 'anchored:*'\")", "pass", MIGRATIONS),
    ("        move_blocks(database)\n", "        pass\n", MIGRATIONS),
    ("if database.value(\"PRAGMA page_count\") == 0:\n            return 0", "if True:\n            return 0", MIGRATIONS),
    ("monday = moved - timedelta(days=moved.weekday())", "monday = moved", DATES),
    ("return today - timedelta(days=lengths[unit] * count), today", "return today, today", DATES),
    ("ahead = (ahead - shift) % 7 + shift if shift > 0 else -((-ahead - 1) % 7) - 1", "ahead = ahead + 7 * shift", DATES),
    ("if match[\"s\"][0] == \".\" or left > 12:", "if left > 12:", DATES),
    ("return ((first, last),) if first <= last else ()", "return ((first, last),)", DATES),
    ("if not 0 < len(names) <= _MOST_FOLDERS or not all(map(is_name, names)):", "if not all(map(is_name, names)):", FOREIGN),
)  # fmt: skip


def main(numbers: list[int]) -> int:
    """Try the changes; the number that stayed alive."""
    alive = []
    for number in numbers or range(len(MUTANTS)):
        old, new, tests = MUTANTS[number]
        outcome = "cannot be made" if (file := _file_with(old)) is None else _outcome(file, old, new, tests)
        print(f"{number:2} {outcome:15} {file and file.relative_to(_ROOT)}: {old.splitlines()[0][:80]}", flush=True)
        if outcome != "killed":
            alive.append(number)
    print(f"{len(alive)} not killed: {alive}")
    return len(alive)


def _file_with(source: str) -> Path | None:
    """The one file that holds the piece; None where none or several do."""
    files = [file for file in sorted((_ROOT / "qmd").rglob("*.py")) if source in file.read_text("utf-8")]
    return files[0] if len(files) == 1 and files[0].read_text("utf-8").count(source) == 1 else None


def _outcome(file: Path, old: str, new: str, tests: tuple[str, ...]) -> str:
    with TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("qmd", "tests", "models", "docs"):
            shutil.copytree(_ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
            shutil.copy(_ROOT / name, copy)
        changed = copy / file.relative_to(_ROOT)
        changed.write_text(changed.read_text("utf-8").replace(old, new), "utf-8")
        places = [place for place in tests if (copy / place).exists()]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *places]
        done = subprocess.run(command, cwd=copy, capture_output=True, check=False)
    return {0: "ALIVE", 1: "killed"}.get(done.returncode, f"status {done.returncode}")


if __name__ == "__main__":
    sys.exit(main([int(number) for number in sys.argv[1:]]))
