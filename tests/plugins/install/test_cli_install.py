"""`qmd install` on real settings: with comments, edited by hand, by programs, and by strangers."""

import ctypes
import json
import os
import random
import shlex
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from qmd.errors import BusyError
from qmd.plugins.install import editing
from qmd.plugins.install.clients import CLIENTS, ONLY_PRINTED, entry_for, is_own_hook, own_command, settings_file
from qmd.plugins.install.settings_text import changed_text, entry_in, parsed_text
from tests.program import Qmd
from tests.robustness.settings import OTHER_HOOKS, OWN_HOOKS, open_settings, settings_case

needs_posix = pytest.mark.skipif(os.name != "posix", reason="links, pipes and permission bits of POSIX")

CLAUDE = '{\n\t"numStartups": 5,\n\t"mcpServers": {\n\t\t"other": {"command": "x"}\n\t},\n\t"projects": {}\n}'
CODEX = """# mine
model = "gpt-5" # best

[mcp_servers.a]
command = '''
[mcp_servers.b]
'''

# about z
[profiles.z]
a = 1"""
VSCODE = """// servers
{
    "inputs": [], // none
    "servers": { /* { "qmd": 1 } */
        // mine
        "a": { "command": "//b", "args": ["x,]",], },
    },
}
"""
ZED = '// Zed\r\n{\r\n  "theme": "One", // dark\r\n  "context_servers": {},\r\n}\r\n'
REAL = {
    "claude": CLAUDE,
    "claude-desktop": "{}",
    "codex": CODEX,
    "cursor": '\ufeff{"mcpServers": {"a": {"url": "http://x"}}}\n',
    "gemini": '{\n  "theme": "GitHub"\n}\n',
    "vscode": VSCODE,
    "zed": ZED,
    "opencode": '{"$schema": "https://opencode.ai/config.json", "mcp": {}}\n',
}


def _file(client: str, project: Path | None = None) -> Path:
    file = settings_file(CLIENTS[client], os.environ, project)
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


@pytest.mark.parametrize("is_project", [False, True])
@pytest.mark.parametrize("client", REAL)
def test_an_entry_goes_in_once_and_leaves_the_bytes_that_were_there(
    client: str, is_project: bool, qmd: Qmd, home: Path
) -> None:
    if is_project and CLIENTS[client].project is None:
        assert "no settings of a project" in qmd("install", client, "--project").err
        return
    flags = ["--project"] if is_project else []
    file, is_toml = _file(client, home if is_project else None), client == "codex"
    raw = REAL[client].encode()
    file.write_bytes(raw)
    file.chmod(0o644)
    mode = file.stat().st_mode
    entry = entry_for(client, "work", os.environ)
    run = qmd("install", client, *flags, "--index", "work", "--yes")
    assert (run.status, str(file) in run.err) == (0, True)
    text = file.read_bytes().decode()
    assert entry_in(parsed_text(text, is_toml=is_toml), entry.keys) == entry.value
    # The entry was only inserted: the other text before and after it is unchanged.
    was = REAL[client]
    assert any(text.startswith(was[:at]) and text.endswith(was[at:]) for at in range(len(was) + 1))
    assert (file.stat().st_mode, "\r\n" in text) == (mode, "\r\n" in REAL[client])
    backup = file.with_name(f"{file.name}.qmd-backup")
    assert backup.read_bytes() == raw
    assert "already" in qmd("install", client, *flags, "--index", "work", "--yes").err
    assert file.read_bytes().decode() == text
    # Another index replaces the entry, and the first backup stays.
    assert qmd("install", client, *flags, "--yes").status == 0
    assert backup.read_bytes() == raw
    assert qmd("install", client, *flags, "--remove", "--yes").status == 0
    assert (file.read_bytes(), backup.exists()) == (raw, False)
    assert "no entry of qmd" in qmd("install", client, *flags, "--remove").err


@pytest.mark.parametrize("client", REAL)
def test_what_was_changed_since_stays_when_the_entry_goes(client: str, qmd: Qmd) -> None:
    file, is_toml = _file(client), client == "codex"
    file.write_bytes(REAL[client].encode())
    assert qmd("install", client, "--yes").status == 0
    marked = file.read_bytes() + (b"\n# later\n" if is_toml else b"\n// later\n")
    file.write_bytes(marked)
    assert qmd("install", client, "--remove", "--yes").status == 0
    text = file.read_bytes().decode()
    now, kept = (parsed_text(one, is_toml=is_toml) for one in (text, REAL[client]))
    assert {key: one for key, one in now.items() if one} == {key: one for key, one in kept.items() if one}
    assert text.rstrip().endswith("later") and ("// mine" in text) == ("// mine" in REAL[client])


def test_a_file_that_was_not_there_is_made_for_its_owner_and_goes_again(qmd: Qmd) -> None:
    file = settings_file(CLIENTS["vscode"], os.environ, None)
    assert qmd("install", "vscode", "--index", "work", "--yes").status == 0
    assert file.stat().st_mode & 0o077 == 0 or os.name != "posix"
    # Text that qmd itself wrote is no backup.
    assert qmd("install", "vscode", "--yes").status == 0
    assert json.loads(file.read_text())["servers"]["qmd"]["type"] == "stdio"
    assert qmd("install", "vscode", "--remove", "--yes").status == 0
    assert not list(file.parent.iterdir())


def test_without_a_terminal_the_change_is_shown_and_not_made(qmd: Qmd) -> None:
    run = qmd("install", "cursor", "--index", "a b")
    assert (run.status, '+    "qmd": {' in run.out) == (2, True)
    assert "hint: qmd install cursor '--index=a b' --yes" in run.err
    assert not settings_file(CLIENTS["cursor"], os.environ, None).exists()


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_printed_names_absolute_paths_and_the_index(
    client: str, qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x-y-z")
    run = qmd("install", client, "--print", "--index", "work")
    assert (run.status, run.err) == (
        0,
        f"# {CLIENTS[client].title}: {settings_file(CLIENTS[client], os.environ, None)}\n",
    )
    program = own_command()[0]
    assert Path(program).is_absolute()
    for word in (program, "--index", "work", "mcp", "XDG_CACHE_HOME", str(tmp_path / "cache")):
        assert word.replace("\\", "\\\\") in run.out or word in run.out
    assert "x-y-z" not in run.out
    assert qmd("mcp", "--print-config", client.upper(), "--index", "work").out == run.out
    if client in ONLY_PRINTED:
        assert f"hint: qmd install {client} --print" in qmd("install", client, "--yes").err


def test_a_path_or_an_address_is_written_so_that_it_holds_in_every_folder(
    qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(home / "sub" / "work").replace("/", "_").lstrip("_")
    assert f'"{name}"' in qmd("install", "claude", "--print", "--index", "./sub/work").out
    for given, written in (("sub/x.sqlite", str(home / "sub/x.sqlite")), ("lance:sub", f"lance:{home / 'sub'}")):
        monkeypatch.setenv("INDEX_PATH", given)
        assert f'"INDEX_PATH": "{written}"' in qmd("install", "claude", "--print").out


@pytest.mark.parametrize("words", [("install", "emacs"), ("mcp", "--print-config", "emacs")])
def test_unknown_clients_are_refused(words: tuple[str, ...], qmd: Qmd) -> None:
    run = qmd(*words)
    assert (run.status, "claude-desktop, codex" in run.err) == (2, True)


BROKEN = {
    "cut": b'{"mcpServers": {',
    "no object": b'{"mcpServers": []}',
    "a list": b"[1]",
    "not UTF-8": b'{"a": "\xff"}',
    "deep": b'{"a":' + b"[" * 200_000,
    "two values": b'{"mcpServers": {"a": 1}} {}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_read_is_left_alone_and_named(name: str, qmd: Qmd) -> None:
    for client, is_toml in (("claude", False), ("codex", True)):
        file, raw = _file(client), b"a = [" if is_toml else BROKEN[name]
        file.write_bytes(raw)
        run = qmd("install", client, "--yes")
        assert (run.status, run.out, run.err.count("\n")) == (1, "", 2)
        assert str(file) in run.err
        assert not list(file.parent.glob("*.qmd-backup"))
        assert file.read_bytes() == raw


def test_a_table_inside_others_of_toml_is_left_alone() -> None:
    for text in ('mcp_servers = {qmd = {command = "x"}}', 'mcp_servers.qmd.command = "x"', "mcp_servers = {}\n"):
        with pytest.raises(ValueError, match="does not change"):
            changed_text(text, ("mcp_servers", "qmd"), {"command": "y"}, is_toml=True)


def test_toml_takes_every_string(tmp_path: Path) -> None:
    value = {"command": 'C:\\x "é" \U0001f600\x7f\x01', "args": ["a\nb"], "env": {"A": "b"}}
    assert tomllib.loads(changed_text("", ("a", "qmd"), value, is_toml=True)) == {"a": {"qmd": value}}


def test_hostile_text_takes_no_more_time_than_its_length(monkeypatch: pytest.MonkeyPatch, qmd: Qmd) -> None:
    for body in (
        '"a": ' + "/*" * 10**6,
        '"a": [' + "1," * 10**6 + "]",
        '"a"' + " " * 10**6,
        '"' + "\\" * 10**6,
        "," * 10**6,
    ):
        _file("zed").write_text(f"{{// x\n{body}}}")
        assert qmd("install", "zed", "--yes").status in (0, 1)
    monkeypatch.setattr(editing, "_MOST_BYTES", 1000)
    assert "more than" in qmd("install", "zed", "--yes").err


@needs_posix
def test_a_link_of_the_users_own_is_written_through(qmd: Qmd, home: Path) -> None:
    target = home / "dotfiles.json"
    target.write_text(CLAUDE)
    file = _file("claude")
    file.symlink_to(target)
    assert qmd("install", "claude", "--yes").status == 0
    assert (file.is_symlink(), "qmd" in target.read_text()) == (True, True)
    assert qmd("install", "claude", "--remove", "--yes").status == 0
    assert target.read_text() == CLAUDE
    target.unlink()
    assert "is a link to nothing" in qmd("install", "claude", "--yes").err


@needs_posix
@pytest.mark.parametrize(
    "kind", ["link", "hard link", "folder", "pipe", "linked folder", "linked backup", "read-only", "another's"]
)
def test_a_strangers_project_leads_nowhere(kind: str, qmd: Qmd, home: Path) -> None:
    secret = home / "secret.json"
    secret.write_text("{}")
    file = home / ".cursor" / "mcp.json"
    if kind == "linked folder":
        (home / "elsewhere").mkdir()
        file.parent.symlink_to(home / "elsewhere")
    else:
        file.parent.mkdir()
    if kind == "link":
        file.symlink_to(secret)
    elif kind == "hard link":
        file.hardlink_to(secret)
    elif kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "linked backup":
        file.write_text("{}")
        file.with_name("mcp.json.qmd-backup").symlink_to(secret)
    elif kind == "read-only":
        file.write_text("{}")
        file.chmod(0o444)
    elif kind == "another's":
        file.write_text("{}")
        if os.geteuid() != 0:
            pytest.skip("only the administrator can give a file away")
        os.chown(file, 12345, -1)
    run = qmd("install", "cursor", "--project", "--yes")
    assert (run.status, f"cannot use '{file}'" in run.err) == ((0, False) if kind == "linked backup" else (1, True))
    if kind == "linked backup":
        assert qmd("install", "cursor", "--project", "--remove", "--yes").status == 0
        assert file.with_name("mcp.json.qmd-backup").is_symlink()
    assert secret.read_text() == "{}"
    assert not list((home / "elsewhere").glob("*"))


def test_a_file_that_changes_while_one_is_asked_keeps_both_changes(home: Path) -> None:
    file = home / "a.json"
    change = editing.plan_change(file, ("a",), {"b": "c"}, removes=False, is_clones=False)
    file.write_text('{"other": 1}')
    editing.carry_out(change)
    assert json.loads(file.read_text()) == {"other": 1, "a": {"b": "c"}}
    file.write_text('{"other": ')
    with pytest.raises(Exception, match="cannot read"):
        editing.carry_out(change)
    assert file.read_text() == '{"other": '


def _writes_at(moment: str, save: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another program save while qmd syncs its copy, or after the last comparison before the swap."""
    if moment == "sync":
        monkeypatch.setattr(os, "fsync", lambda _: save())
        return

    class Library:
        def renameat2(self, *args: object) -> int:
            save()
            return int(library(None).renameat2(*args))

    library = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library() if name is None else library(name))


@pytest.mark.skipif(sys.platform != "linux", reason="only there the moment of the swap can be met")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("moment", ["sync", "swap"])
def test_what_another_program_saves_at_the_last_moment_is_never_lost(
    moment: str, in_place: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "a.json"
    file.write_text("{}")
    saved, most = list[int](), 1

    def save() -> None:
        if len(saved) < most:
            saved.append(len(saved))
            new = file if in_place else file.with_name("new")
            new.write_text(json.dumps({"other": saved, "more": "x" * 100}))
            new.replace(file)

    change = editing.plan_change(file, ("a",), {"b": "c"}, removes=False, is_clones=False)
    _writes_at(moment, save, monkeypatch)
    editing.carry_out(change)
    assert json.loads(file.read_text()) == {"other": [0], "more": "x" * 100, "a": {"b": "c"}}
    most, backup = 99, file.with_name("a.json.qmd-backup")
    backup.unlink()
    with pytest.raises(BusyError) if moment == "sync" else nullcontext():
        editing.carry_out(editing.plan_change(file, ("a",), {"b": "d"}, removes=False, is_clones=False))
    settings = json.loads(file.read_text())
    assert (settings["other"], settings.get("a", {}).get("b")) == (saved, None if moment == "sync" else "d")
    assert (list(home.glob(".*")), backup.exists()) == ([], moment == "swap")


def test_what_killed_runs_left_goes_even_if_nothing_changes(qmd: Qmd, home: Path) -> None:
    file = _file("codex")
    assert qmd("install", "codex", "--yes").status == 0
    for name in (".config.toml.qmd-0123abcd", ".config.toml.qmd-backup.2ecd71e5", ".config.toml.mine"):
        file.with_name(name).write_text("")
        os.utime(file.with_name(name), (time.time() - 3600,) * 2)
    assert "already" in qmd("install", "codex").err
    assert {path.name for path in file.parent.iterdir()} == {"config.toml", ".config.toml.mine"}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only the administrator works for others")
def test_the_administrator_leaves_a_users_file_to_the_user(
    qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1000")
    config = home.parent / "config" / "qmd" / "index.yml"
    config.parent.mkdir(parents=True)
    config.write_text(f"collections: {{a: {{path: {home}}}}}\n")
    file = _file("claude")
    file.write_text(CLAUDE)
    for path in (file, config):
        os.chown(path, 1000, 1001)
        path.chmod(0o640)
    assert qmd("install", "claude", "--yes").status == qmd("context", "add", "qmd://a", "words").status == 0
    for path in (file, config, file.with_name(".claude.json.qmd-backup")):
        assert (path.stat().st_uid, path.stat().st_gid) == (1000, 1001)
    assert (file.stat().st_mode & 0o777, "qmd" in file.read_text(), "words" in config.read_text()) == (
        0o640,
        True,
        True,
    )


def test_each_other_member_item_and_comment_is_byte_for_byte_there(tmp_path: Path) -> None:
    with open_settings(tmp_path) as check:
        for number in range(250):
            check(settings_case(random.Random(f"everyday {number}")))


def test_a_hook_is_known_by_its_words() -> None:
    assert all(is_own_hook({"command": command}) for command in OWN_HOOKS)
    assert not any(
        is_own_hook({"command": command}) for command in (*OTHER_HOOKS, "qmd " + "-x " * 99_999, "", 7, None)
    )
    assert not is_own_hook("qmd hook prompt")


def test_one_command_leaves_a_group_and_the_others_stay_with_their_comments(qmd: Qmd, home: Path) -> None:
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    text = """{"hooks": {"UserPromptSubmit": [
  // all of mine
  {"matcher": "", "hooks": [
    {"type": "command", "command": "~/bin/webhook prompt-log"}, // log
    /* notes */ {"type": "command", "command": "/old/qmd --index b hook prompt"}, // asks qmd
  ]},
]}}
"""
    file.write_text(text)
    assert qmd("install", "claude", "--hook", "--yes").status == 0
    line = json.dumps(shlex.join([*own_command(), "hook", "prompt"]))[1:-1]
    assert line in file.read_text() and file.read_text().count('hook prompt"') == 1
    assert qmd("install", "claude", "--hook", "--remove", "--yes").status == 0
    assert file.read_text() == text.replace(
        """{"type": "command", "command": "/old/qmd --index b hook prompt"}, """, ""
    )


def test_on_windows_paths_with_blanks_are_quoted_for_the_shell_of_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    entry = entry_for("claude", "a b", {"INDEX_PATH": "C:\\My notes\\x.sqlite"}, hook="prompt")
    assert isinstance(entry.value, list) and isinstance(entry.value[0], dict)
    [hook] = entry.value[0]["hooks"]
    assert 'My notes/x.sqlite" ' in hook["command"] and hook["command"].endswith(' --index "a b" hook prompt')
    assert "\\" not in hook["command"] and is_own_hook(hook)


def test_the_hook_joins_the_hooks_that_are_there(qmd: Qmd, home: Path) -> None:
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    text = '{"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "mine"}]}]}}'
    file.write_text(text)
    for index in ("a", "b"):
        assert qmd("install", "claude", "--hook", "--index", index, "--yes").status == 0
    first, second = json.loads(file.read_text())["hooks"]["UserPromptSubmit"]
    assert first["hooks"][0]["command"] == "mine"
    assert second["hooks"][0]["command"].endswith("--index b hook prompt")
    assert qmd("install", "claude", "--hook", "--remove", "--yes").status == 0
    assert file.read_text() == text
    file.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [{"command": "qmd hook prompt"}]}] * 5000}}))
    assert "more than 20 prompt hooks" in qmd("install", "claude", "--hook", "--remove", "--yes").err
    file.write_text('{"hooks": {"UserPromptSubmit": {"a": 1}}}')
    assert "no list" in qmd("install", "claude", "--hook", "--yes").err
    assert "no prompt hook" in qmd("install", "zed", "--hook").err


def test_the_session_hook_comes_and_goes_without_the_others(qmd: Qmd, home: Path) -> None:
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "mine"}]}]}}')
    assert qmd("install", "claude", "--hook", "--yes").status == 0
    before = json.loads(file.read_text())
    for option in (("--hook=session",), ("--hook", "session")):
        assert qmd("install", *option, "claude", "--yes").status == 0
        ends = [one["hooks"][0]["command"][-12:] for one in json.loads(file.read_text())["hooks"]["SessionStart"]]
        assert ends == ["mine", "hook session"]
    assert qmd("install", "claude", "--hook", "session", "--remove", "--yes").status == 0
    assert json.loads(file.read_text()) == before and "hook prompt" in str(before)


@needs_posix
def test_what_uvx_made_is_started_by_uvx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uvx = tmp_path / "uvx"
    uvx.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.prefix", "/home/x/.cache/uv/archive-v0/abc")
    command = own_command()
    assert (command[0], command[-1]) == (str(uvx), "qmd-search")
    assert command[1:-1] == [] or command[1] == "--from"
