"""The promise as a property: whatever qmd does, it speaks to this machine alone and writes in its own folders alone.

`python -m tests.robustness.trace_egress` runs the servers for longer, and prints what it saw.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.robustness.trace_egress import examine
from tests.robustness.tracing import is_on_this_machine, read_traffic, why_not

QMD = Path(sys.executable).with_name("qmd")


@pytest.mark.slow
def test_nothing_leaves_the_machine_and_nothing_is_written_outside_the_own_folders(tmp_path: Path) -> None:
    reason = why_not() or (None if QMD.exists() else "the program 'qmd' is not installed beside this Python")
    if reason is not None:
        pytest.skip(reason)
    finding = examine(str(QMD), tmp_path, seconds=3)
    assert {title: items for title, items in finding.problems.items() if items} == {}
    # What it saw is not nothing.
    names = {path.name for path in finding.traffic.written}
    assert {"index.sqlite", "index.sqlite-wal", "index.yml", "trusted.json"} <= names
    assert any(peer.startswith("internet 127.0.0.1") for peer in finding.traffic.peers)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("internet 127.0.0.1 8181", True),
        ("internet ::1 8181", True),
        ("internet 127.0.0.53 53", False),
        ("internet 10.0.0.1 443", False),
        ("internet 0.0.0.0 8181", False),
        ("local /home/ana/.cache/qmd/warm.sock", True),
        ("local /run/systemd/resolve/io.systemd.Resolve", False),
        ("local @abstract", False),
        ("socket PACKET", False),
    ],
)
def test_a_peer_beyond_this_machine_is_told_from_one_on_it(peer: str, expected: bool) -> None:
    assert is_on_this_machine(peer, [Path("/home/ana/.cache/qmd")]) == expected


def test_a_trace_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "t.1").write_text(
        'connect(7</x>, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("10.255.255.53")}, 16) = 0\n'
        "connect(7<socket:[1]>, {sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), "
        'inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), sin6_scope_id=0}, 28) = -1 ENETUNREACH\n'
        'connect(7, {sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"}, 110) = -1 ENOENT\n'
        "socket(AF_PACKET, SOCK_RAW, 0) = 3\n"
        'openat(AT_FDCWD</home>, "a", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 3</home/a>\n'
        'openat(AT_FDCWD</home>, "b", O_RDONLY|O_CLOEXEC) = 3</home/b>\n'
        'openat(AT_FDCWD</home>, "c", O_RDWR|O_CREAT, 0644) = -1 EACCES (Permission denied)\n'
        'mkdirat(AT_FDCWD</home>, "d", 0777) = 0\n'
        'rename("/home/a", "/home/e") = 0\n',
        "utf-8",
    )
    traffic = read_traffic(tmp_path)
    assert traffic.peers == {
        "internet 10.255.255.53 53",
        "internet 2001:db8::1 443",
        "local /var/run/nscd/socket",
        "socket PACKET",
    }
    assert {str(path) for path in traffic.written} == {"/home/a", "/home/d", "/home/e"}
