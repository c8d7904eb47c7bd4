"""What every command starts from: environment, places, configuration, the index, and the trust gate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.cli.output import ask, is_interactive, stdout_is_terminal
from qmd.cli.output import out as out
from qmd.cli.output import say as say
from qmd.cli.output import warn as warn
from qmd.config.paths import Locations, locate
from qmd.config.settings import Config, config_digest, load_config
from qmd.errors import QmdError, UsageError
from qmd.quick_dataclasses import dataclass
from qmd.workspace import opening

if TYPE_CHECKING:
    from qmd.config.trust import GatedItems
    from qmd.store import IndexReader, IndexWriter

_LONGEST_NAME = 220
"""Bytes of an index's name: file systems hold 255, and locks and temporary files are named after it."""


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the program: which command, and the world it runs in."""

    command: str
    usage: str
    environ: Mapping[str, str]
    cwd: Path

    def locate(self, index: str | None) -> Locations:
        """The places of the index that `--index` names.

        Raises:
            UsageError: No file can have that name.
        """
        locations = locate(index, self.cwd, self.environ)
        if len(os.fsencode(locations.index_name)) > _LONGEST_NAME:
            raise UsageError(f"--index '{index}' is too long for the name of a file", "choose a shorter one")
        return locations

    def missing_argument(self) -> UsageError:
        """What to raise when a required word is absent: the usage line stands for itself."""
        return UsageError(f"Usage: qmd {self.usage}")

    @property
    def is_interactive(self) -> bool:
        """Whether a person can answer a question."""
        return is_interactive()

    @property
    def has_colour(self) -> bool:
        """Whether stdout is a terminal that may be sent colours and links."""
        return stdout_is_terminal() and not self.environ.get("NO_COLOR") and self.environ.get("TERM") != "dumb"


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


def open_current_reader(locations: Locations) -> IndexReader:
    """The index, with its copy of the configuration made equal to the file if that was edited since.

    Raises:
        NotFoundError: There is no index yet.
        StoreError: The index is damaged or foreign.
    """
    return opening.open_current_reader(locations, os.environ, warn)


def open_current_writer(locations: Locations, config: Config) -> IndexWriter:
    """The index for writing, holding exactly the collections of `config`; made when missing.

    Where another program has the place, the index lies beside its file.
    """
    return opening.open_current_writer(locations, config, os.environ, say)


def current_config(locations: Locations) -> Config:
    """The configuration file, or where there is none the copy that an index of that place holds."""
    if locations.config_file.exists() or not locations.database.exists():
        return load_config(locations)
    from qmd.store import open_reader

    with open_reader(locations.database) as reader:
        return Config(tuple(reader.collections()), reader.global_context(), digest=config_digest(locations))


def apply_trust(session: Session, locations: Locations, config: Config) -> Config:
    """`config` as far as it is trusted: a project's own file may not run commands, leave it, or choose models.

    On a terminal the user is asked; elsewhere the gated items are left out with a warning.
    """
    from qmd.config.trust import gated_items, is_trusted, record_trust, trusted_part

    items = gated_items(config, locations)
    if is_trusted(items, locations, session.environ):
        return config
    for line in describe_gated(items):
        say(line)
    if session.is_interactive and ask("Trust this project's .qmd config? [y/N] ").strip().lower() in ("y", "yes"):
        record_trust(items, locations)
        return config
    for name, path in items.paths:
        warn(f"Skipping collection '{name}' — path {path} is outside this project and this .qmd config is not trusted.")
    if items.hooks or items.models or items.links:
        warn("update commands, custom models and links of this project are not used; to allow them run: qmd trust")
    return trusted_part(config, locations, session.environ)


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
