"""One run of a command: environment, terminal and index."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from msgspec import Struct

from qmd.app.notices import Notices
from qmd.cli.commands import find_spec, wrong_usage
from qmd.cli.output import confirm, out, say, warn
from qmd.config.paths import Locations, locate
from qmd.errors import QmdError, UsageError
from qmd.escapes import one_line, visible
from qmd.files import is_recent, renew_mark
from qmd.render.drawing import Screen
from qmd.render.terminal import join_styled

if TYPE_CHECKING:
    from qmd.app.index import Index
    from qmd.cli.progress import ProgressLine
    from qmd.config.trust import GatedItems
    from qmd.render.progress import Unit

_DAY_S = 86_400.0
_LONGEST_NAME = 220
"""Maximum bytes of an index's name: file systems allow 255, and locks and temporary files add to it."""


class Invocation(Struct, frozen=True):
    """One run of a command and its environment."""

    command: str
    environ: Mapping[str, str]
    cwd: Path
    screen: Screen | None = None
    """Terminal of stdout; None if a program reads it."""
    no_pager: bool = False
    messages: Screen | None = None
    """Terminal of stderr; None if a program reads it."""

    def progress(self, label: str, unit: Unit = "items") -> ProgressLine:
        """Return a progress line for a job."""
        from qmd.cli.progress import ProgressLine

        return ProgressLine(label, self.messages, unit, can_rewrite=self.environ.get("TERM") != "dumb")

    def locate(self, index: str | None, *, takes_link: bool = False) -> Locations:
        """Return the locations of the index that `--index` names; see `qmd.config.paths.locate`.

        Raises:
            ConfigError: A project's folder is reached through an untrusted link.
            UsageError: The name or address is not valid.
        """
        locations = locate(index, self.cwd, self.environ, takes_link=takes_link)
        if len(os.fsencode(locations.stem)) > _LONGEST_NAME:
            raise UsageError(f"--index '{index}' is too long for the name of a file", "choose a shorter one")
        return locations

    def open(self, locations: Locations, *, allow_gpu: bool = True) -> Index:
        """Return the index at these locations, which opens at its first use and reports to this terminal.

        Commands that search with models use the warm process if it is allowed.
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
        """Return the index for a server, which unloads idle models and limits the time of requests.

        Args:
            locations: Locations of the index.
            allow_gpu: False keeps models on the CPU.
            is_attended: Whether a person can answer a question about trust.
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

    def warn_each(self, locations: Locations, warnings: Iterable[str]) -> None:
        """Print warnings; on a terminal those about the index itself once a day, as plain lines."""
        from qmd.render.text import kind_of_notice

        for warning in warnings:
            kind = kind_of_notice(warning) if self.messages is not None else None
            if kind is None:
                warn(warning)
            elif not is_recent(mark := locations.cache / f"{locations.key}-{crc32(kind.encode()):08x}.shown", _DAY_S):
                renew_mark(mark)
                say(warning)

    def figure(self, number: int) -> str:
        """Format a number, with separators on a terminal only."""
        return f"{number:,}" if self.screen else str(number)

    def page(self, text: str) -> None:
        """Print a result that may be longer than the screen; see `qmd.cli.pager`."""
        if self.screen is None or self.no_pager:
            out(text)
            return
        from qmd.cli.pager import page

        page(text, self.screen, self.environ)

    def missing(self, argument: str) -> UsageError:
        """Return the error for a missing argument."""
        return wrong_usage(find_spec(self.command), f"no {argument} given")


class ServerNotices(Notices):
    """Notices on stderr, without trust in project configurations."""

    def warn(self, message: str) -> None:
        warn(message)

    def say(self, message: str) -> None:
        say(message)


class TerminalNotices(ServerNotices):
    """Notices on stderr, and questions on a terminal."""

    confirms = staticmethod(confirm)

    def grants_trust(self, items: GatedItems) -> bool:
        """Show the items, and ask."""
        say(join_styled(f"{line}\n" for line in describe_gated(items)))
        return confirm("Trust this project's .qmd config?")


def working_folder() -> Path:
    """Return the working directory; after its removal, its former path.

    Raises:
        QmdError: It was deleted, and its path is unknown.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as exc:
        place = Path(os.environ.get("PWD", ""))
        if not place.is_absolute():
            raise QmdError("the working directory no longer exists", "change to another one: cd ~") from exc
        return place


def describe_gated(items: GatedItems) -> list[str]:
    """Return the gated items as lines under headings."""
    lines: list[str] = []
    contexts = [(one_line(place, 80), one_line(text)) for place, text in items.contexts]
    headings = (
        ("This project's config defines update commands:", items.hooks),
        ("Collection paths outside this project:", items.paths),
        ("Custom models:", items.models),
        ("Links of results:", items.links),
        ("Contexts, which agents read (whole: qmd context list):", contexts),
    )
    for heading, entries in headings:
        if entries:
            # Nothing of a command may be hidden or shortened.
            lines += [heading, *(visible(f"  {name}: {value}").replace("\n", r"\x0a") for name, value in entries)]
    return lines
