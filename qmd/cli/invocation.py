"""What every command starts from: its arguments' world, and the index it works on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.app.notices import Notices
from qmd.cli.output import confirm, out, say, warn
from qmd.config.paths import Locations, locate
from qmd.errors import QmdError, UsageError
from qmd.render.drawing import Screen

if TYPE_CHECKING:
    from qmd.app.index import Index
    from qmd.cli.progress import ProgressLine
    from qmd.config.trust import GatedItems
    from qmd.render.progress import Unit

_LONGEST_NAME = 220
"""Bytes of an index's name: file systems hold 255, and locks and temporary files are named after it."""


class Invocation(Struct, frozen=True):
    """One run of the program: which command, and the world it runs in."""

    command: str
    usage: str
    environ: Mapping[str, str]
    cwd: Path
    screen: Screen | None = None
    """What a person sees stdout on; None where a program reads it."""
    no_pager: bool = False
    messages: Screen | None = None
    """What a person sees stderr on; None where a program reads it."""

    def progress(self, label: str, unit: Unit = "items") -> ProgressLine:
        """A line that shows how far a job is."""
        from qmd.cli.progress import ProgressLine

        return ProgressLine(label, self.messages, unit, can_rewrite=self.environ.get("TERM") != "dumb")

    def locate(self, index: str | None, *, takes_link: bool = False) -> Locations:
        """The places of the index that `--index` names; see `qmd.config.paths.locate`.

        Raises:
            ConfigError: Links keep a project's folder from being used.
            UsageError: No file can have that name, or the address is none that qmd knows.
        """
        locations = locate(index, self.cwd, self.environ, takes_link=takes_link)
        if len(os.fsencode(locations.stem)) > _LONGEST_NAME:
            raise UsageError(f"--index '{index}' is too long for the name of a file", "choose a shorter one")
        return locations

    def open(self, locations: Locations, *, allow_gpu: bool = True) -> Index:
        """The index at these places, which tells this terminal what it has to say; opened by its first use.

        A command that searches with models asks the warm process, where one may be asked.
        """
        from qmd.app.configuration import FileConfiguration
        from qmd.app.index import Index

        notices = TerminalNotices()
        configuration = FileConfiguration(locations, self.environ, notices, trusts_edits=True)
        if self.command in ("query", "vsearch", "browse", "pack") and allow_gpu:
            from qmd.plugins import hooks

            warm = hooks.warm_index(locations, configuration, self.environ, notices=notices)
            if warm is not None:
                return warm
        return Index(locations, configuration, self.environ, notices=notices, allow_gpu=allow_gpu)

    def serve(self, locations: Locations, *, allow_gpu: bool = True, is_attended: bool = False) -> Index:
        """The same for a process that stays: idle models go, requests end after a while.

        Args:
            locations: Where the index lies.
            allow_gpu: False keeps models on the CPU.
            is_attended: Whether a person may be asked for trust.
        """
        from qmd.app.configuration import FileConfiguration
        from qmd.app.deadlines import parse_timeout
        from qmd.app.index import Index

        notices = TerminalNotices() if is_attended else ServerNotices()
        return Index(
            locations,
            FileConfiguration(locations, self.environ, notices),
            self.environ,
            notices=notices,
            allow_gpu=allow_gpu,
            keeps_models=False,
            timeout_s=parse_timeout(self.environ),
        )

    def figure(self, number: int) -> str:
        """A number as a person reads it, or as programs always have."""
        return f"{number:,}" if self.screen else str(number)

    def page(self, text: str) -> None:
        """Write a result that may be longer than the screen; see `qmd.cli.pager`."""
        if self.screen is None or self.no_pager:
            out(text)
            return
        from qmd.cli.pager import page

        page(text, self.screen, self.environ)

    def missing_argument(self) -> UsageError:
        """What to raise when a required word is absent: the usage line stands for itself."""
        return UsageError(f"Usage: qmd {self.usage}")


class ServerNotices(Notices):
    """Tells stderr, and trusts nobody."""

    def warn(self, message: str) -> None:
        warn(message)

    def say(self, message: str) -> None:
        say(message)


class TerminalNotices(ServerNotices):
    """Tells stderr, and asks the person at the terminal, if there is one, for trust."""

    def grants_trust(self, items: GatedItems) -> bool:
        """Shows in any case what a project wants."""
        for line in describe_gated(items):
            say(line)
        return confirm("Trust this project's .qmd config?")


def working_folder() -> Path:
    """The working directory; where it was deleted the place it had, below which nothing is found.

    Raises:
        QmdError: It was deleted, and its place is not known.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as exc:
        place = Path(os.environ.get("PWD", ""))
        if not place.is_absolute():
            raise QmdError("the working directory does not exist any more", "go to another one: cd ~") from exc
        return place


def describe_gated(items: GatedItems) -> list[str]:
    """The gated items as lines under their headings."""
    lines: list[str] = []
    headings = (
        ("This project's config defines update commands:", items.hooks),
        ("Collection paths outside this project:", items.paths),
        ("Custom models:", items.models),
        ("Links of results:", items.links),
    )
    for heading, entries in headings:
        if entries:
            lines += [heading, *(f"  {name}: {value}" for name, value in entries)]
    return lines
