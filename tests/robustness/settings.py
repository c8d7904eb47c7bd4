"""Settings of other programs, JSON with comments and TOML, in which `qmd install` may touch its own entry only.

A case is a text with or without an entry of qmd, the pieces of it that belong to others, and what is done: install,
install for another index, remove, or several. The pieces are members, list items and comments; all must come out byte
for byte and in their order, and what the settings say must be the same but for the entry.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qmd.errors import ConfigError
from qmd.plugins.install.clients import entry_for, is_own_hook
from qmd.plugins.install.editing import carry_out, plan_change
from qmd.plugins.install.settings_text import parsed_text

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|[{}\[\]:,]|[^\s{}\[\]:,"/]+', re.DOTALL)
"""A second reading of JSON with comments, which shares nothing with that of qmd."""

OTHER_HOOKS = (
    "~/bin/webhook prompt-log",
    "audit-hook prompt --log",
    "git-hook prompt-check",
    "qmd query hook prompt",
    "echo qmd hook prompt",
    "my-qmd hook prompt",
    "qmd hook prompt && log",
    "python3 -m qmdx hook prompt",
    "qmd hook 'prompt x'",
    "'unclosed hook prompt",
)
"""Commands that mention the words of qmd's, and are not."""

OWN_HOOKS = (
    "qmd hook prompt",
    "/usr/bin/qmd --index work hook prompt",
    "qmd hook session --index=work",
    "env INDEX_PATH='/a b' QMD_CONFIG_DIR=/c '/opt/my tools/qmd' hook prompt",
    "/usr/bin/python3.12 -P -m qmd --index 'a b' hook prompt",
    "uvx --from 'qmd-search @ /x' qmd-search hook prompt",
    '"C:/Program Files/qmd/qmd.exe" hook prompt',
    "C:\\tools\\qmd.exe hook prompt",
    "'C:\\Program Files\\qmd\\QMD.EXE' hook prompt",
)
"""Commands of qmd's hook, of several versions and systems."""

_KEYS = {"claude": ("mcpServers", "qmd"), "opencode": ("mcp", "qmd"), "codex": ("mcp_servers", "qmd")}
_HOOKS = ("hooks", "UserPromptSubmit")
_DEEDS = (("install",), ("remove",), ("install", "install"), ("install", "remove"), ("remove", "install"))


_IN_STRING = "'''\n[mcp_servers.qmd]"
"""A header of qmd's in a text of many lines, where it is none; such a file may be refused."""
_INSIDE = ("", "\n", ' " ', ",", "}")
_ODD = ("", "", "é", "//", "/*", ", ]", "{", "\\u0041")


@dataclass
class _Writer:
    """Text with random blanks and comments, and a list of the pieces that belong to others."""

    dice: random.Random
    pieces: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def new(self, mark: str) -> str:
        """A word that occurs nowhere else."""
        return f"{mark}{next(self.numbers)}{self.dice.choice(_ODD)}_"

    def other(self, text: str) -> str:
        """A piece of others."""
        self.pieces.append(text)
        return text

    def gap(self, *, is_own: bool = False) -> str:
        """Blanks and line ends, and perhaps a comment."""
        text = ""
        for _ in range(self.dice.choice((0, 1, 1, 2, 3))):
            kind = self.dice.randrange(9)
            if kind == 0:
                comment = f"/* {self.new('c')}{self.dice.choice(_INSIDE)}*/"
            elif kind == 1:
                comment = f"// {self.new('c')}{self.dice.choice(_INSIDE).strip(chr(10))}"
            else:
                text += self.dice.choice((" ", "  ", "\n", "\n  ", "\n\n\t"))
                continue
            text += (comment if is_own else self.other(comment)) + "\n" * kind
        return text

    def value(self, depth: int = 0) -> str:
        """Something of others, with comments and blanks of its own, which belong to the piece that it is."""
        kind = self.dice.randrange(3 if depth > 2 else 5)
        if kind < 3:
            return self.dice.choice((f'"{self.new("v")}"', "12", "-1.5e3", "true", "null", '""', '"\\"//\\\\"'))
        inner = [
            self.gap(is_own=True)
            + (f'"{self.new("k")}":{self.gap(is_own=True)}' if kind == 3 else "")
            + self.value(depth + 1)
            + self.gap(is_own=True)
            for _ in range(self.dice.randrange(4))
        ]
        end = "," if inner and self.dice.random() < 0.2 else ""
        inside = ",".join(inner) + end or self.gap(is_own=True)
        return f"{{{inside}}}" if kind == 3 else f"[{inside}]"

    def join(self, parts: Sequence[Callable[[], str]], brackets: str) -> str:
        """An object or a list of these parts."""
        text = brackets[0]
        for number, part in enumerate(parts):
            text += ("," if number else "") + self.gap() + part() + self.gap()
        return text + ("," + self.gap() if parts and self.dice.random() < 0.3 else self.gap()) + brackets[1]

    def member(self) -> str:
        """One member of others."""
        return self.other(f'"{self.new("m")}"{self.dice.choice(["", " "])}:{self.value()}')

    def around(self, key: str, inside: Callable[[], str]) -> str:
        """An object of others, one member of which is on the way to the entry."""
        members: list[Callable[[], str]] = [self.member for _ in range(self.dice.choice((0, 1, 1, 2, 3)))]
        # A comment behind qmd's own name goes with its entry.
        way = lambda: f'"{key}":{self.gap(is_own=key == "qmd")}{inside()}'  # noqa: E731
        members.insert(self.dice.randrange(len(members) + 1), way)
        return self.join(members, "{}")

    def bare(self) -> str:
        """An object of others without the way to the entry."""
        return self.join([self.member for _ in range(self.dice.choice((0, 1, 2)))], "{}")

    def command(self, words: str) -> str:
        """A hook."""
        more = self.dice.choice(("", ', "timeout": 7', f', "x": "{self.new("v")}"'))
        return f'{{"type": "command",{self.gap(is_own=True)}"command": {json.dumps(words)}{more}}}'

    def group(self) -> str:
        """A group of hooks: others', qmd's, or both."""
        n_own, n_others = self.dice.choice(((0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)))
        own: list[Callable[[], str]] = [lambda: self.command(self.dice.choice(OWN_HOOKS))] * n_own
        others: list[Callable[[], str]] = [lambda: self.other(self.command(self.dice.choice(OTHER_HOOKS)))] * n_others
        hooks = self.dice.sample([*own, *others], n_own + n_others)
        if not others and self.dice.random() < 0.7:
            return f'{{"hooks": [{", ".join(hook() for hook in hooks)}]}}'  # qmd's own, comments too
        if not others:
            return self.join([lambda: self.other(f'"matcher":"{self.new("v")}"'), lambda: self._list(hooks)], "{}")
        members: list[Callable[[], str]] = [self.member for _ in range(self.dice.choice((0, 0, 1)))]
        return self.join([*members, lambda: self._list(hooks)], "{}")

    def _list(self, hooks: Sequence[Callable[[], str]]) -> str:
        return f'"hooks":{self.gap()}{self.join(hooks, "[]")}'


def _json(writer: _Writer, client: str) -> str:
    keys, is_hook = (_HOOKS, True) if client == "hook" else (_KEYS[client], False)
    dice, depth = writer.dice, writer.dice.choice((0, 1, 2, 2, 2))
    groups = [writer.group for _ in range(dice.choice((0, 1, 2, 3)))]

    def entry() -> str:
        return (
            writer.join(groups, "[]")
            if is_hook
            else f'{{"command": "/x/qmd",{writer.gap(is_own=True)}"args": ["mcp"]}}'
        )

    text = writer.gap()
    if depth == 0:
        text += writer.bare()
    elif depth == 1:
        text += writer.around(keys[0], writer.bare)
    else:
        text += writer.around(keys[0], lambda: writer.around(keys[1], entry))
    return text + writer.gap()


def _toml(writer: _Writer) -> str:
    dice = writer.dice

    def rows() -> str:
        text = ""
        for _ in range(dice.randrange(4)):
            value = dice.choice(
                (
                    f'"{writer.new("v")}" # {writer.new("c")}',
                    f"[\n  1, # {writer.new('c')}\n  2,\n]",
                    f"{_IN_STRING}\n{writer.new('v')}\n'''",
                    f'"""{writer.new("v")}\n# no comment\n"""',
                    "{ a = 1, b = [ 2 ] }",
                    "1979-05-27",
                )
            )
            text += writer.other(f"k{next(writer.numbers)} = {value}") + "\n"
            text += between()
        return text

    def between() -> str:
        kinds = dice.choices(("\n", "  \n", "#"), k=dice.choice((0, 0, 1, 2)))
        return "".join(writer.other(f"# {writer.new('c')}") + "\n" if kind == "#" else kind for kind in kinds)

    def table() -> str:
        name = dice.choice(("mcp_servers.a{}", "profiles.{}", "mcp_servers.a{}.env", "a{}", "mcp_servers.qmd-{}"))
        return writer.other(f"[{name.format(next(writer.numbers))}]") + "\n" + rows()

    own = '[mcp_servers.qmd]\ncommand = "/x/qmd"\nargs = ["mcp"]\n'
    own += dice.choice(("", '[mcp_servers.qmd.env]\nA = "b"\n', '\n[mcp_servers.qmd.env]\nA = "b"\n'))
    parts = [table for _ in range(dice.randrange(4))]
    text = between() + rows()
    at = dice.randrange(len(parts) + 1) if dice.random() < 0.6 else None
    for number in range(len(parts) + 1):
        text += between() + (own if number == at else "") + (between() if number == at else "")
        text += parts[number]() if number < len(parts) else ""
    return text.rstrip("\n") if dice.random() < 0.2 else text


def settings_case(dice: random.Random) -> bytes:
    """A case as JSON, one in ten with a damaged text."""
    writer = _Writer(dice)
    client = dice.choice(("claude", "opencode", "hook", "hook", "codex"))
    text = _toml(writer) if client == "codex" else _json(writer, client)
    text = dice.choice(("", "", "", "\ufeff")) + text
    pieces = writer.pieces
    if dice.random() < 0.1:
        at = dice.randrange(len(text) + 1)
        text, pieces = text[:at] + dice.choice(("", "}", '"', ",", "/*", "\n")) + text[at + dice.randrange(3) :], []
    elif dice.random() < 0.2:
        text, pieces = text.replace("\n", "\r\n"), [piece.replace("\n", "\r\n") for piece in pieces]
    return json.dumps({"client": client, "text": text, "pieces": pieces, "deeds": dice.choice(_DEEDS)}).encode()


class Lost(Exception):
    """Something of others that is not as it was."""


@contextlib.contextmanager
def open_settings(folder: Path) -> Iterator[Callable[[bytes], None]]:
    """Do what a case says to a file of these settings, and look at it after each deed."""

    def check(raw: bytes) -> None:
        case = json.loads(raw)
        file = folder / ("settings.toml" if case["client"] == "codex" else "settings.json")
        text = case["text"].replace("\r\n", "\n")
        file.write_bytes(case["text"].encode())
        file.with_name(f"{file.name}.qmd-backup").unlink(missing_ok=True)
        for number, deed in enumerate(case["deeds"]):
            # What others write meanwhile: qmd must not take the file for unchanged, and restore a backup.
            with file.open("ab") as stream:
                stream.write(b"\n")
            before = file.read_bytes()
            try:
                _carry_out(file, case["client"], f"index{number}", removes=deed == "remove")
            except ConfigError as exc:
                if "\n" in exc.message:
                    raise Lost(f"a message of several lines: {exc.message!r}") from exc
                if file.read_bytes() != before:
                    raise Lost("refused, and changed all the same") from exc
                if case["pieces"] and "does not change" in exc.message and _IN_STRING not in text:
                    raise Lost(f"refused: {exc.message}") from exc
            else:
                _compare(before.decode(), file.read_bytes().decode(), case, deed)
        left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
        if left:
            raise Lost(f"left over: {left}")

    yield check


def _carry_out(file: Path, client: str, index: str, *, removes: bool) -> None:
    is_hook = client == "hook"
    entry = entry_for("claude" if is_hook else client, index, {}, hook="prompt" if is_hook else None)
    change = plan_change(file, entry.keys, entry.value, removes=removes, is_clones=False)
    if change.before != change.after:
        carry_out(change)


def _compare(before: str, after: str, case: dict[str, Any], deed: str) -> None:
    at = 0
    for piece in case["pieces"]:
        found = after.find(piece, at)
        if found < 0:
            raise Lost(f"{piece!r} is lost, after {deed}: {after!r}")
        at = found + len(piece)
    is_toml, is_hook = case["client"] == "codex", case["client"] == "hook"
    # qmd reads more than the second reader, such as a comment without an end.
    read = _read if case["pieces"] else parsed_text
    was, now = (read(text, is_toml=is_toml) for text in (before, after))
    keys = _HOOKS if is_hook else _KEYS[case["client"]]
    (mine_before, rest_before), (mine_after, rest_after) = (_split(one, keys, is_hook=is_hook) for one in (was, now))
    if rest_before != rest_after:
        raise Lost(f"what others set differs after {deed}: {rest_before!r}, {rest_after!r}")
    if len(mine_after) != (deed != "remove"):
        raise Lost(f"{len(mine_after)} entries after {deed}, {len(mine_before)} before")


def _read(text: str, *, is_toml: bool) -> Any:
    text = text.removeprefix("\ufeff")
    if is_toml:
        return tomllib.loads(text)
    tokens = [one for one in _TOKEN.findall(text) if not one.startswith(("//", "/*"))]
    kept = [one for one, after in itertools.zip_longest(tokens, tokens[1:]) if one != "," or after not in ("}", "]")]
    return json.loads("".join(kept) or "{}")


def _split(settings: Any, keys: Sequence[str], *, is_hook: bool) -> tuple[list[Any], Any]:
    """The entries of qmd, and the rest; an object or a list that is empty without them counts as missing."""
    outer = settings.get(keys[0], {})
    inner = outer.get(keys[1])
    own: list[Any] = [] if inner is None else [inner]
    rest: Any = None
    if is_hook:
        pairs = [(group, group.get("hooks", [])) for group in inner or []]
        own = [one for _, hooks in pairs for one in hooks if is_own_hook(one)]
        rest = [{**group, "hooks": [one for one in hooks if not is_own_hook(one)]} for group, hooks in pairs]
        rest = [group for group in rest if group != {"hooks": []}]
    kept = {name: one for name, one in outer.items() if name != keys[1]} | ({keys[1]: rest} if rest else {})
    return own, {name: one for name, one in settings.items() if name != keys[0]} | ({keys[0]: kept} if kept else {})
