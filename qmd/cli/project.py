"""`init` and `trust`: indexes of projects."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Argument

from qmd.cli.invocation import Invocation, describe_gated
from qmd.cli.options import Index
from qmd.cli.output import out, say
from qmd.config.paths import locate
from qmd.config.project import read_trust, refuse_links
from qmd.config.settings import load_config
from qmd.errors import QmdError
from qmd.files import PROJECT_FOLDER, write_atomically

_TEMPLATE = """\
# The index of this project; paths are relative to the project. To add a folder: qmd index FOLDER
#
# collections:
#   notes:
#     path: notes
#     pattern: "**/*.{md,txt}"
#     ignore: ["drafts/**"]
# models:
#   embed: auto
collections: {}
"""


def init(invocation: Invocation) -> int:
    from qmd.config.edits import locked_config_file
    from qmd.store.opening import open_writer

    folder = invocation.cwd / PROJECT_FOLDER
    if invocation.cwd.resolve() == invocation.locate(None).home.resolve():
        raise QmdError(
            "Refusing to initialize a local index in $HOME. Every folder below would use it.",
            "change to the folder of a project first",
        )
    refuse_links(folder, invocation.environ)
    with locked_config_file(folder / "index.yml"):
        if not any((folder / name).exists() for name in ("index.yml", "index.yaml")):
            write_atomically(folder / "index.yml", _TEMPLATE)
    open_writer(locate(None, invocation.cwd, invocation.environ).database).close()
    created = (
        f"Created an index for this folder: {PROJECT_FOLDER}"
        if invocation.screen
        else "ready to go with new local index"
    )
    out(f"{created}\n")
    say("next: qmd index .")
    return 0


def trust(
    invocation: Invocation,
    action: Annotated[
        Literal["list", "revoke"] | None, Argument(metavar="[list|revoke]", help="Omitted: trust this project.")
    ] = None,
    index: Index = None,
) -> int:
    from qmd.config.trust import gated_items, project_link, record_trust, revoke_trust

    locations = invocation.locate(index, takes_link=True)
    if action == "list":
        lines: list[str] = []
        for path, record in read_trust(locations.config_dir).items():
            contexts = (line.partition(" ")[2] for line in str(record.get("contexts", "")).splitlines())
            lines += [f"{path} (trusted {record.get('trustedAt', '')})", *(f"  {line}" for line in contexts)]
        out("\n".join(lines or ["No trusted project configs."]) + "\n")
        return 0
    if action == "revoke":
        done = revoke_trust(locations)
        invocation.open(locations).mirror_configuration()
        out(f"✓ Revoked trust for {locations.config_file}\n" if done else f"{locations.config_file} was not trusted.\n")
        return 0
    items, link = gated_items(load_config(locations), locations), project_link(locations)
    if not (items or items.contexts or link):
        is_own = locations.project_root is None
        reason = "is your own and needs no trust" if is_own else "contains nothing that needs trust"
        out(f"{locations.config_file} {reason}.\n")
        return 0
    lines = [f"'{link[0]}' is a link to '{link[1]}'"] if link else []
    out("\n".join([*lines, *describe_gated(items)]) + "\n")
    record_trust(items, locations)
    invocation.open(locations).mirror_configuration()
    out(f"✓ Trusted {locations.config_file}\n")
    return 0
