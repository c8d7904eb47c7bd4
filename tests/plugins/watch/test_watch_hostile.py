"""The watch continues with hostile files and invalid configurations."""

from pathlib import Path

import pytest

from qmd.cli.invocation import Invocation
from qmd.errors import ConfigError
from qmd.plugins.watch.file_events import SystemEvents
from qmd.plugins.watch.watching import WatchedIndex, Watcher


@pytest.fixture
def actions(tmp_path: Path) -> WatchedIndex:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "good.md").write_text("# Good\n")
    (tmp_path / "config").mkdir()
    config, cache = str(tmp_path / "config"), str(tmp_path / "cache")
    environ = {"HOME": str(tmp_path), "QMD_CONFIG_DIR": config, "XDG_CACHE_HOME": cache}
    session = Invocation("watch", environ, tmp_path)
    locations = session.locate(None)
    locations.config_file.write_text(f"collections:\n  n: {{path: {tmp_path / 'notes'}}}\n")
    return WatchedIndex(session.serve(locations))


def test_hostile_files_end_no_watch(actions: WatchedIndex, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes" / "integer.md").write_text("+++\nn = " + "9" * 5_000 + "\n+++\n")
    Watcher(actions, print, SystemEvents(print)).check()
    assert "2 new" in capsys.readouterr().err


def test_a_configuration_that_breaks_meanwhile_leaves_the_last_one_in_force(
    actions: WatchedIndex, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [one.name for one in actions.collections()] == ["n"]
    file = tmp_path / "config" / "index.yml"
    content = file.read_text()
    file.write_text("collections: [")
    for _ in range(3):
        assert [one.name for one in actions.collections()] == ["n"]
    assert capsys.readouterr().err.count("failed to parse") == 1
    file.write_text(content.replace("  n:", "  m:"))
    assert [one.name for one in actions.collections()] == ["m"]


def test_a_configuration_that_was_never_sound_is_an_error(actions: WatchedIndex, tmp_path: Path) -> None:
    (tmp_path / "config" / "index.yml").write_text("collections: [")
    with pytest.raises(ConfigError):
        actions.collections()
