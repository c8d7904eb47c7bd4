"""Configuration files made to hang or break the program, as a cloned project may contain: each is one line of error."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qmd.config.edits import add_collection, edit_config
from qmd.config.paths import Locations, locate
from qmd.config.project import read_trust
from qmd.config.settings import load_config
from qmd.errors import ConfigError

needs_pipes = pytest.mark.skipif(sys.platform == "win32", reason="no pipes in folders")


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    found = locate(None, tmp_path, {"HOME": str(tmp_path), "QMD_CONFIG_DIR": str(tmp_path / "config")})
    found.config_file.parent.mkdir(parents=True)
    return found


ALIAS_BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ALIAS_BOMB.encode(), "its aliases stand for too many values"),
        (b"global_context: &a [*a]", "the value of '&a' contains itself"),
        (b"global_context: " + b"[" * 3_000, "values are nested more than 64 deep"),
        (b"global_context: " + b"[" * 100 + b"]" * 100, "values are nested more than 64 deep"),
        (b"global_context: " + b"9" * 5_000, "a number has more than 1,000 digits"),
        (b"global_context: 0x" + b"f" * 5_000, "a number has more than 1,000 digits"),
        (b'global_context: "\\ud800"', "an escape means half a character"),
        (b'collections: {n: {path: "a\\0b"}}', "a value contains a NUL character"),
        (b"collections: {n: {path: a\0b}}", "special characters are not allowed"),
        (b"a: b\n" * 60_000, "more than the limit of 262,144"),
        (b"a: b\n" * 4_000_000, "has more than 1,000,000 bytes"),
        (b"a: [" + b"b," * 100_000 + b"]", "it contains too many values"),
        (b"when: 9999-99-99T99:99:99Z", ""),
    ],
)  # fmt: skip
def test_a_hostile_configuration_is_one_line_of_error(locations: Locations, content: bytes, reason: str) -> None:
    locations.config_file.write_bytes(content)
    for load in (load_config, lambda places: edit_config(places, lambda root: None)):
        with pytest.raises(ConfigError) as raised:
            load(locations)
        assert reason in raised.value.message
        assert "\n" not in raised.value.message
        assert raised.value.hint
    assert locations.config_file.read_bytes() == content


@needs_pipes
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_configuration_that_is_no_file_is_not_waited_for(locations: Locations, make: Callable[[Path], None]) -> None:
    make(locations.config_file)
    with pytest.raises(ConfigError, match=r"cannot read '.*index\.yml'"):
        load_config(locations)


def test_anchors_that_a_person_uses_are_read(locations: Locations) -> None:
    locations.config_file.write_text(
        "global_context: &note hello\ncollections:\n  n: {path: /n, ignore: &out [a, b], context: {'': *note}}\n"
        "  m: {path: /m, ignore: *out}\n"
    )
    config = load_config(locations)
    assert [one.ignore for one in config.collections] == [("a", "b"), ("a", "b")]
    assert config.collections[0].context == {"": "hello"}


@pytest.mark.skipif(os.sep == "\\", reason="names are text there")
@pytest.mark.parametrize("entry", [b"f\xe9", b'"f\\udce9"', b"'f\\xE9'"])
def test_a_byte_that_is_no_utf8_bricks_no_command(locations: Locations, entry: bytes) -> None:
    locations.config_file.write_bytes(b"# my notes\ncollections:\n  " + entry + b":\n    path: /n/" + b"f\xe9\n")
    (collection,) = load_config(locations).collections
    assert collection.name == "f\\xE9"
    assert os.fsencode(collection.path) == b"/n/f\xe9"
    config = add_collection(locations, "m", Path(os.fsdecode(b"/m\xff")))
    assert [one.name for one in config.collections] == ["f\\xE9", "m"]
    assert os.fsencode(config.collections[1].path) == b"/m\xff"
    assert locations.config_file.read_text("utf-8").startswith("# my notes\n")


@needs_pipes
@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a": ' * 100_000, b"{}" + b" " * 12_000_000 + b"x", None])
def test_a_hostile_record_of_trust_trusts_nothing(locations: Locations, content: bytes | None) -> None:
    record = locations.config_dir / "trusted.json"
    if content is None:
        os.mkfifo(record)
    else:
        record.write_bytes(content)
    assert read_trust(locations.config_dir) == {}


@pytest.mark.parametrize("content", ["\t", " \n\t\n"])
def test_a_file_of_nothing_but_blanks_can_be_edited(locations: Locations, tmp_path: Path, content: str) -> None:
    locations.config_file.write_text(content)
    assert add_collection(locations, "notes", tmp_path).collection("notes") is not None
