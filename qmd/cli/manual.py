"""The command reference in markdown: `python -m qmd.cli.manual > docs/cli.md`."""

from __future__ import annotations

from typing import Any

from qmd.cli.commands import ALIASES, COMMANDS, CommandSpec, build_command
from qmd.cli.output import flush_result, out, prepare_streams

_INTRODUCTION = """\
# Command line

Results go to stdout; warnings, progress and errors to stderr. Options may appear before or after the words, `--` ends
them, and `-n5` means `-n 5`. Every command takes `--help`.

| exit status | meaning |
|---|---|
| 0 | done; an empty result is not a failure |
| 1 | failure |
| 2 | wrong usage |
| 3 | no such index, collection or document |
| 4 | model or runtime unavailable |
| 5 | another process holds the index |
| 130 | interrupted; the work done so far is kept |

On a terminal, control characters in documents, names and messages are spelled out (`\\x1b`, `\\x07`, `\\u009b`), and so
are the marks that reorder a line of text (`\\u202e`): nothing that was indexed can set the clipboard, disguise a link
or clear the screen. Tabs and line breaks stay. Through a pipe or into a file every byte goes as it is. `NO_COLOR` turns
colours and links off.

At Tab a shell completes commands, options, collections, documents, docids and names once it has read the script of
`qmd completion`: `source <(qmd completion bash)` in `~/.bashrc`, `source <(qmd completion zsh)` in `~/.zshrc` after
`compinit`, `qmd completion fish > ~/.config/fish/completions/qmd.fish`, and in PowerShell's profile
`qmd completion powershell | Out-String | Invoke-Expression`.
"""


def render_manual() -> str:
    """The whole reference; one section for each command, in the order of `qmd --help`."""
    return "\n".join([_INTRODUCTION, *(_section(spec) for spec in COMMANDS)])


def _section(spec: CommandSpec) -> str:
    lines = [f"## qmd {spec.name}", "", spec.help, "", "```", f"qmd {spec.usage}", "```", ""]
    aliases = sorted(alias for alias, name in ALIASES.items() if name == spec.name)
    if aliases:
        lines += [f"Also: {', '.join(f'`qmd {alias}`' for alias in aliases)}.", ""]
    rows = [_row(one) for one in build_command(spec).params if one.param_type_name == "option" and not one.hidden]
    if rows:
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(option: Any) -> str:
    # Double dashes before one letter are accepted for old scripts and need no mention.
    spellings = [name for name in (*option.opts, *option.secondary_opts) if not (len(name) == 3 and name[:2] == "--")]
    shown = ", ".join(f"`{name}`" for name in spellings)
    value = "" if option.is_flag or not option.metavar else f" *{option.metavar}*"
    text = (option.help or "").replace("|", "\\|")
    return f"| {shown}{value} | {text} |"


if __name__ == "__main__":
    prepare_streams()
    out(render_manual())
    flush_result()
