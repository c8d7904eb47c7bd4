"""Many readers next to a writer: no request fails, nothing is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from qmd.indexing.embed import embed_pending
from qmd.indexing.update import update_collection
from qmd.records import Collection
from qmd.retrieval.request import SearchRequest
from qmd.store.opening import open_writer
from tests.fakes import HashingEmbedder
from tests.plugins.serving import Loader, open_with

ROUNDS = 8
READERS = 6


def test_searches_and_reads_go_on_while_the_index_is_written(tmp_path: Path, loader: Loader) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "fixed.md").write_text("# Fixed\n\nthe lighthouse keeper\n", encoding="utf-8")
    database = tmp_path / "index.sqlite"
    collection = Collection("notes", folder)
    with open_writer(database) as writer:
        writer.mirror_config([collection], None, "digest")
        update_collection(writer, collection)
    opened = open_with(database, loader)
    done = threading.Event()

    def read(number: int) -> int:
        rounds = 0
        while not done.is_set() or rounds == 0:
            found = opened.search(SearchRequest("lighthouse keeper", mode="lexical" if number % 2 == 0 else "hybrid"))
            assert "fixed.md" in [hit.document.path for hit in found.hits]
            assert "lighthouse" in opened.get("notes/fixed.md").text
            if number == 0:
                opened.release_idle()
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
    assert opened.status().documents == ROUNDS + 1
    opened.close()


def test_a_warm_server_answers_by_the_new_vectors_after_all_were_computed_anew(tmp_path: Path, loader: Loader) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    database = tmp_path / "index.sqlite"
    collection = Collection("notes", folder)

    def index(texts: dict[str, str]) -> None:
        for name, text in texts.items():
            (folder / name).write_text(f"# {name}\n\n{text}\n", encoding="utf-8")
        with open_writer(database) as writer:
            writer.mirror_config([collection], None, "digest")
            update_collection(writer, collection, verify=True)
            writer.keep_models({})
            embed_pending(writer, HashingEmbedder())

    def nearest(text: str) -> str:
        return opened.search(SearchRequest(text, mode="dense")).hits[0].document.path

    index({"a.md": "glacier ice", "b.md": "harbour boats", "c.md": "orchard apples"})
    opened = open_with(database, loader)
    assert nearest("orchard apples") == "c.md"
    index({"a.md": "lava eruption", "b.md": "violin lesson", "c.md": "copper mine"})
    assert nearest("copper mine") == "c.md"
    opened.close()
