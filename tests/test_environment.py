import json
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from qmd.environment import install_command, is_off, is_on, usable_cpus

ROOT = Path(__file__).parents[1]
RECEIPT = """[tool]
requirements = [{ name = "qmd-search", extras = ["code"], directory = "/src" }, { name = "rich", extras = ["jupyter"] }]
"""


@pytest.mark.parametrize("word", ["0", "off", "No", " FALSE ", "none", "never", "disable", "disabled"])
def test_every_off_word_switches_off_whichever_variable_holds_it(word: str) -> None:
    assert is_off(word)
    assert not is_on(word)


@pytest.mark.parametrize("word", ["1", "on", "yes", "auto", "anything"])
def test_any_other_word_switches_on(word: str) -> None:
    assert is_on(word)
    assert not is_off(word)


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_variable_that_is_not_set_switches_nothing(value: str | None) -> None:
    assert not is_on(value)
    assert not is_off(value)


def test_there_is_a_cpu_to_use() -> None:
    assert usable_cpus() >= 1


def installed(
    monkeypatch: pytest.MonkeyPatch, folder: Path, origin: dict[str, Any] | None, installer: str = "pip"
) -> Path:
    """The environment in which the program was installed from `origin`; None for an index of packages."""
    noted = folder / "qmd_search-9.dist-info"
    noted.mkdir(parents=True)
    (noted / "METADATA").write_text("Metadata-Version: 2.1\nName: qmd-search\nVersion: 9\n")
    (noted / "INSTALLER").write_text(f"{installer}\n")
    if origin is not None:
        (noted / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.mark.parametrize(
    ("origin", "installer", "command"),
    [
        (None, "pip", "pip install 'qmd-search[code]'"),
        (None, "uv", "uv pip install 'qmd-search[code]'"),
        ({"url": "file:///src/qmd", "dir_info": {}}, "pip", "pip install '/src/qmd[code]'"),
        (
            {"url": "file:///my%20src/%C3%BC%27s", "dir_info": {"editable": True}},
            "uv",
            "uv pip install -e " + shlex.quote("/my src/ü's[code]"),
        ),
        ({"url": "file:///w/qmd-9.whl", "archive_info": {}}, "pip", "pip install '/w/qmd-9.whl[code]'"),
        ({"url": "https://e.org/qmd-9.whl"}, "pip", "pip install 'qmd-search[code] @ https://e.org/qmd-9.whl'"),
        (
            {"url": "https://e.org/qmd.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip",
            "pip install 'qmd-search[code] @ git+https://e.org/qmd.git@abc'",
        ),
        (
            {"url": "file:///src/qmd", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip",
            "pip install 'qmd-search[code] @ git+file:///src/qmd@abc'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_the_program_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, installer: str, command: str
) -> None:
    folder = installed(monkeypatch, tmp_path, origin, installer)
    assert install_command("code", folder, "linux") == command


def test_in_an_environment_of_uv_the_tool_is_installed_with_its_other_extras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = installed(monkeypatch, tmp_path, {"url": "file:///src", "dir_info": {}}, "uv")
    (folder / "uv-receipt.toml").write_text(RECEIPT)
    assert install_command("browse", folder, "linux") == "uv tool install '/src[browse,code]'"


def test_in_an_environment_of_pipx_its_own_pip_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = installed(monkeypatch, tmp_path / "qmd-search", {"url": "file:///src", "dir_info": {}})
    (folder / "pipx_metadata.json").write_text("{}")
    assert install_command("browse", folder, "linux") == "pipx runpip qmd-search install '/src[browse]'"


def test_on_windows_quotes_are_those_of_its_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = installed(monkeypatch, tmp_path, None)
    assert install_command("browse", folder, "win32") == 'pip install "qmd-search[browse]"'


def test_a_program_that_was_never_installed_names_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(ROOT)])
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.distribution("qmd-search")
    assert install_command("browse", Path("/nowhere"), "linux") == f"pip install {shlex.quote(f'{ROOT}[browse]')}"
