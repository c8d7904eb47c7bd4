"""The distribution is called `qmd-search`; `qmd` on the package index is another project."""

import json
import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import qmd
from qmd.cli.app import main
from qmd.inference.models.builtin import PACKAGE
from qmd.installation import MODEL

ROOT = Path(__file__).parents[1]
_PLACES = ("qmd", "docs", "models", ".ci", "justfile", "pyproject.toml", *(file.name for file in ROOT.glob("*.md")))
_TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".txt", ".sh", ""}
_INSTALLERS = (
    r"pip3? install|pip3? download|uv tool (?:install|run|upgrade)|uv add|uvx|pipx \w+|poetry add|conda install"
)
_INSTALLS = re.compile(rf"\b(?:{_INSTALLERS})\b([^\n`|;&]*)")
_STRANGER = re.compile(r"(?<![\w./@-])qmd(?:\[[^\]]*\])?(?:[=<>~!][^\s'\"]*)?(?![\w./-])")
_UNHELD = re.compile(r"\b(?:install|download|add|inject|uvx|tool run)\b[^`|;&.,]{0,40}\bqmd-search\b")
_EXTRA = re.compile(r"(?<![\w-])qmd\[\w")


def _mistakes(text: str) -> list[str]:
    """Commands that would install the other project, and its name with one of our extras."""
    commands = [found[0] for found in _INSTALLS.finditer(text) if _STRANGER.search(found[1])]
    return commands + [found[0] for found in _EXTRA.finditer(text)]


def _files() -> Iterator[Path]:
    for place in _PLACES:
        path = ROOT / place
        candidates = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (
            file for file in candidates if file.is_file() and file.suffix in _TEXT and file.stat().st_size < 10**6
        )


def test_no_file_recommends_the_project_of_another_author() -> None:
    found = {str(file.relative_to(ROOT)): _mistakes(file.read_text("utf-8", "replace")) for file in _files()}
    assert len(found) > 150
    assert {file: mistakes for file, mistakes in found.items() if mistakes} == {}


def test_no_file_recommends_an_unregistered_name() -> None:
    """Anyone could register the name first; `install_command` uses the source of this program."""
    found = {str(file.relative_to(ROOT)): _UNHELD.findall(file.read_text("utf-8", "replace")) for file in _files()}
    assert {file: commands for file, commands in found.items() if commands} == {}
    assert _UNHELD.search("`pip install 'qmd-search[code]'`") and not _UNHELD.search("pipx uninstall qmd-search")


@pytest.mark.parametrize(
    ("text", "is_mistake"),
    [
        ("pip install qmd", True),
        ("pip install 'qmd[code]'", True),
        ("pip install -U qmd==0.1.2", True),
        ("uv tool install qmd", True),
        ("pipx install qmd", True),
        ("run uvx qmd search", True),
        ("the extra `qmd[browse]`", True),
        ("pip install qmd-search", False),
        ("pip install 'qmd-search[code]'", False),
        ("pip install . && .venv/bin/qmd index docs", False),
        ("uv tool install . installs it", False),
        ("`pip install .` puts `qmd` there", False),
    ],
)
def test_a_command_that_names_the_other_project_is_seen(text: str, is_mistake: bool) -> None:
    assert bool(_mistakes(text)) == is_mistake


def test_the_installed_distribution_is_ours_and_brings_the_command() -> None:
    assert metadata.version("qmd-search") == qmd.__version__
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("qmd")
    scripts = [one for one in metadata.distribution("qmd-search").entry_points if one.group == "console_scripts"]
    # `uvx qmd-search` runs the command with the name of the distribution.
    assert {one.name: one.value for one in scripts} == dict.fromkeys(("qmd", "qmd-search"), "qmd.__main__:run")


def test_the_wheel_of_the_program_contains_one_model_and_the_other_has_a_project_of_its_own() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert (wheel["packages"], [*wheel["force-include"]]) == (["qmd"], ["models/all-minilm-l6-v2"])
    licences = {file.parent.name for one in project["project"]["license-files"] for file in ROOT.glob(one)}
    assert licences == {ROOT.name, "all-minilm-l6-v2"}
    other = tomllib.loads((ROOT / f"models/{MODEL}/pyproject.toml").read_text("utf-8"))
    assert other["project"]["name"] == PACKAGE
    # Nobody has registered the name, so no extra may ask an index for it.
    assert PACKAGE not in str(project["project"])


MANIFESTS = (".claude-plugin/marketplace.json", *(f"docs/agents/{name}" for name in (
    "claude/.claude-plugin/plugin.json", "gemini/qmd/gemini-extension.json", "server.json")))  # fmt: skip


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_manifest_has_the_version_of_the_program(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert set(re.findall(r'"version": "([^"]+)"', text)) == {qmd.__version__}
    json.loads(text)


def test_the_registry_the_readme_and_the_package_name_one_owner() -> None:
    server = json.loads((ROOT / "docs/agents/server.json").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    namespace, _, name = server["name"].partition("/")
    address = f"https://github.com/{namespace.removeprefix('io.github.')}/{name}"
    assert f"mcp-name: {server['name']} " in (ROOT / "README.md").read_text("utf-8")
    assert address == server["repository"]["url"] == project["urls"]["Repository"]
    assert [package["identifier"] for package in server["packages"]] == [project["name"]] == [name]
    assert len(server["description"]) <= 100


def test_the_plugin_brings_the_skill_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["skill", "install"]) == 0, capsys.readouterr()
    installed = (tmp_path / ".agents/skills/qmd/SKILL.md").read_text("utf-8")
    assert (ROOT / "docs/agents/claude/skills/qmd/SKILL.md").read_text("utf-8") == installed


def test_workflows_run_pinned_actions_and_only_publishing_may_identify_itself() -> None:
    texts = {file.name: file.read_text("utf-8") for file in sorted((ROOT / ".github/workflows").glob("*.yml"))}
    for text in texts.values():
        used = re.findall(r"uses: (\S+)", text)
        assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in used)
        assert "secrets." not in text
    build, publish = texts["release.yml"].split("\n  publish:\n")
    assert ("id-token" in texts["tests.yml"] + build, "id-token: write" in publish) == (False, True)
    assert "QMD_DISTRIBUTION=qmd-search-cpu python -m build --wheel" in build
    assert ("name: pypi\n" in publish, "checkout" in publish) == (True, False)
