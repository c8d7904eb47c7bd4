"""Downloads from a faulty hub, mirror or network: outcome, requests, message."""

import gzip
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest
from msgspec import Struct

from qmd.errors import ModelError
from qmd.plugins.models.fetch.hub import HubFile, describe_file, refusal, retry_pause
from qmd.plugins.models.fetch.transfer import fetch
from tests.plugins.models.model_hub import COMMIT, WEIGHTS, Asked, FakeHub, Reply

NAME = "onnx/model.onnx"
SIZE = len(WEIGHTS)


def _describe(hub: FakeHub, name: str = NAME, revision: str = "main") -> HubFile | None:
    return describe_file(hub.repository, name, revision, hub.url, sleep=lambda seconds: None)


def _get(hub: FakeHub, target: Path, sleep: Callable[[float], None] = lambda seconds: None) -> bytes:
    file = _describe(hub)
    assert file is not None
    fetch(file, target, sleep=sleep)
    return target.read_bytes()


def _on_get(reply: Callable[[Asked], Reply | None]) -> Callable[[Asked], Reply | None]:
    return lambda asked: reply(asked) if asked.command == "GET" else None


def _half(asked: Asked) -> Reply:
    """Answer from the first byte, but only half of the file."""
    return Reply(200, {"Content-Length": str(SIZE)}, WEIGHTS[: SIZE // 2], breaks_off=True)


def _drip(asked: Asked) -> Reply:
    """Answer ten bytes more at a time."""
    start = int(asked.range[6:-1]) if asked.range else 0
    headers = {"Content-Length": str(SIZE - start), "Content-Range": f"bytes {start}-{SIZE - 1}/{SIZE}"}
    return Reply(206 if asked.range else 200, headers, WEIGHTS[start : start + 10], breaks_off=True)


class Fault(Struct, frozen=True):
    """A row of the table."""

    name: str
    reply: Callable[[Asked], Reply | None]
    words: str
    """Part of the message; empty if the file arrives all the same."""
    heads: int = 1
    gets: int = 1


_STALE = WEIGHTS[:5000]
_PAGE = Reply(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>log in</html>")
_OTHER_RANGE = Reply(206, {"Content-Range": f"bytes 5-9/{SIZE}"}, b"wrong")

FAULTS = [
    Fault("503 twice", _on_get(lambda asked: Reply(503) if asked.number < 3 else None), "", gets=3),
    Fault("503 for ever", _on_get(lambda asked: Reply(503)), "stopped: the server answers 503", gets=6),
    Fault(
        "429 with a second to wait",
        _on_get(lambda a: Reply(429, {"Retry-After": "1"}) if a.number == 1 else None),
        "",
        gets=2,
    ),
    Fault(
        "429 with an hour to wait", _on_get(lambda asked: Reply(429, {"Retry-After": "3600"})), "asks to wait 3600 s"
    ),
    Fault(
        "a stale mirror with another size",
        _on_get(lambda asked: Reply(200, body=_STALE)),
        f"the server has 5000 bytes of {SIZE} promised",
        heads=3,
        gets=3,
    ),
    Fault(
        "another size without a length",
        _on_get(
            lambda asked: (
                Reply(200, body=_STALE, breaks_off=True)
                if not asked.range
                else Reply(416, {"Content-Range": "bytes */5000"})
            )
        ),
        f"the server has 5000 bytes of {SIZE} promised",
        heads=3,
        gets=6,
    ),
    Fault(
        "more than promised",
        _on_get(lambda asked: Reply(200, body=WEIGHTS * 9, breaks_off=True)),
        f"bytes and more of {SIZE} promised",
        heads=3,
        gets=3,
    ),
    Fault(
        "a server that ignores ranges",
        _on_get(lambda asked: _half(asked) if asked.number == 1 else Reply(200, body=WEIGHTS)),
        "",
        gets=2,
    ),
    Fault("half each time, from the start", _on_get(_half), f"after {SIZE // 2} of {SIZE} bytes", gets=6),
    Fault("ten bytes a connection", _on_get(_drip), f"after 60 of {SIZE} bytes", gets=6),
    Fault(
        "416 for every range", _on_get(lambda asked: Reply(416) if asked.range else _half(asked)), "stopped: ", gets=6
    ),
    Fault(
        "another range than asked for",
        _on_get(lambda asked: _OTHER_RANGE if asked.range else _half(asked)),
        "stopped: ",
        gets=6,
    ),
    Fault("a web page in place of the file", _on_get(lambda asked: _PAGE), f"a web page in place of '{NAME}'"),
    Fault("a web page for the hub", lambda asked: _PAGE, f"a web page in place of '{NAME}'", gets=0),
    Fault(
        "a packed body",
        _on_get(lambda asked: Reply(200, {"Content-Encoding": "gzip"}, gzip.compress(WEIGHTS))),
        "packed (gzip)",
    ),
    Fault(
        "redirects in a circle",
        lambda asked: Reply(302, {"Location": f"/a/resolve/main/{NAME}"}),
        "without end",
        heads=11,
        gets=0,
    ),
    Fault(
        "redirects of the file in a circle",
        _on_get(lambda asked: Reply(302, {"Location": f"/a/resolve/main/{NAME}"})),
        "without end",
        gets=11,
    ),
    Fault(
        "403 for the file for ever",
        _on_get(lambda asked: Reply(403)),
        "stopped: the server answers 403",
        heads=3,
        gets=3,
    ),
    Fault(
        "403 for the file once", _on_get(lambda asked: Reply(403) if asked.number == 1 else None), "", heads=2, gets=2
    ),
    Fault("503 of the hub once", lambda a: Reply(503) if (a.command, a.number) == ("HEAD", 1) else None, "", heads=2),
    Fault("503 of the hub for ever", lambda asked: Reply(503), "answers 503 Service Unavailable", heads=3, gets=0),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_every_fault_ends_after_few_requests_and_says_what_it_is(hub: FakeHub, tmp_path: Path, fault: Fault) -> None:
    hub.reply = fault.reply
    if fault.words:
        with pytest.raises(ModelError) as caught:
            _get(hub, tmp_path / "partial")
        assert fault.words in caught.value.message
        assert hub.repository in caught.value.message and "\n" not in caught.value.message
        assert caught.value.hint and "connection" not in caught.value.hint
    else:
        assert _get(hub, tmp_path / "partial") == WEIGHTS
    found = (hub.asked_for("HEAD", NAME), hub.asked_for("GET", NAME))
    assert found == (fault.heads, fault.gets)


def test_a_server_that_begins_anew_each_time_stops_at_twice_the_size(hub: FakeHub, tmp_path: Path) -> None:
    content = WEIGHTS * 8
    hub.files[NAME] = content
    promised = {"Content-Length": str(len(content))}
    hub.reply = _on_get(lambda asked: Reply(200, promised, content[: asked.number * 1_200_000], breaks_off=True))
    with pytest.raises(ModelError, match=rf"sent \d+ bytes of a file of {len(content)} and never all of it"):
        _get(hub, tmp_path / "partial")
    assert hub.asked_for("GET", NAME) == 10


def test_a_connection_that_brings_next_to_nothing_counts_as_dead(hub: FakeHub, tmp_path: Path) -> None:
    minutes = iter(range(0, 10_000, 61))
    file = _describe(hub)
    assert file is not None
    hub.reply = _on_get(_drip)
    with pytest.raises(ModelError, match="fewer than 64 KiB came in a minute"):
        fetch(file, tmp_path / "partial", sleep=lambda seconds: None, clock=lambda: float(next(minutes)))
    assert hub.asked_for("GET", NAME) == 6


def test_a_file_of_unknown_size_is_whole_when_the_server_says_so_and_never_endless(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HubFile(NAME, f"{hub.url}/{hub.repository}/resolve/main/{NAME}", None, None, None, {})
    fetch(file, tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == WEIGHTS
    monkeypatch.setattr("qmd.plugins.models.fetch.transfer._MAX_UNDECLARED_BYTES", 100_000)
    with pytest.raises(ModelError, match="the hub tells no size"):
        fetch(file, tmp_path / "endless")


def test_an_empty_file_is_made_without_a_request(hub: FakeHub, tmp_path: Path) -> None:
    fetch(HubFile("empty", "http://127.0.0.1:9/empty", 0, None, None, {}), tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


def test_an_expired_address_is_renewed_and_the_download_goes_on(hub: FakeHub, tmp_path: Path) -> None:
    hub.use_store()
    hub.drop_after = [1_500_000]
    first = []

    def expire(asked: Asked) -> Reply | None:
        if asked.where == "hub":
            return None
        first.append(asked.revision)
        # The signature of the first address is valid for one request.
        return Reply(403) if len(first) > 1 and asked.revision == first[0] else None

    hub.reply = expire
    assert _get(hub, tmp_path / "partial") == WEIGHTS
    assert [(command, asked) for command, _, asked in hub.requests] == [
        ("HEAD", None),
        ("GET", None),
        ("GET", "bytes=1500000-"),
        ("HEAD", None),
        ("GET", "bytes=1500000-"),
    ]


def test_a_file_that_changed_while_it_was_fetched_is_not_put_together_from_two(hub: FakeHub, tmp_path: Path) -> None:
    file = _describe(hub)
    assert file is not None
    hub.files[NAME] = WEIGHTS[::-1]
    hub.reply = _on_get(lambda asked: Reply(403) if asked.number == 1 else None)
    with pytest.raises(ModelError, match="changed on the hub while it was fetched"):
        fetch(file, tmp_path / "partial", sleep=lambda seconds: None)


@pytest.mark.parametrize("has_store", [False, True])
def test_the_access_token_goes_to_the_hub_and_to_no_other_host(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_store: bool
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    if has_store:
        hub.use_store()
    assert _get(hub, tmp_path / "partial") == WEIGHTS
    assert set(hub.tokens) == {("hub", "Bearer hf_secret")} | ({("store", None)} if has_store else set())


def test_a_mirror_that_moved_is_followed_without_the_token(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    new = hub.url.replace("127.0.0.1", "localhost")
    moved = Reply(301, {"Location": f"{new}/{hub.repository}/resolve/new/{NAME}"})
    hub.reply = lambda asked: moved if asked.revision == "main" else None
    file = _describe(hub)
    assert file is not None and file.url.startswith(new) and file.size_bytes == SIZE
    assert _get(hub, tmp_path / "partial") == WEIGHTS
    assert [token for _, token in hub.tokens[:2]] == ["Bearer hf_secret", None]


def test_a_file_that_the_hub_lacks_is_none_and_a_revision_is_named(hub: FakeHub) -> None:
    file = _describe(hub)
    assert file is not None and file.commit == COMMIT
    assert _describe(hub, "absent.json") is None
    hub.reply = lambda asked: Reply(404)
    assert _describe(hub) is None
    hub.reply = lambda asked: Reply(404, {"X-Error-Code": "RevisionNotFound"})
    with pytest.raises(ModelError, match=f"no revision 'abc' of '{hub.repository}'") as caught:
        _describe(hub, revision="abc")
    assert "--refresh" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("status", "code", "is_mirror", "has_token", "message", "hint"),
    [
        (401, None, False, False, "the hub has no model 'a/b', or it is private (401)", "set HF_TOKEN"),
        (404, "RepoNotFound", False, True, "the hub has no model 'a/b', or it is private (404)", "qmd models list"),
        (401, None, False, True, "the hub refuses 'a/b' with this access token (401)", "set another HF_TOKEN"),
        (401, "GatedRepo", False, False, "'a/b' is gated: the hub answers 401", "https://huggingface.co/a/b"),
        (403, "GatedRepo", False, True, "'a/b' is gated: the hub answers 403", "accept it at"),
        (403, None, False, False, "the hub refuses 'a/b' (403)", "set HF_TOKEN that may read it"),
        (401, None, True, False, "mirror 'http://mirror' refuses 'a/b' (401)", "unset HF_ENDPOINT"),
        (403, None, True, False, "mirror 'http://mirror' refuses 'a/b' (403)", "unset HF_ENDPOINT"),
        (405, None, True, False, "mirror 'http://mirror' answers 405 Method Not Allowed for 'f' of 'a/b'", "again"),
        (500, None, False, False, "the hub answers 500 Internal Server Error for 'f' of 'a/b'", "try later"),
    ],
)
def test_a_refusal_says_who_refuses_what_and_what_to_do(
    status: int, code: str | None, is_mirror: bool, has_token: bool, message: str, hint: str
) -> None:
    answer = httpx.Response(status, headers={"X-Error-Code": code} if code else {})
    file = HubFile("f", "", None, None, None, {}, "a/b", "main", "http://mirror" if is_mirror else None)
    found = refusal(answer, file, has_token=has_token)
    assert found.message.startswith(message)
    assert hint in (found.hint or "")


def test_the_wait_that_is_asked_for_may_be_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    pause = retry_pause(httpx.Response(429, headers={"Retry-After": soon}), "'f'")
    assert pause is not None and 20 < pause <= 30
    assert retry_pause(httpx.Response(429, headers={"Retry-After": "soon"}), "'f'") is None
    assert retry_pause(httpx.Response(429), "'f'") is None


def test_the_wait_that_is_asked_for_is_kept(hub: FakeHub, tmp_path: Path) -> None:
    hub.reply = _on_get(lambda asked: Reply(429, {"Retry-After": "7"}) if asked.number == 1 else None)
    pauses: list[float] = []
    assert _get(hub, tmp_path / "partial", pauses.append) == WEIGHTS
    assert pauses == [7.0]


def test_a_proxy_that_cannot_be_used_is_one_line(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("ALL_PROXY", "gopher://127.0.0.1:9")
    with pytest.raises(ModelError, match="the proxy of this system cannot be used"):
        _describe(hub)
