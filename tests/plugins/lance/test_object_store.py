"""Several processes with one index in an object store, simulated by moto, one of them killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmd.errors import StoreError
from qmd.store.opening import open_reader, open_writer
from tests.benchmarks.counted_s3 import BUCKET, PLAIN, counted_s3
from tests.processes import unmeasured

_PRELUDE = """
import hashlib, json, os, sys, time
from pathlib import Path
from qmd.records import IndexTerms, LexicalTerm, Scope
from qmd.plugins.lance import claim
from qmd.store.opening import open_reader, open_writer
from qmd.store.records import pack_text
from qmd.store.records import NewDocument
claim.SILENT_S, claim.BEAT_S = 4.0, 0.5
folder, address, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def pair(generation):
    made = []
    for half in ("left", "right"):
        text = f"{name}word generation{generation}"
        terms = IndexTerms("", "", "", text, "")
        digest = hashlib.sha256(text.encode()).hexdigest()
        when = "2026-01-01T00:00:00.000Z"
        facts = (digest, len(text), pack_text(text), terms, "{}", 1, 1, when, when)
        made.append(NewDocument(f"{name}-{half}", name, *facts))
    return made
"""

_WRITER = (
    _PRELUDE
    + """
n, killed_in = int(sys.argv[4]), int(sys.argv[5])
with open_writer(folder, address) as writer:
    for generation in range(1, n + 1):
        with writer.transaction():
            left, right = pair(generation)
            writer.put_documents("n", [left])
            assert writer.find_path("n", left.path) is not None
            if generation == killed_in:
                print("in the middle", flush=True)
                os.kill(os.getpid(), 9)
            writer.put_documents("n", [right])
            writer.set_version_stamp(f"analysis:{name}", str(generation))
print("done")
"""
)

_READER = (
    _PRELUDE
    + """
seen = set()
while not (folder.parent / "stop").exists():
    with open_reader(folder, address) as reader:
        stored = {one.path: one for one in reader.iter_documents()}
        for writer in ("one", "two"):
            generation = reader.version_stamp(f"analysis:{writer}")
            both = [stored.get(f"{writer}-{half}") for half in ("left", "right")]
            found = reader.search_lexical([LexicalTerm("x", f'"{writer}word"')], 9, Scope())
            if generation is None:
                assert both == [None, None] and not found, (both, found)
                continue
            text = f"{writer}word generation{generation}"
            assert {one.hash for one in both} == {hashlib.sha256(text.encode()).hexdigest()}, (both, generation)
            assert set(reader.texts([one.hash for one in both]).values()) == {text}
            assert {one.document_id for one in found} == {one.id for one in both}, (both, found)
            seen.add((writer, generation))
    time.sleep(0.2)
print(json.dumps(len(seen)))
"""
)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("lancedb", reason="LanceDB has no wheel for this system")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with counted_s3(PLAIN) as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}/team/index"


@pytest.mark.slow
def test_one_of_two_writers_is_killed_and_four_readers_see_whole_states(bucket: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    open_writer(folder, bucket).close()

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, str(folder), bucket, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=unmeasured())

    readers = [start(_READER, f"reader{n}") for n in range(4)]
    killed, survivor = start(_WRITER, "one", "9", "3"), start(_WRITER, "two", "5", "0")
    try:
        assert (killed.communicate(timeout=240)[0], killed.returncode) == ("in the middle\n", -signal.SIGKILL)
        out, errors = survivor.communicate(timeout=240)
        assert (out, survivor.returncode) == ("done\n", 0), errors
        (tmp_path / "stop").touch()
        for reader in readers:
            out, errors = reader.communicate(timeout=120)
            assert reader.returncode == 0, errors
            assert json.loads(out) > 0
    finally:
        for process in (*readers, killed, survivor):
            process.kill()
            process.wait()
    with open_reader(folder, bucket) as last:
        assert [last.version_stamp(f"analysis:{name}") for name in ("one", "two")] == ["2", "5"]
        assert [one.path for one in last.iter_documents()] == ["one-left", "one-right", "two-left", "two-right"]
        assert last.check() == []
        assert last.status(None).size_bytes > 0


@pytest.mark.usefixtures("bucket")
def test_a_missing_bucket_is_reported_in_the_words_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot be used: The specified bucket does not exist$"):
        open_reader(tmp_path / "locks", "s3://nowhere/index")
