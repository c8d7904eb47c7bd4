"""What every command starts from: environment, places, configuration, the index, and the trust gate."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.config.paths import Locations, locate
from qmd.config.settings import Config, config_digest, load_config
from qmd.errors import UsageError
from qmd.quick_dataclasses import dataclass
from qmd.workspace import opening

if TYPE_CHECKING:
    from qmd.config.trust import GatedItems
    from qmd.store import IndexReader, IndexWriter


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the program: which command, and the world it runs in."""

    command: str
    usage: str
    environ: Mapping[str, str]
    cwd: Path

    def locate(self, index: str | None) -> Locations:
        """The places of the index that `--index` names."""
        return locate(index, self.cwd, self.environ)

    def missing_argument(self) -> UsageError:
        """What to raise when a required word is absent: the usage line stands for itself."""
        return UsageError(f"Usage: qmd {self.usage}")

    @property
    def is_interactive(self) -> bool:
        """Whether a person can answer a question."""
        return sys.stdin.isatty() and sys.stdout.isatty()

    @property
    def has_colour(self) -> bool:
        """Whether stdout is a terminal that may be sent colours and links."""
        return sys.stdout.isatty() and not self.environ.get("NO_COLOR")


def out(text: str) -> None:
    """Write a piece of the result."""
    sys.stdout.write(text)


def say(text: str) -> None:
    """Write a line for people to stderr."""
    print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Write a warning line to stderr."""
    say(f"warning: {text}")


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
    if session.is_interactive:
        sys.stderr.write("Trust this project's .qmd config? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            record_trust(items, locations)
            return config
    for name, path in items.paths:
        warn(f"Skipping collection '{name}' — path {path} is outside this project and this .qmd config is not trusted.")
    if items.hooks or items.models:
        warn("update commands and custom models of this project are not used; to allow them run: qmd trust")
    return trusted_part(config, locations, session.environ)


def describe_gated(items: GatedItems) -> list[str]:
    """The gated items as lines under their headings."""
    lines: list[str] = []
    headings = (
        ("This project's config defines update commands:", items.hooks),
        ("Collection paths outside this project:", items.paths),
        ("Custom models:", items.models),
    )
    for heading, entries in headings:
        if entries:
            lines += [heading, *(f"  {name}: {value}" for name, value in entries)]
    return lines
