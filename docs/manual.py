"""The command reference: `python docs/manual.py > docs/cli.md`, `python docs/manual.py man > docs/qmd.1`."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from qmd.cli.commands import COMMANDS, usage_of
from qmd.cli.help import CommandPage, Row, describe
from qmd.cli.parser import build_command
from qmd.cli.topics import EXIT_CODES

_INTRODUCTION = """\
# Command line

Results go to stdout; warnings, progress and errors to stderr. Options may appear before or after the words, `--` ends
them, and `-n5` means `-n 5`. Every command takes `--help`.

| exit status | meaning |
|---|---|
{statuses}

On a terminal, control characters in documents, names and messages are spelled out (`\\x1b`, `\\x07`, `\\u009b`), and so
are the marks that reorder a line of text (`\\u202e`): nothing that was indexed can set the clipboard, disguise a link
or clear the screen. Tabs and line breaks stay. Rows and messages are so through a pipe as well, and addresses with such
characters are percent-encoded, as `get` reads them; `--json` and `get --no-line-numbers` keep every byte. `NO_COLOR`
turns colours and links off.

At Tab a shell completes commands, options, collections, documents, docids and names once it has read the script of
`qmd completion`: `source <(qmd completion bash)` in `~/.bashrc`, `source <(qmd completion zsh)` in `~/.zshrc` after
`compinit`, `qmd completion fish > ~/.config/fish/completions/qmd.fish`, and in PowerShell's profile
`qmd completion powershell | Out-String | Invoke-Expression`.
"""


def render_manual() -> str:
    """The whole reference; one section for each command, in the order of `qmd --help`."""
    introduction = _INTRODUCTION.format(statuses="\n".join(f"| {one} | {text} |" for one, text in EXIT_CODES.items()))
    return "\n".join([introduction, *(_section(page) for page in _pages())])


def _pages() -> list[CommandPage]:
    return [describe(build_command(spec.name)) for spec in COMMANDS]


def _section(page: CommandPage) -> str:
    lines = [f"## qmd {page.spec.name}", "", page.spec.help, "", "```", f"qmd {usage_of(page.spec)}", "```", ""]
    if page.aliases:
        lines += [f"Also: {', '.join(f'`qmd {alias}`' for alias in page.aliases)}.", ""]
    for head, rows in (("option", page.options), ("more options", page.more)):
        if rows:
            lines += [f"| {head} | meaning |", "|---|---|", *(_row(one) for one in rows), ""]
    return "\n".join([*lines, "```sh", *page.examples, "```", ""])


def _row(option: Row) -> str:
    shown = ", ".join(f"`{name}`" for name in option.names)
    text = option.text.replace("|", "\\|")
    return f"| {shown}{f' *{option.value}*' if option.value else ''} | {text} |"


# --- the man page ---------------------------------------------------------------------------------

_ABOUT = """\
qmd searches your own notes on this machine: by words, by meaning, or both with the best results reranked.
Make a folder searchable with "qmd index ~/notes" and ask with "qmd query".
Results go to stdout; warnings, progress and errors to stderr.
Options may appear before or after the words, "--" ends them, and "-n5" means "-n 5".
Every command takes --index NAME (a separate index), --color auto|always|never, --no-pager, --quiet (only results and errors) and --help.
"""

_FILES = {
    "~/.config/qmd/index.yml": "collections, contexts and settings",
    "~/.cache/qmd/index.sqlite": "the index",
    "~/.cache/qmd/models": "downloaded models",
    ".qmd": "an index of its own for the folder that holds it",
}


def render_man_page() -> str:
    """`qmd.1`, in the macros that every man program knows."""
    lines = [".TH QMD 1", ".SH NAME", r"qmd \- search your own notes", ".SH SYNOPSIS", ".B qmd"]
    lines += [r"\fIcommand\fR [\fIoptions\fR]", ".SH DESCRIPTION", *map(_roff, _ABOUT.splitlines()), ".SH COMMANDS"]
    for page in _pages():
        lines += [
            f".SS qmd {_roff(page.spec.name)}",
            _roff(page.spec.help),
            ".PP",
            f".B qmd {_roff(usage_of(page.spec))}",
        ]
        for head, rows in (("", (*page.arguments, *page.options)), ("More options:", page.more)):
            lines += [".PP", head] if head and rows else []
            for one in rows:
                lines += [".TP", f".B {_roff(one.spelling)}", _roff(one.text)]
        lines += [".PP", "Examples:", ".PP", ".nf", *(f".RS 4\n{_roff(one)}\n.RE" for one in page.examples), ".fi"]
    for title, entries in (("EXIT STATUS", EXIT_CODES), ("FILES", _FILES)):
        lines += [f".SH {title}"]
        for name, meaning in entries.items():
            lines += [".TP", f".B {_roff(name)}", _roff(meaning)]
    return "\n".join([*lines, ""])


def _roff(text: str) -> str:
    """`text` as it is: no character of it is a request, an escape or a typographic dash or quote."""
    for character, name in (
        ("\\", r"\e"),
        ("-", r"\-"),
        ("'", r"\(aq"),
        ("`", r"\(ga"),
        ("~", r"\(ti"),
        ("^", r"\(ha"),
    ):
        text = text.replace(character, name)
    return rf"\&{text}" if text.startswith(".") else text.replace("…", "...")


if __name__ == "__main__":
    assert isinstance(sys.stdout, TextIOWrapper)
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(render_man_page() if sys.argv[1:] == ["man"] else render_manual())
