"""Input that is nearly right: grammars of the formats that qmd reads, and mutations of these and of real files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

Dice = random.Random

_WORDS = ("river", "Ünïcode", "日本語", "getUserName", "a", "limiter", "x_y", "🙂", "e\u0301", "\u202e", "ﬃ", "don't")
_TOKENS = (
    b"---\n", b"+++\n", b"```\n", b"~~~", b"#", b"#tag", b"[[", b"]]", b"](", b"|", b"<!--", b"-->", b"\0", b"\r\n",
    b"\xff", b"\xe9", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\xe2\x80\xa8", b"\x1b]0;", b"&a ", b"*a",
    b"<<: ", b"!!python/object:", b"!!binary ", b"? ", b"- ", b": ", b"%s", b"\\", b'"', b"'", b"{", b"}", b"[", b"]",
    b"(", b")", b"*", b"**/", b"?", b"!(", b"@(", b"{1..9}", b"0x", b"1e999", b"9" * 20, b"9" * 5000, b"-", b".inf",
    b"2026-13-45", b"qmd://", b"#+title:", b":PROPERTIES:", b":END:", b"lex:", b"vec:", b"hyde:", b"intent:", b"tag:",
    b"after:", b"NEAR(", b" OR ", b" AND ", b" NOT ", b"^", b"\\ud800", b"\\u0000",
)  # fmt: skip
SUFFIXES = (*[".md"] * 12, ".markdown", ".org", ".txt", ".py", ".js", ".ts", ".rs", ".go", ".java", ".c", "")


def words(dice: Dice, most: int = 12) -> str:
    """A few words of several scripts."""
    return " ".join(dice.choices(_WORDS, k=dice.randint(1, most)))


def mutate(raw: bytes, dice: Dice, most: int = 6) -> bytes:
    """Some bytes flipped, cut, doubled, repeated many times, moved, or replaced by tokens that parsers react to."""
    for _ in range(dice.randint(0, most)):
        start = dice.randint(0, len(raw))
        end = min(len(raw), start + dice.randint(0, 40))
        part = raw[start:end]
        kind = dice.randrange(6)
        if kind == 0:
            part = bytes(dice.randrange(256) for _ in range(dice.randint(1, 4)))
        elif kind == 1:
            part = b""
        elif kind == 2:
            part = part * dice.choice((2, 2, 3, 50))
        elif kind == 3:
            part = dice.choice(_TOKENS) + part
        elif kind == 4:
            part = dice.choice(_TOKENS) * dice.choice((1, 2, 5, 60))
        else:
            part = part[::-1]
        raw = raw[:start] + part + raw[end:]
    return raw


# --- files ----------------------------------------------------------------------------------------


def yaml_value(dice: Dice, depth: int = 0) -> str:
    """A YAML value in flow style."""
    kind = dice.randrange(12 if depth < 4 else 8)
    if kind < 3:
        return dice.choice(_WORDS)
    if kind == 3:
        return str(dice.choice((0, -1, 10**25, 1e308, "0o17", "0b1", "1_000", ".nan", "12:30:45")))
    if kind == 4:
        return dice.choice(("2026-01-01", "2026-02-30", "0000-00-00", "2026-01-01T25:00:00Z", "yes", "~", "null", ""))
    if kind == 5:
        return json.dumps(words(dice, 4))
    if kind == 6:
        return dice.choice(("*a", "&a x", "&a [*a]", "!!set {a, b}", "!!omap [a: 1]", "|", ">", "'it''s'", '"\\ud800"'))
    if kind == 7:
        return dice.choice(("[" * 40, "{" * 40, "{a: " * 30, "!!binary aGk=", "!!timestamp x", "!<tag:x> y", "<<"))
    items = [yaml_value(dice, depth + 1) for _ in range(dice.randint(0, 4))]
    if kind < 10:
        return f"[{', '.join(items)}]"
    return "{" + ", ".join(f"k{number}: {item}" for number, item in enumerate(items)) + "}"


def alias_bomb(dice: Dice, key: str = "k") -> str:
    """YAML whose aliases stand for exponentially many nodes."""
    width, levels = dice.randint(2, 9), dice.randint(2, 12)
    lines = [f"{key}0: &n0 [{', '.join(['x'] * width)}]"]
    lines += [f"{key}{n}: &n{n} [{', '.join([f'*n{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def _front_matter(dice: Dice) -> str:
    keys = ("title", "tags", "aliases", "date", "created", "id", "description", "draft", "Tags", "\U0001f600", "a.b")
    if dice.random() < 0.02:
        return f"---\n{alias_bomb(dice)}---\n"
    if dice.random() < 0.2:
        values = ("1", "9" * dice.choice((5, 5000)), '"x"', "[1, [2]]", "{a = 1}", "2026-01-01", "1979-05-27T07:32:00Z")
        lines = [f"{dice.choice(keys)} = {dice.choice(values)}" for _ in range(dice.randint(0, 5))]
        return "+++\n" + "\n".join(lines) + "\n+++\n"
    lines = [f"{dice.choice(keys)}: {yaml_value(dice)}" for _ in range(dice.randint(0, 6))]
    return "---\n" + "\n".join(lines) + dice.choice(("\n---\n", "\n...\n", "\n--- \n", "\n"))


def _block(dice: Dice) -> str:
    kind = dice.randrange(14)
    text = words(dice)
    if kind == 0:
        return f"{'#' * dice.randint(1, 8)}{dice.choice((' ', '', chr(9)))}{text}\n"
    if kind == 1:
        return f"{text}\n{dice.choice('=-') * dice.randint(1, 9)}\n"
    if kind == 2:
        fence = dice.choice(("```", "~~~~", "`````"))
        return f"{fence}{dice.choice(('python', '', 'js title=x'))}\n{text}\n{dice.choice((fence, ''))}\n"
    if kind == 3:
        return "".join(f"{dice.choice(('- ', '* ', '1. ', '  - [ ] '))}{words(dice, 5)}\n" for _ in range(3))
    if kind == 4:
        return "| a | b |\n|---|---|\n" + "".join(f"| {words(dice, 2)} | {words(dice, 2)} |\n" for _ in range(3))
    if kind == 5:
        return " ".join(f"#{dice.choice(_WORDS)}{dice.randrange(99)}" for _ in range(dice.randint(1, 9))) + "\n"
    if kind == 6:
        return f"[[{text}|{text}]] [{text}]({text}) ![x](y) <http://{text}>\n"
    if kind == 7:
        return f"<!-- {text} {dice.choice(('-->', ''))}\n<div>{text}\n"
    if kind == 8:
        return f"#+title: {text}\n* TODO {text} :tag:\n:PROPERTIES:\n:ID: x\n:END:\n#+begin_src py\n{text}\n#+end_src\n"
    if kind == 9:
        return f"class {dice.choice('AB')}:\n    def {dice.choice(_WORDS)}(self):\n        return '{text}'\n\n"
    if kind == 10:
        return f"export function f{dice.randrange(9)}(a) {{ return `{text}`; }}\nimpl X {{ fn y() {{}} }}\n"
    return f"{text}.\n{dice.choice(('', chr(10), chr(12), chr(0x2028), '> ' + text))}"


def file_content(dice: Dice, real: Sequence[bytes]) -> bytes:
    """The bytes of a file: about 500 of them, one in two hundred times a hundred times as many."""
    if real and dice.random() < 0.3:
        whole = dice.choice(real)
        start = dice.randrange(max(1, len(whole) - 500))
        raw = whole[start if dice.random() < 0.7 else 0 :][: dice.randint(50, 700)]
    else:
        text = _front_matter(dice) if dice.random() < 0.6 else ""
        raw = (text + "".join(_block(dice) for _ in range(dice.randint(0, 8)))).encode()
    if dice.random() < 0.02:
        raw = raw.decode("utf-8", "replace").encode(dice.choice(("utf-16", "utf-16-le", "latin-1")), "replace")
    raw = mutate(raw, dice)
    if dice.random() < 0.005:
        start = dice.randrange(len(raw) + 1)
        part = raw[start : start + dice.randint(1, 60)]
        grown = (part + (b"%d " % n if dice.random() < 0.5 else b"") for n in range(60_000 // (len(part) + 3)))
        raw = raw[:start] + b"".join(grown) + raw[start:]
    return raw


def file_name(dice: Dice) -> bytes:
    """A name that a Unix file system allows, now and then no UTF-8; none with a leading dot, which is never indexed."""
    stem = dice.choice(
        (b"note", b"a b", "日本".encode(), b"x#y", b"-n", b"a:1", b"%41", b"q?", b"*", b"[x]", b"n" * 200)
    )
    if dice.random() < 0.1:
        stem = mutate(stem, dice, 2)
    stem = bytes(byte for byte in stem if byte not in b"/\0").lstrip(b".")[:200]
    return (stem or b"empty") + dice.choice(SUFFIXES).encode()


# --- configuration --------------------------------------------------------------------------------


def configuration(dice: Dice) -> bytes:
    """The bytes of an `index.yml`."""
    lines = ["collections:"] if dice.random() < 0.9 else [f"collections: {yaml_value(dice)}"]
    for number in range(dice.randint(0, 3)):
        lines.append(f"  {dice.choice(('notes', 'wiki', '1', '~', '2026-01-01', 'a b'))}{number}:")
        for key in ("path", "pattern", "ignore", "context", "update", "includeByDefault", "unknown"):
            if key == "path" or dice.random() < 0.3:
                good = {"path": "~/notes", "context": "{/: a, b: c}", "includeByDefault": "false", "ignore": "[a, b]"}
                value = good.get(key, "x") if dice.random() < 0.6 else yaml_value(dice)
                lines.append(f"    {key}: {value}")
    for key in ("global_context", "models", "editor_uri", "editor"):
        if dice.random() < 0.3:
            lines.append(f"{key}: {yaml_value(dice)}")
    text = "\n".join(lines) + "\n"
    if dice.random() < 0.02:
        text += alias_bomb(dice, dice.choice(("global_context", "k")))
    if dice.random() < 0.01:
        text += "deep: " + dice.choice("[{") * dice.choice((100, 3_000)) + "\n"
    return mutate(text.encode(), dice, 4)


# --- queries, globs, messages ---------------------------------------------------------------------


def query_text(dice: Dice) -> bytes:
    """A query or a query document."""

    def part() -> str:
        kind = dice.randrange(8)
        if kind < 3:
            return words(dice, 3)
        field = dice.choice(("tag", "path", "collection", "after", "before", "title", "-tag", "body"))
        return (
            f'"{words(dice, 3)}{dice.choice(("", chr(34)))}',
            f"-{dice.choice(_WORDS)}",
            f"{field}:{dice.choice(('x', '2026-01', '2026-99-99', '', chr(34)))}",
            dice.choice(("NEAR(a b, 2)", "a*", "^a", "(a OR b)", "{a}", "col:x", "a + b", "\ud800", "\0", "%", "''")),
            f"{dice.choice(_WORDS)}.{dice.choice(_WORDS)}::{dice.choice(_WORDS)}/{dice.choice(_WORDS)}",
        )[kind - 3]

    lines = []
    for _ in range(1 if dice.random() < 0.6 else dice.randint(1, 5)):
        prefix = dice.choice(("", "", "", "lex: ", "vec: ", "hyde: ", "intent: ", "expand: ", "LEX:", "what: "))
        lines.append(prefix + " ".join(part() for _ in range(dice.randint(0, 5))))
    text = "\n".join(lines)
    if dice.random() < 0.005:
        text = text * dice.choice((50, 500))
    raw = mutate(text.encode("utf-8", "surrogatepass"), dice, 3)
    # Few people type bytes that are no text.
    return raw if dice.random() < 0.05 else raw.decode("utf-8", "replace").encode()


_GLOB_PARTS = (
    "*", "*", "**", "**/", "/", "?", "a", "ab", "*a", "[a-z]", "[!a]", "[]", "[", "{a,b}", "{1..3}", "{a..e}", "{",
    "}", ",", "!(a)", "@(a|b)", "+(a)", "*(a)", "*(a|*)", "+(*a)", "?(a)", "(", ")", "|", "!", "\\", ".md", "./",
    "../", "notes/", "é", "#",
)  # fmt: skip


def glob(dice: Dice) -> bytes:
    """A mask; one in ten repeats a few parts many times, which is where matchers blow up."""
    parts = dice.choices(_GLOB_PARTS, k=dice.randint(1, 10))
    if dice.random() < 0.1:
        parts = dice.choices(parts, k=2) * dice.randint(4, 30) + parts
    return mutate("".join(parts).encode(), dice, 1)


def message_lines(dice: Dice) -> bytes:
    """A few lines of JSON-RPC, as a confused client may send them."""
    return b"\n".join(_message(dice) for _ in range(dice.randint(1, 3)))


_METHODS = (
    *["tools/call"] * 3, "tools/list", "resources/read", "resources/list", "initialize", "ping", "logging/setLevel",
    "notifications/cancelled", "notifications/initialized", "prompts/get", "x", "",
)  # fmt: skip


def _message(dice: Dice) -> bytes:
    method = dice.choice(_METHODS)
    message: dict[str, object] = {"jsonrpc": "2.0", "method": method, "params": _params(method, dice)}
    if not method.startswith("notifications/") or dice.random() < 0.1:
        message["id"] = dice.choice((1, 2, "a", 0, -1, 10**30, 1.5, None, [], "x" * 100))
    for _ in range(dice.randint(0, 2) if dice.random() < 0.4 else 0):
        key = dice.choice(list(message))
        message[key] = _json_value(dice)
    raw = json.dumps(message, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")
    if dice.random() < 0.3:
        raw = mutate(raw, dice, 3)
    if dice.random() < 0.01:
        raw = dice.choice((b"[" * 5_000, b'{"a":' * 5_000, b" " * 70_000, b"1" * 10_000))
    return raw.replace(b"\n", b" ").replace(b"\r", b" ")


def _params(method: str, dice: Dice) -> object:
    if method == "resources/read":
        return {"uri": dice.choice(("qmd://notes/n1.md", "qmd://", "qmd://%ff", "file:///etc/passwd", "", 5))}
    if method != "tools/call":
        return dice.choice(({}, None, _json_value(dice), {"requestId": 1}, {"requestId": "ping"}))
    makers: dict[str, Callable[[], object]] = {
        "query": lambda: dice.choice((words(dice, 4), query_text(dice).decode("utf-8", "replace"))),
        "searches": lambda: [{"type": dice.choice(("lex", "vec", "x")), "query": words(dice, 3)}],
        "limit": lambda: dice.choice((1, 0, -1, 10**30, 1.5, "3")),
        "rerank": lambda: dice.choice((True, False, "no")),
        "collections": lambda: dice.choice((["notes"], ["x"], "notes", [1], [])),
        "file": lambda: dice.choice(("notes/n1.md", "#abc", "n1.md:3:2", "../x", "\0", "n1.md:" + "9" * 30, "x" * 400)),
        "pattern": lambda: glob(dice).decode("utf-8", "replace"),
        "maxLines": lambda: dice.choice((1, 10**20, -5)),
        "intent": lambda: words(dice, 3),
    }
    chosen = dice.sample(list(makers), k=dice.randint(0, 3))
    name = dice.choice(("query", "query", "get", "multi_get", "status", "search", "nothing", 5))
    return {"name": name, "arguments": {key: makers[key]() for key in chosen}}


def _json_value(dice: Dice, depth: int = 0) -> object:
    kind = dice.randrange(8 if depth < 3 else 5)
    if kind < 5:
        return (None, dice.choice(("", "2.0", "\ud800", "x" * 300, "日本")), 10**400, -0.0, True)[kind]
    if kind == 5:
        return {words(dice, 1): _json_value(dice, depth + 1) for _ in range(dice.randint(0, 3))}
    return [_json_value(dice, depth + 1) for _ in range(dice.randint(0, 3))]


def real_files(folders: Sequence[Path], most: int = 400) -> list[bytes]:
    """Contents of the text files below some folders, to be cut and mutated; in a fixed order."""
    found: list[bytes] = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in SUFFIXES[:-1] and path.is_file() and len(found) < most:
                found.append(path.read_bytes()[:20_000])
    return found
