"""Words of the docstrings, comments, messages and help of `qmd/` that the style guide replaces with plain ones.

`python -m tests.prose [PACKAGE…]` prints the findings of all packages, or of those named (`store`, `plugins/mcp`,
`qmd/status.py`), as `FILE:LINE: word: text`.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

NEVER = ("told", "untold", "anew", "whoever", "nobody", "for want of")
"""Not allowed; see `EXCEPTIONS` in test_prose.py."""

FEWER = ("stands", "held", "beside", "said", "says", "holds", "room", "what is", "gone")
"""Counted; see `MOST` in test_prose.py."""

_WORDS = re.compile(
    rf"\b(?:{'|'.join((*NEVER, *FEWER))})\b".replace(" ", r"\s+").replace("room", "rooms?"), re.IGNORECASE
)
_FIRST = re.compile(r"(?:What|Where|Whoever|Of|Whom?|Whose|How|Whether)\b(?!-)")
_VERBS = """Answers Asks Builds Collects Completes Computes Copies Counts Cuts Draws Ends Finds Gives Goes Hears Holds
Keeps Lets Looks Makes Measures Opens Posts Puts Reads Runs Searches Sends Shows Splits Stands Takes Tells Tries Turns
Waits Watches Writes"""
_VERB = re.compile(
    rf"(?:{'|'.join(_VERBS.split())})\b(?! (?:of|that|in|for|with)\b)"
    r"|\w+s (?:an?|the|its|each|every|one|what|how|it|them)\b"
)
_STYLES = re.compile(r"<(style|script)\b.*?</\1>", re.DOTALL)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Text(NamedTuple):
    """A docstring, comment or message, and the lines of the file that contain it."""

    file: str
    first: int
    last: int
    text: str
    owner: ast.AST | None = None
    """What a docstring describes; None for all other texts."""


class Finding(NamedTuple):
    """A word to replace."""

    file: str
    line: int
    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word}: {self.text}"


def findings(*packages: str) -> list[Finding]:
    """All findings in `qmd/`, or in the packages and files that are named."""
    folders = [ROOT / "qmd" / one.removeprefix("qmd").strip("/") for one in packages] or [ROOT / "qmd"]
    files = sorted(file for folder in folders for file in ([folder] if folder.is_file() else folder.rglob("*")))
    texts = [file for file in files if file.suffix in (".py", ".md", ".html")]
    return [one for file in texts for one in of_source(file.relative_to(ROOT).as_posix(), file.read_text("utf-8"))]


def of_source(name: str, source: str) -> Iterator[Finding]:
    """Findings in one file of Python, markdown or HTML."""
    source = _STYLES.sub(lambda match: "\n" * match[0].count("\n"), source)
    lines = source.splitlines()
    for text in _of_python(name, source) if name.endswith(".py") else [Text(name, 1, len(lines), source)]:
        # Code in backticks keeps its names.
        prose = re.sub(r"`[^`\n]*`", "`…`", text.text)
        if text.owner is not None:
            yield from _of_first_line(text, text.owner, prose)
        places = {word: _lines_of(word, lines, text) for word in {_plain(match) for match in _WORDS.finditer(prose)}}
        for match in _WORDS.finditer(prose):
            word = _plain(match)
            around = prose[max(0, match.start() - 50) : match.end() + 50]
            yield Finding(name, next(places[word], text.first), word, " ".join(around.split()))


def _plain(match: re.Match[str]) -> str:
    return " ".join(match[0].lower().split()).replace("rooms", "room")


def _lines_of(word: str, lines: list[str], text: Text) -> Iterator[int]:
    """The number of the line of each time that a word occurs in a text."""
    for number in range(text.first, text.last + 1):
        for match in _WORDS.finditer(re.sub(r"`[^`]*`", "", lines[number - 1])):
            if _plain(match) == word:
                yield number


def _of_first_line(text: Text, owner: ast.AST, prose: str) -> Iterator[Finding]:
    line = prose.strip().partition("\n")[0]
    if first := _FIRST.match(line):
        kind = owner.returns if isinstance(owner, _FUNCTIONS) else getattr(owner, "annotation", None)
        is_bool = kind is not None and re.match(r"bool\b|TypeGuard\b|TypeIs\b|Callable\[.*\bbool\]$", ast.unparse(kind))
        word = "Whether" if is_bool and first[0] == "Whether" else f"begins with {first[0]}"
        yield Finding(text.file, text.first, word, line)
    elif isinstance(owner, ast.ClassDef) and _VERB.match(line):
        yield Finding(text.file, text.first, "class begins with a verb", line)


def _of_python(name: str, source: str) -> Iterator[Text]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(name, token.start[0], token.start[0], token.string)
    tree = ast.parse(source)
    seen: set[int] = set()
    for node in ast.walk(tree):
        before: ast.AST = node
        for child in getattr(node, "body", ()) if isinstance(getattr(node, "body", None), list) else ():
            match child:
                case ast.Expr(value=ast.Constant(value=str(docstring))):
                    seen.add(id(child.value))
                    yield Text(name, child.lineno, child.end_lineno or 0, docstring, before)
            before = child
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            seen.update(id(part) for part in node.values)
            parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            message = "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen:
            message = node.value
        else:
            continue
        if len(re.findall(r"[A-Za-z]{2,}", message)) >= 3:
            yield Text(name, node.lineno, node.end_lineno or 0, message)


if __name__ == "__main__":
    found = findings(*sys.argv[1:])
    print(*found, sep="\n")
    counts = Counter(finding.word for finding in found)
    print(f"{len(found)} findings:", ", ".join(f"{word} {n}" for word, n in counts.most_common()), file=sys.stderr)
