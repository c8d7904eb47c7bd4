"""Ignore files of a cloned project, whose patterns and names would keep git's rules busy for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from qmd.ingest.ignores import ignored_by, load_ignore_file

HOSTILE = [
    ("*a" * 12 + "*b", "a" * 240),
    ("/**/a" * 12 + "/b", "a/" * 120 + "c"),
    ("x/**/a" + "/**/a" * 12 + "/b", "x/" + "a/" * 120 + "c"),
    ("[xy]*" * 40 + "z", "xy" * 120),
]


@pytest.mark.parametrize("name", [".gitignore", ".qmdignore"])
def test_no_ignore_file_makes_a_scan_hang(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("\n".join(line for line, _ in HOSTILE))
    # A process of its own: an expression that backtracks blocks the interpreter, so no timer of this one would run.
    code = (
        "import ast, pathlib, sys\nfrom qmd.ingest.ignores import ignored_by, load_ignore_file\n"
        f"ignores = [load_ignore_file(pathlib.Path({str(tmp_path / name)!r}))]\n"
        "paths = ast.literal_eval(sys.stdin.read())\n"
        "print([ignored_by(path, False, ignores, None, is_named=False) is not None for path in paths])\n"
    )
    paths = repr([path for _, path in HOSTILE])
    done = subprocess.run([sys.executable, "-c", code], input=paths, text=True, timeout=60, capture_output=True)
    assert done.stdout == f"{[False] * len(HOSTILE)}\n"


_line = st.lists(
    st.sampled_from(["a", "b", "*", "*", "/", "**/", "/**/", "?", "[ab]", "."]), min_size=1, max_size=9
).map("".join)
_path = st.lists(st.text(alphabet="ab.", min_size=1, max_size=3), min_size=1, max_size=6).map("/".join)


@given(_line, st.sampled_from(["", "!"]), st.lists(_path, min_size=1, max_size=6), st.booleans())
@settings(max_examples=200)
def test_ignore_files_mean_what_they_mean_to_pathspec(
    tmp_path_factory: pytest.TempPathFactory, line: str, sign: str, paths: list[str], is_dir: bool
) -> None:
    lines = ["*.b", sign + line]
    try:
        plain = GitIgnoreSpec.from_lines(lines)
    except ValueError:
        assume(False)
    file = tmp_path_factory.mktemp("ignores") / ".gitignore"
    file.write_text("\n".join(lines))
    ours = load_ignore_file(file)
    assert ours is not None
    for path in paths:
        name = path + "/" * is_dir
        found = ignored_by(path, is_dir, [ours], None, is_named=False)
        assert (found is not None) == bool(plain.check_file(name).include), path
