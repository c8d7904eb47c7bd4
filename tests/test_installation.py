"""Commands that change the installation, and packages that overwrite each other."""

import json
import re
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.request import url2pathname

import pytest

import qmd
from qmd.cli.app import main
from qmd.distributions import overwritten
from qmd.installation import MODEL, install_command

ROOT = Path(__file__).parents[1]
RECEIPT = """[tool]
requirements = [{ name = "qmd-search", extras = ["code"], directory = "/src" }, { name = "rich", extras = ["jupyter"] }]
"""


def installed(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    origin: dict[str, Any] | None,
    installer: str = "pip",
    name: str = "qmd-search",
    runtime: str = "onnxruntime-gpu",
) -> Path:
    """Simulate the environment of an installation from `origin`; None for a package index."""
    noted = folder / f"{name.replace('-', '_')}-9.dist-info"
    noted.mkdir(parents=True)
    (noted / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9\nRequires-Dist: {runtime}>=1\n")
    (noted / "INSTALLER").write_text(f"{installer}\n")
    if origin is not None:
        (noted / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr("sys.path", [str(folder)])
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


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": ROOT.as_uri(), "dir_info": {}}, f"pip install {ROOT}/models/multilingual"),
        ({"url": "file:///no/such/clone", "dir_info": {}}, "pip install ./models/multilingual"),
        ({"url": "file:///w/qmd-9.whl", "archive_info": {}}, "pip install ./models/multilingual"),
        (None, "pip install ./models/multilingual"),
        (
            {"url": "https://e.org/qmd.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'git+https://e.org/qmd.git@abc#subdirectory=models/multilingual'",
        ),
    ],
)
def test_the_multilingual_model_is_installed_from_where_the_program_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, command: str
) -> None:
    assert install_command(MODEL, installed(monkeypatch, tmp_path, origin), "linux") == command
    (tmp_path / "uv-receipt.toml").write_text(RECEIPT)
    tool = install_command(MODEL, tmp_path, "linux")
    assert re.match(r"uv tool install '[^']*\[code\][^']*' --with ", tool) and tool.split()[-1] == command.split()[-1]


@pytest.mark.parametrize(
    ("name", "origin", "platform", "command"),
    [
        ("qmd-search", {"url": "file:///src", "dir_info": {}}, "linux", "QMD_RUNTIME=cpu pip install '/src[code]'"),
        ("qmd-search", {"url": "file:///src"}, "win32", '$env:QMD_RUNTIME="cpu"; pip install "/src[code]"'),
        ("qmd-search-cpu", None, "linux", "pip install 'qmd-search-cpu[code]'"),
        ("qmd-search-cpu", {"url": "file:///w/a.whl"}, "linux", "pip install '/w/a.whl[code]'"),
    ],
)
def test_an_extra_does_not_bring_the_runtime_back_that_was_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    origin: dict[str, Any] | None,
    platform: str,
    command: str,
) -> None:
    folder = installed(monkeypatch, tmp_path, origin, name=name, runtime="onnxruntime")
    assert install_command("code", folder, platform) == command.replace("/src", url2pathname("/src"))


GONE = "qmd-search onnxruntime-gpu fastembed-gpu"


@pytest.mark.parametrize(
    ("origin", "installer", "platform", "command"),
    [
        (
            {"url": "file:///src", "dir_info": {"editable": True}},
            "uv",
            "linux",
            f"uv pip uninstall -y {GONE} && QMD_RUNTIME=cpu uv pip install -e /src",
        ),
        (
            {"url": "https://e.org/q.git", "vcs_info": {"vcs": "git", "commit_id": "a"}},
            "pip",
            "linux",
            f"pip uninstall -y {GONE} && QMD_RUNTIME=cpu pip install 'qmd-search @ git+https://e.org/q.git@a'",
        ),
        (
            {"url": "file:///w/qmd_search-9-py3-none-any.whl"},
            "pip",
            "linux",
            f"pip uninstall -y {GONE} && pip install /w/qmd_search_cpu-9-py3-none-any.whl",
        ),
        (None, "pip", "win32", f'pip uninstall -y {GONE}; pip install "qmd-search-cpu"'),
    ],
)
def test_the_build_for_the_cpu_takes_the_place_of_this_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    origin: dict[str, Any] | None,
    installer: str,
    platform: str,
    command: str,
) -> None:
    folder = installed(monkeypatch, tmp_path, origin, installer)
    assert install_command(None, folder, platform) == command


def test_a_tool_is_reinstalled_for_the_cpu_with_the_extras_that_need_no_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = installed(monkeypatch, tmp_path, {"url": "file:///src", "dir_info": {}}, "uv")
    (folder / "uv-receipt.toml").write_text(RECEIPT.replace('["code"]', '["code", "cuda", "cuda12"]'))
    anew = "uv tool uninstall qmd-search && QMD_RUNTIME=cpu uv tool install '/src[code]'"
    assert install_command(None, folder, "linux") == anew


def test_the_libraries_of_another_cuda_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = installed(monkeypatch, tmp_path, {"url": "file:///src", "dir_info": {}}, "uv")
    (folder / "uv-receipt.toml").write_text(RECEIPT.replace('["code"]', '["code", "cuda", "cuda12"]'))
    assert install_command("cuda12", folder, "linux") == "uv tool install '/src[code,cuda12]'"


def test_what_writes_the_same_folder_is_named_in_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path), "/nowhere"])
    for name in ("qmd_search-9", "qmd_search_cpu_more-9", "onnxruntime-9", "onnxruntime_gpu-9"):
        (tmp_path / f"{name}.dist-info").mkdir()
    assert overwritten() == ["onnxruntime-gpu", "onnxruntime"]
    (tmp_path / "qmd_search_cpu-9.dist-info").mkdir()
    assert main(["--version"]) == 0
    said = capsys.readouterr()
    assert said.out == f"qmd {qmd.__version__}\n"
    assert "qmd-search and qmd-search-cpu are both installed and overwrite each other's files" in said.err
    (tmp_path / "qmd_search_cpu-9.dist-info").rmdir()
    (tmp_path / "onnxruntime-9.dist-info").rmdir()
    assert (main(["--version"]), capsys.readouterr().err) == (0, "")


def test_on_windows_quotes_are_those_of_its_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = installed(monkeypatch, tmp_path, None)
    assert install_command("browse", folder, "win32") == 'pip install "qmd-search[browse]"'


def test_a_program_that_was_never_installed_names_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(ROOT)])
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.distribution("qmd-search")
    assert install_command("browse", Path("/nowhere"), "linux") == f"pip install {shlex.quote(f'{ROOT}[browse]')}"
