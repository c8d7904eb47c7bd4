"""Engine providers: selection by name, engines of another package, and the contract of every engine."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from qmd import plugins
from qmd.cli.app import main
from qmd.errors import ModelError
from qmd.inference.base import Embedder, EngineProvider, Expander, Reranker, engine_provider
from qmd.inference.loader import identify_embedder, load_engines
from qmd.inference.models.catalogue import QWEN_EXPANDER, QWEN_RERANKER
from qmd.inference.records import ModelChoice
from qmd.inference.settings import EngineSettings, provider_prefix
from tests.engine_contract import check_embedder, check_expander, check_reranker
from tests.fakes import FixedExpander, HashingEmbedder, OverlapReranker
from tests.inference.tiny_models import PUBLISHED, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer
from tests.plugins.fastembed.tiny_fastembed import CROSS_ENCODER, EMBEDDER, LATE, STATIC, place_fastembed
from tests.plugins.servers.model_server import serve_models


class HashingRoom(EngineProvider):
    """Provider of another package: one class, and one entry point that names its module."""

    def open_embedder(self, choice: ModelChoice, settings: EngineSettings) -> Embedder:
        return HashingEmbedder(dim=int(settings.model_for("embed").partition(":")[2]))


ENGINES = {"hashing:": f"{__name__}:HashingRoom"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package."""
    monkeypatch.setattr(plugins, "foreign", lambda: (SimpleNamespace(ENGINES=ENGINES),))


@pytest.mark.usefixtures("installed")
def test_an_embedder_of_another_package_is_opened_by_its_name(tmp_path: Path) -> None:
    settings = EngineSettings(tmp_path, embed="hashing:64")
    embedder = load_engines(settings, ["embed"]).embedder
    assert embedder is not None and embedder.dim == 64
    check_embedder(embedder)
    assert identify_embedder(settings) is None


@pytest.mark.usefixtures("installed")
def test_an_embedder_of_another_package_indexes_and_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("QMD_EMBED_MODEL", "hashing:64")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bread.md").write_text("# Bread\n\nSourdough starter wants flour.\n")
    assert main(["index", str(tmp_path / "notes")]) == 0
    capsys.readouterr()
    assert main(["vsearch", "sourdough flour", "--json"]) == 0
    assert [row["title"] for row in json.loads(capsys.readouterr().out)] == ["Bread"]


def test_a_row_that_names_no_provider_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "foreign", lambda: (SimpleNamespace(ENGINES={"hashing:": "json:dumps"}),))
    engines = load_engines(EngineSettings(tmp_path, embed="hashing:64"), ["embed"])
    reason = "'hashing:' of ENGINES names no EngineProvider"
    assert engines.failures == (f"embedding model 'hashing:64' cannot be used: {reason}",)


@pytest.mark.usefixtures("installed")
def test_a_role_that_a_room_does_not_serve_is_one_line_and_the_built_in_model_goes_on(tmp_path: Path) -> None:
    engines = load_engines(EngineSettings(tmp_path, rerank="hashing:64", expand="hashing:64"), ["rerank", "expand"])
    assert engines.reranker is not None and engines.reranker.description.tier == "built-in"
    assert engines.failures == (
        "reranking model 'hashing:64' cannot be used: it is no reranking model",
        "expansion model 'hashing:64' cannot be used: it is no model that expands queries",
    )


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("http://host/v1#name", "http://"),
        ("tei+https://host#name", "https://"),
        ("FastEmbed:BAAI/bge-small-en-v1.5", "fastembed:"),
        ("auto", None),
        ("built-in", None),
        ("Qwen3-0.6B", None),
        ("hf:tobil/qmd-query-expansion-1.7B-gguf/x.gguf", None),
        ("ollama:qwen3", None),
        (r"C:\models\mine", None),
        ("/models/a:b", None),
        ("./a b:c", None),
    ],
)
def test_no_package_is_asked_for_a_name_known_here(name: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "foreign", lambda: pytest.fail("the entry points were read"))
    assert provider_prefix(name) == key


def test_a_name_that_nobody_knows_is_neither_a_folder_nor_in_the_catalogue(tmp_path: Path) -> None:
    assert provider_prefix("hashing:64") is None
    notes = load_engines(EngineSettings(tmp_path, embed="hashing:64"), ["embed"]).notes
    assert ["neither a folder nor in the catalogue" in note for note in notes] == [True]


@pytest.mark.parametrize("key", plugins.ENGINES)
def test_every_row_names_a_room(key: str) -> None:
    assert isinstance(engine_provider(key), EngineProvider)


def test_a_room_that_serves_no_role_says_so_of_each() -> None:
    room = EngineProvider()
    for open_engine in (room.open_embedder, room.open_reranker, room.open_expander):
        with pytest.raises(ModelError, match="it is no "):
            open_engine(ModelChoice(), EngineSettings(Path()))


# The contract of every engine


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with tiny models: Qwen's graphs and fastembed's."""
    folder = tmp_path_factory.mktemp("models")
    scoring = replace(PUBLISHED, head="score", past=False, positions=False)
    for record, form in ((QWEN_RERANKER, scoring), (QWEN_EXPANDER, replace(PUBLISHED, linear="q4"))):
        write_tokenizer(folder / record.folder)
        write_model(folder / record.folder / record.formats[-1].weights.path, form, random_weights())
    for name in (EMBEDDER, CROSS_ENCODER, LATE, STATIC):
        place_fastembed(name, folder)
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serve_models() as running:
        yield f"{running.url}/v1#m"


def _settings(models: Path, asked: str, server: str) -> EngineSettings:
    asked = server if asked == "server" else asked
    return EngineSettings(models, embed=asked, rerank=asked, expand=asked, allow_gpu=False, threads=2)


@pytest.mark.parametrize("asked", ["built-in", EMBEDDER, STATIC, "server"])
def test_every_embedder_keeps_the_contract(asked: str, models: Path, server: str) -> None:
    embedder = load_engines(_settings(models, asked, server), ["embed"]).embedder
    assert embedder is not None
    check_embedder(embedder)


@pytest.mark.parametrize("asked", ["built-in", CROSS_ENCODER, LATE, "auto", "server"])
def test_every_reranker_keeps_the_contract(asked: str, models: Path, server: str) -> None:
    reranker = load_engines(_settings(models, asked, server), ["rerank"]).reranker
    assert reranker is not None and (reranker.description.tier == "built-in") is (asked == "built-in")
    check_reranker(reranker)


@pytest.mark.parametrize("asked", ["auto", "server"])
def test_every_expander_keeps_the_contract(asked: str, models: Path, server: str) -> None:
    expander = load_engines(_settings(models, asked, server), ["expand"]).expander
    assert expander is not None
    check_expander(expander)


def test_the_stand_ins_of_other_tests_keep_the_contract() -> None:
    reranker: Reranker = OverlapReranker()
    expander: Expander = FixedExpander()
    check_embedder(HashingEmbedder())
    check_reranker(reranker)
    check_expander(expander)
