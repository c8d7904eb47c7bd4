"""`skill` and `skills`: the instructions for agents that ship with qmd."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Annotated

from msgspec import Struct
from typer import Argument, Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Json
from qmd.cli.output import out, say
from qmd.errors import EXIT_FAILURE, EXIT_OK, NotFoundError, QmdError, UsageError

_BOOTSTRAP = """---
name: qmd
description: {description}
allowed-tools: Bash(qmd:*)
---

# qmd

!`qmd skill show`

If no instructions precede this line, run `qmd skill show` and follow its output: it fits the installed version.
"""
_EXTRA_FOLDERS = ("references", "templates", "scripts")
_FIELD = re.compile(r"^(\w+):[ \t]*(.*(?:\n[ \t]+.*)*)", re.MULTILINE)

All = Annotated[bool, Option("--all", help="Every skill.")]
Full = Annotated[bool, Option("--full", help="With the files it refers to.")]
Names = Annotated[list[str] | None, Argument(help="Names of skills.")]


class Skill(Struct, frozen=True):
    """Folder with a SKILL.md."""

    name: str
    description: str
    folder: Path

    def text(self) -> str:
        """Return the instructions."""
        return (self.folder / "SKILL.md").read_text(encoding="utf-8")

    def files(self) -> dict[str, str]:
        """Return relative path → text of the files that the instructions refer to."""
        found = (path for name in _EXTRA_FOLDERS for path in sorted((self.folder / name).rglob("*")) if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_text(encoding="utf-8") for path in found}


def find_skills(invocation: Invocation) -> list[Skill]:
    """Return the skills by name: those of `QMD_SKILLS_DIR` if it is set, else the ones that ship."""
    root = Path(invocation.environ.get("QMD_SKILLS_DIR") or Path(__file__).parent)
    skills = []
    for file in sorted(root.glob("*/SKILL.md")):
        parts = file.read_text(encoding="utf-8").split("---\n", 2)
        fields = {key: " ".join(value.split()) for key, value in _FIELD.findall(parts[1] if len(parts) == 3 else "")}
        if fields.get("hidden", "").lower() != "true":
            skills.append(Skill(fields.get("name") or file.parent.name, fields.get("description", ""), file.parent))
    return sorted(skills, key=lambda skill: skill.name.casefold())


def show(invocation: Invocation) -> int:
    """Print the qmd skill."""
    out(f"QMD Skill\n\n{_named(find_skills(invocation), 'qmd').text()}")
    return EXIT_OK


def install(
    invocation: Invocation,
    everywhere: Annotated[bool, Option("--global", help="For all projects, in the home folder.")] = False,
    yes: Annotated[bool, Option("--yes", help="Also link it for Claude, without asking.")] = False,
    force: Annotated[bool, Option("-f", "--force", help="Replace an existing skill.")] = False,
) -> int:
    """Install the skill where agents look for it."""
    skill = _named(find_skills(invocation), "qmd")
    base = Path(invocation.environ.get("HOME") or Path.home()) if everywhere else invocation.cwd
    target = base / ".agents" / "skills" / "qmd"
    if target.exists():
        if not force:
            raise QmdError(f"Skill already exists: {target} (use --force to replace it)")
        shutil.rmtree(target)
    shutil.copytree(skill.folder, target, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "SKILL.md").write_text(_BOOTSTRAP.format(description=skill.description), encoding="utf-8")
    out(f"✓ Installed QMD skill to {target}\n")
    _link_for_claude(base, target, yes)
    return EXIT_OK


def _link_for_claude(base: Path, target: Path, yes: bool) -> None:
    link = base / ".claude" / "skills" / "qmd"
    if link.exists() and link.resolve() == target.resolve():
        out(f"✓ Claude already sees the skill via {link}\n")
    elif not yes or link.exists() or link.is_symlink():
        say(f"Tip: create a Claude symlink manually at {link}")
    else:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent), target_is_directory=True)
        out(f"✓ Linked {link}\n")


def list_skills(invocation: Invocation, as_json: Json = False) -> int:
    """List the skills."""
    skills = find_skills(invocation)
    if as_json:
        return _json([{"name": skill.name, "description": skill.description} for skill in skills])
    width = max((len(skill.name) for skill in skills), default=0)
    out("".join(f"  {skill.name:<{width}}  {skill.description}\n" for skill in skills))
    return EXIT_OK


def get(
    invocation: Invocation, names: Names = None, full: Full = False, every: All = False, as_json: Json = False
) -> int:
    """Print skills."""
    skills = find_skills(invocation)
    try:
        if not names and not every:
            raise UsageError("No skill name provided. Usage: qmd skills get <name>")
        chosen = skills if every else [_named(skills, name) for name in names or ()]
    except QmdError as exc:
        return _failed(exc, as_json)
    if as_json:
        rows: list[dict[str, object]] = []
        for skill in chosen:
            row: dict[str, object] = {"name": skill.name, "content": skill.text()}
            if full:
                row["files"] = [{"path": path, "content": text} for path, text in skill.files().items()]
            rows.append(row)
        return _json(rows)
    for skill in chosen:
        out(skill.text())
        if full:
            out("".join(f"\n--- {path} ---\n\n{text}" for path, text in skill.files().items()))
    return EXIT_OK


def path(invocation: Invocation, names: Names = None, as_json: Json = False) -> int:
    """Print the folders of skills."""
    skills = find_skills(invocation)
    try:
        chosen = [_named(skills, name) for name in names] if names else skills
    except QmdError as exc:
        return _failed(exc, as_json)
    if as_json:
        return _json([{"name": skill.name, "path": str(skill.folder)} for skill in chosen])
    out("".join(f"{skill.folder}\n" for skill in chosen))
    return EXIT_OK


def _named(skills: list[Skill], name: str) -> Skill:
    for skill in skills:
        if skill.name == name:
            return skill
    raise NotFoundError(f"Skill not found: {name}", "see: qmd skills list")


def _json(value: object) -> int:
    out(json.dumps({"success": True, "data": value}, ensure_ascii=False, separators=(",", ":")) + "\n")
    return EXIT_OK


def _failed(error: QmdError, as_json: bool) -> int:
    """Report a failure; in JSON mode, on stdout as an answer."""
    if not as_json:
        raise error
    out(json.dumps({"success": False, "error": error.message}, ensure_ascii=False, separators=(",", ":")) + "\n")
    return EXIT_FAILURE
