"""Private files of qmd: readable by their owner alone, links and other people's folders unchanged."""

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmd.files import (
    create_private,
    exclusive_lock,
    is_open_to_others,
    make_private_folder,
    open_private,
    restrict_to_owner,
    write_atomically,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permission bits are POSIX's")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def permissive_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_every_folder_made_on_the_way_is_private_and_those_that_were_there_stay(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "a" / "b" / "c")
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [_mode(folder) for folder in made] == [0o700] * 3
    assert _mode(tmp_path) == 0o755
    make_private_folder(tmp_path)
    assert _mode(tmp_path) == 0o755


def test_a_new_file_is_private_from_its_first_byte(tmp_path: Path) -> None:
    os.close(open_private(tmp_path / "log", os.O_WRONLY))
    write_atomically(tmp_path / "settings.yml", "a: 1\n")
    with exclusive_lock(tmp_path / "lock") as is_mine:
        assert is_mine
    assert {path.name: _mode(path) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("log", "settings.yml", "lock"), 0o600
    )


def test_a_file_that_others_could_read_is_closed_when_it_is_written_again(tmp_path: Path) -> None:
    for name in ("log", "settings.yml", "lock"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o664)
    os.close(open_private(tmp_path / "log", os.O_WRONLY))
    write_atomically(tmp_path / "settings.yml", "a: 1\n")
    with exclusive_lock(tmp_path / "lock"):
        pass
    assert {_mode(path) for path in tmp_path.iterdir()} == {0o600}


def test_a_configuration_linked_from_a_repository_keeps_its_place_and_permissions(tmp_path: Path) -> None:
    repository, ours = tmp_path / "dotfiles", tmp_path / "qmd"
    for folder in (repository, ours):
        folder.mkdir(mode=0o755)
    (repository / "index.yml").write_text("a: 1\n")
    (repository / "index.yml").chmod(0o644)
    (ours / "index.yml").symlink_to(repository / "index.yml")
    (tmp_path / "linked").symlink_to(repository)
    for path in (ours / "index.yml", tmp_path / "linked" / "index.yml"):
        write_atomically(path, "a: 2\n")
        assert (repository / "index.yml").read_text() == "a: 2\n"
        assert _mode(repository / "index.yml") == 0o644
        restrict_to_owner(path.parent)
    assert (ours / "index.yml").is_symlink()
    assert (_mode(repository), _mode(ours)) == (0o755, 0o700)


def test_what_belongs_to_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "index.sqlite"
    file.write_text("")
    file.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    restrict_to_owner(file)
    write_atomically(file, "new")
    assert _mode(file) == 0o644


def test_tightening_keeps_what_the_owner_may_do_and_a_missing_file_is_nothing(tmp_path: Path) -> None:
    file = tmp_path / "read-only"
    file.write_text("")
    file.chmod(0o444)
    restrict_to_owner(file)
    restrict_to_owner(tmp_path / "missing")
    assert _mode(file) == 0o400


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "expected"),
    [(0o755, 0o644, True), (0o700, 0o644, False), (0o755, 0o600, False), (0o750, 0o604, False), (0o750, 0o640, True)],
)
def test_a_file_is_open_to_others_when_they_can_reach_and_read_it(
    folder_mode: int, file_mode: int, expected: bool
) -> None:
    # pytest's own folders are private.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(folder_mode)
        (folder / "index.sqlite").write_text("")
        (folder / "index.sqlite").chmod(file_mode)
        assert is_open_to_others(folder / "index.sqlite") == expected


def test_what_cannot_be_looked_at_is_not_called_open(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert not is_open_to_others(tmp_path / "loop")
    assert not is_open_to_others(tmp_path / "missing")


def test_a_file_that_is_there_is_not_opened_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").write_text("kept")
    (tmp_path / "index.sqlite").chmod(0o000)
    create_private(tmp_path / "index.sqlite")
    assert (tmp_path / "index.sqlite").stat().st_size == 4


def test_what_killed_writes_left_is_swept_by_the_next_one(tmp_path: Path) -> None:
    target = tmp_path / "index.yml"
    left = [".index.yml.ab12_xyz", ".index.yml.qmd-0123abcd", ".index.yml.qmd-backup.0123abcd"]
    kept = [".index.yml.fresh123", ".index.yml.qmd-fresh123", ".index.yml.backup", ".index.yml.ab12_xyz.old"]
    kept += [".other.yml.ab12_xyz", "index.yml~", ".index.yml.qmd-locked12"]
    long_ago = time.time() - 3600
    for name in (*left, *kept):
        (tmp_path / name).write_text("")
        if "fresh" not in name:
            os.utime(tmp_path / name, (long_ago, long_ago))
    # Left before the clock went back.
    (ahead := tmp_path / ".index.yml.ab12_abc").write_text("")
    os.utime(ahead, (2**32, 2**32))
    with exclusive_lock(tmp_path / ".index.yml.qmd-locked12"):
        write_atomically(target, "collections: {}\n")

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "index.yml"])
