"""Many readers beside a writer: nobody fails, nothing is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from qmd.app.searching import SearchRequest
from qmd.indexing import update_collection
from qmd.inference import EngineSettings
from qmd.records import Collection
from qmd.server.pools import EnginePool, ReaderPool
from qmd.server.requests import GetRequest
from qmd.server.service import SearchService
from qmd.store import open_reader, open_writer

ROUNDS = 8
READERS = 6


def test_searches_and_reads_go_on_while_the_index_is_written(tmp_path: Path, loader: Any) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "fixed.md").write_text("# Fixed\n\nthe lighthouse keeper\n", encoding="utf-8")
    database = tmp_path / "index.sqlite"
    collection = Collection("notes", folder)
    with open_writer(database) as writer:
        writer.mirror_config([collection], None, "digest")
        update_collection(writer, collection)
    pool: EnginePool[EngineSettings] = EnginePool(loader)
    settings = EngineSettings(models_dir=tmp_path)
    service = SearchService(database, ReaderPool(lambda: open_reader(database), (database,)), pool, lambda: settings)
    done = threading.Event()

    def read(number: int) -> int:
        rounds = 0
        while not done.is_set() or rounds == 0:
            found = service.query(SearchRequest("lighthouse keeper", mode="lexical" if number % 2 == 0 else "hybrid"))
            assert "fixed.md" in [hit.document.path for hit in found.hits]
            assert "lighthouse" in service.get(GetRequest("notes/fixed.md")).text
            if number == 0:
                service.release_idle()
            rounds += 1
        return rounds

    with ThreadPoolExecutor(READERS) as threads:
        readers = [threads.submit(read, number) for number in range(READERS)]
        for number in range(ROUNDS):
            (folder / f"new-{number}.md").write_text(f"# New\n\nlighthouse number {number}\n", encoding="utf-8")
            with open_writer(database) as writer:
                update_collection(writer, collection)
        done.set()
        assert all(reader.result() > 0 for reader in readers)
    assert service.status().documents == ROUNDS + 1
    service.close()
