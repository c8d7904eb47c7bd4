"""Which sockets a program opened and which files it wrote, itself and every process it started, as strace saw it.

Linux alone. What it cannot see: system calls made through io_uring, which nothing here uses.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_CALLS = (
    "socket", "connect", "bind", "sendto", "sendmsg", "sendmmsg", "openat", "openat2", "mkdirat", "renameat",
    "renameat2", "linkat", "symlinkat", "mknodat", "mkdir", "open", "creat", "rename", "link", "symlink", "mknod",
)  # fmt: skip
"""Those after `mknodat` exist on older architectures only, hence the question marks below."""

_INTERNET = re.compile(r"sa_family=AF_INET6?, sin6?_port=htons\((\d+)\).*?inet_(?:addr\(|pton\(AF_INET6, )\"([^\"]+)\"")
_LOCAL = re.compile(r"sa_family=AF_UNIX, sun_path=(@?\"[^\"]*\")")
_DOMAIN = re.compile(r"^socket\(AF_(\w+)")
_HARMLESS_DOMAINS = {"UNIX", "LOCAL", "INET", "INET6", "NETLINK"}
"""Internet sockets are judged by their addresses. NETLINK asks the kernel for its interfaces and reaches nobody."""
_OPENED = re.compile(r"\b(?:O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|creat\().*= \d+<([^>]*)>(?:\(deleted\))?$")
_MADE = re.compile(r"^(mkdir|mknod|rename|link|symlink)\w*\((.*)\) = 0$")
_PATH = re.compile(r"(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?\"([^\"]*)\"")


@dataclass(frozen=True)
class Traffic:
    """What the processes of one or more commands did."""

    peers: frozenset[str]
    """Addresses connected or sent to, or bound; `family address`."""
    written: frozenset[Path]
    """Files opened for writing, and names made."""

    def __or__(self, other: Traffic) -> Traffic:
        return Traffic(self.peers | other.peers, self.written | other.written)


NOTHING = Traffic(frozenset(), frozenset())


def why_not() -> str | None:
    """Why nothing can be traced on this machine, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    attempt = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect", "-o", "/dev/null", "true"]
    done = subprocess.run(attempt, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"strace cannot trace here: {done.stderr.strip()[:100]}"


@contextmanager
def traced(
    command: Sequence[str], log: Path, environment: Mapping[str, str], cwd: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command under the trace while the block runs, then end it and wait for all that it started.

    Args:
        command: What to run; its standard streams are pipes.
        log: Folder for the trace, to be read with `read_traffic`.
        environment: All variables it gets.
        cwd: Where it runs.
    """
    log.mkdir(parents=True)
    calls = ",".join(f"?{name}" for name in _CALLS)
    options = ["-ff", "-qq", "-y", "--seccomp-bpf", "-e", "signal=none", "-e", f"trace={calls}", "-s", "300"]
    with subprocess.Popen(
        ["strace", "-f", *options, "-o", str(log / "t"), *command],
        env=dict(environment),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            yield process
        finally:
            # strace itself would only let go of them.
            for child in _children(process.pid) if process.poll() is None else []:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


def read_traffic(log: Path) -> Traffic:
    """The trace in a folder."""
    lines = [_spelled(line) for file in log.iterdir() for line in file.read_text("utf-8", "replace").splitlines()]
    return Traffic(frozenset(_peers(lines)), frozenset(_written(lines)))


def _spelled(line: str) -> str:
    """A line with the characters that strace writes as octal numbers."""
    if "\\" not in line:
        return line
    return (
        re.sub(r"\\([0-7]{1,3})", lambda octal: chr(int(octal[1], 8)), line)
        .encode("latin-1", "replace")
        .decode("utf-8", "surrogateescape")
    )


def _peers(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        for port, address in _INTERNET.findall(line):
            yield f"internet {address} {port}"
        for path in _LOCAL.findall(line):
            yield f"local {path.replace(chr(34), '')}"
        domain = _DOMAIN.match(line)
        if domain and domain[1] not in _HARMLESS_DOMAINS:
            yield f"socket {domain[1]}"


def _written(lines: Iterable[str]) -> Iterator[Path]:
    for line in lines:
        opened = _OPENED.search(line)
        if opened and opened[1].startswith("/"):
            yield Path(opened[1])
        made = _MADE.match(line)
        if made:
            paths = [Path(folder, name) for folder, name in _PATH.findall(made[2])]
            yield from paths if made[1] == "rename" else paths[-1:]


def is_on_this_machine(peer: str, own_folders: Iterable[Path]) -> bool:
    """Whether a peer is this machine itself, and not a service on it that asks others.

    Name look-ups go to port 53, on many machines of the loopback interface, or to a socket of the resolver.
    """
    kind, address, *port = peer.split(" ")
    if kind == "internet":
        return ipaddress.ip_address(address).is_loopback and port != ["53"]
    # User names are looked up with nscd; Python asks for the home folder.
    is_nscd = address == "/var/run/nscd/socket"
    return kind == "local" and (is_nscd or any(Path(address).is_relative_to(folder) for folder in own_folders))
