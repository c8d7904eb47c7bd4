from pathlib import Path

import pytest

from qmd.config.paths import locate
from qmd.errors import UsageError

LINUX_ONLY = pytest.mark.skipif("sys.platform == 'win32'", reason="platformdirs decides on Windows")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@LINUX_ONLY
def test_without_variables_the_home_folder_holds_everything(home: Path, tmp_path: Path) -> None:
    places = locate(None, tmp_path, {"HOME": str(home)})
    assert places.config_file == home / ".config/qmd/index.yml"
    assert places.database == home / ".cache/qmd/index.sqlite"
    assert places.models == home / ".cache/qmd/models"


def test_xdg_variables_move_config_and_cache(home: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "c"), "XDG_CACHE_HOME": str(tmp_path / "k")}
    places = locate("notes", tmp_path, environ)
    assert places.config_file == tmp_path / "c/qmd/notes.yml"
    assert places.database == tmp_path / "k/qmd/notes.sqlite"


def test_qmd_config_dir_wins_over_xdg(home: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "c"), "QMD_CONFIG_DIR": str(tmp_path / "own")}
    assert locate(None, tmp_path, environ).config_file == tmp_path / "own/index.yml"


def test_index_path_overrides_the_database_of_named_indexes_too(home: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(home), "INDEX_PATH": str(tmp_path / "x.db")}
    assert locate("notes", tmp_path, environ).database == tmp_path / "x.db"


def test_an_index_name_with_slashes_becomes_one_file_name(home: Path, tmp_path: Path) -> None:
    places = locate("sub/notes", Path("/srv/project"), {"HOME": str(home)})
    assert places.config_file.name == "srv_project_sub_notes.yml"


def test_the_nearest_project_index_wins_and_keeps_its_database_next_to_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "p/.qmd").mkdir(parents=True)
    (tmp_path / "p/.qmd/index.yml").write_text("")
    deep = tmp_path / "p/a/b"
    deep.mkdir(parents=True)
    places = locate(None, deep, {"HOME": str(home), "INDEX_PATH": "/elsewhere.db"})
    assert places.project_root == tmp_path / "p"
    assert places.database == tmp_path / "p/.qmd/index.sqlite"
    assert places.base == tmp_path / "p"


def test_yaml_is_preferred_over_yml_in_a_project(home: Path, tmp_path: Path) -> None:
    (tmp_path / ".qmd").mkdir()
    (tmp_path / ".qmd/index.yml").write_text("")
    (tmp_path / ".qmd/index.yaml").write_text("")
    assert locate(None, tmp_path, {"HOME": str(home)}).config_file.name == "index.yaml"


def test_naming_an_index_skips_the_project_one(home: Path, tmp_path: Path) -> None:
    (tmp_path / ".qmd").mkdir()
    (tmp_path / ".qmd/index.yml").write_text("")
    assert locate("other", tmp_path, {"HOME": str(home)}).project_root is None


@LINUX_ONLY
@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("variables", [{}, {"XDG_CONFIG_HOME": "/x/config", "XDG_CACHE_HOME": "/x/cache"}])
def test_on_linux_and_macos_the_folders_are_those_that_platformdirs_knows_for_unix(
    platform: str, variables: dict[str, str], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules are two lines here, because importing platformdirs takes a twentieth of a search."""
    from platformdirs.unix import Unix

    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    environ = {"HOME": str(home), **variables}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    places, known = locate(None, tmp_path, environ), Unix("qmd", appauthor=False)
    assert places.config_dir == known.user_config_path
    assert places.cache == known.user_cache_path


@LINUX_ONLY
def test_on_windows_platformdirs_finds_the_folders(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs
    from platformdirs.windows import Windows

    monkeypatch.setenv("WIN_PD_OVERRIDE_LOCAL_APPDATA", "C:/Users/me/AppData/Local")
    monkeypatch.setattr(platformdirs, "PlatformDirs", Windows)
    monkeypatch.setattr("sys.platform", "win32")
    places = locate(None, tmp_path, {"HOME": str(home)})
    assert str(places.config_dir).replace("\\", "/") == "C:/Users/me/AppData/Local/qmd"
    assert str(places.models).replace("\\", "/") == "C:/Users/me/AppData/Local/qmd/models"
    moved = locate(None, tmp_path, {"HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "k")})
    assert moved.cache == tmp_path / "k/qmd"


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("lance:/srv/notes", "lance:/srv/notes"),
        ("lance:///srv/notes/", "lance:/srv/notes"),
        ("lance:notes", "lance:/work/notes"),
        ("lance:../notes/x", "lance:/notes/x"),
        ("lance:~/notes", "lance:/home/ann/notes"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
    ],
)
@LINUX_ONLY
def test_an_index_may_lie_at_an_address(typed: str, address: str) -> None:
    environ = {"HOME": "/home/ann"}
    for places in (locate(typed, Path("/work"), environ), locate("n", Path("/work"), {**environ, "INDEX_PATH": typed})):
        assert places.address == places.place == address
        assert places.database.parent == places.cache == Path("/home/ann/.cache/qmd")
    assert locate(typed, Path("/work"), environ).index_name == address
    assert locate("n", Path("/work"), {**environ, "INDEX_PATH": typed}).config_file.name == "n.yml"


@LINUX_ONLY
def test_what_belongs_to_an_address_has_a_readable_name_of_its_own(home: Path) -> None:
    names = {}
    for address in ("s3://team/a_b", "s3://team/a/b", "lance:/team/a/b", f"s3://team/{'long' * 100}"):
        places = locate(address, Path("/work"), {"HOME": str(home)})
        names[address] = places.stem
        assert places.config_file.parent == places.config_dir
        assert set(places.stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
        assert len(places.stem) < 120
    assert names["s3://team/a/b"].startswith("s3_team_a_b-")
    assert len(set(names.values())) == len(names)


@pytest.mark.parametrize("typed", ["gs://bucket/x", "lancedb:/srv/x", "lance:", "s3:bucket", "s3://", "http://x/y"])
def test_an_unknown_address_is_an_error_that_lists_the_possible_ones(typed: str, home: Path) -> None:
    for index, environ in ((typed, {}), (None, {"INDEX_PATH": typed})):
        with pytest.raises(UsageError, match=f"index '{typed}'") as refused:
            locate(index, Path("/work"), {"HOME": str(home), **environ})
        assert refused.value.hint == "give a name, lance:/path or s3://bucket/prefix"


@pytest.mark.parametrize("name", ["notes", "my.notes", "./a:b", "C:/notes", "C:\\notes", "notes.v2:x"])
def test_names_and_paths_are_no_addresses(name: str, home: Path) -> None:
    assert locate(name, home, {"HOME": str(home)}).address is None


def test_an_address_on_the_command_line_wins_over_index_path(home: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(home), "INDEX_PATH": str(tmp_path / "x.db")}
    assert locate("s3://bucket/x", tmp_path, environ).address == "s3://bucket/x"


def test_paths_inside_a_project_are_written_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / ".qmd").mkdir()
    (tmp_path / ".qmd/index.yml").touch()
    places = locate(None, tmp_path, {"HOME": str(tmp_path)})
    for path in (tmp_path, tmp_path / "notes", tmp_path / "~", tmp_path / "~/x", tmp_path.parent / "other"):
        assert places.expand(str(places.shorten(path))) == path
    assert [str(places.shorten(path)) for path in (tmp_path, tmp_path / "a/b")] == [".", "a/b"]
    assert locate("named", tmp_path, {"HOME": str(tmp_path)}).shorten(tmp_path / "a") == tmp_path / "a"
