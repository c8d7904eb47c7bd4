from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.config.edits import (
    add_collection,
    remove_collection,
    remove_context,
    set_collection,
    set_context,
    set_global_context,
)
from qmd.config.paths import Locations, locate
from qmd.config.settings import config_digest, load_config, needs_full_config
from qmd.errors import ConfigError, NotFoundError
from qmd.plugins.qwen.settings import DEFAULT_SAMPLING, read_sampling


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    folder = tmp_path / "config"
    folder.mkdir()
    environ = {"HOME": str(tmp_path / "home"), "QMD_CONFIG_DIR": str(folder), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return locate(None, tmp_path, environ)


COMMENTED = """\
# my notes
global_context: "everything"   # shown everywhere
collections:
  notes:
    path: ~/notes   # synced
    pattern: "**/*.md"
    ignore:
      - "drafts/**"
    context:
      "/work": "about work"
  code: {path: src, includeByDefault: false, update: git pull}
"""


def test_a_missing_file_is_an_empty_configuration(places: Locations) -> None:
    assert load_config(places).collections == ()


def test_every_setting_of_a_collection_is_read(places: Locations) -> None:
    places.config_file.write_text(COMMENTED)
    config = load_config(places)
    notes, code = config.collections
    assert config.global_context == "everything"
    assert notes.ignore == ("drafts/**",)
    assert notes.context == {"/work": "about work"}
    assert (code.include_by_default, code.update_command, code.pattern) == (False, "git pull", "**/*.md")


def test_a_tilde_in_a_collection_path_is_the_home_folder(places: Locations) -> None:
    places.config_file.write_text(COMMENTED)
    assert load_config(places).collections[0].path == places.home / "notes"


def test_a_relative_path_starts_at_the_configuration_folder(places: Locations) -> None:
    places.config_file.write_text(COMMENTED)
    assert load_config(places).collections[1].path == places.config_file.parent / "src"


def test_a_relative_path_in_a_project_starts_at_the_project_root_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / ".qmd").mkdir()
    (tmp_path / ".qmd/index.yml").write_text("collections: {docs: {path: docs}}")
    (tmp_path / "deep").mkdir()
    places = locate(None, tmp_path / "deep", {"HOME": str(tmp_path)})
    assert load_config(places).collections[0].path == tmp_path / "docs"


@pytest.mark.parametrize("text", ["collections: [", "- a", "collections: {a: 3}", "collections: {a: {}}", "a: 1\na: 2"])
def test_a_broken_file_is_refused_with_its_name(places: Locations, text: str) -> None:
    places.config_file.write_text(text)
    with pytest.raises(ConfigError, match=r"index\.yml"):
        load_config(places)


def test_the_digest_changes_with_the_file_and_the_folder_of_its_paths(places: Locations, tmp_path: Path) -> None:
    places.config_file.write_text("collections: {}")
    first = config_digest(places)
    places.config_file.write_text("collections: {} #")
    assert config_digest(places) != first
    other = locate(None, tmp_path, {"HOME": "/other", "QMD_CONFIG_DIR": str(places.config_dir)})
    assert config_digest(other) != config_digest(places)


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("embed: ~/x", {"embed": "~/x"}),
        ("embed: {url: 'http://h/v1', model: m}", {"embed": "http://h/v1#m"}),
        (
            "embed: {model: ~/x, query_prompt: 'query: ', document_prompt: '', dim: 256}",
            {"embed": "~/x", "embed.query_prompt": "query: ", "embed.document_prompt": "", "embed.dim": "256"},
        ),
        ("rerank: {model: ~/x, dim: 256}", {"rerank": "~/x"}),
        ("rerank: {context: 700}", {"rerank": "auto", "rerank.context": "700"}),
        (
            "generate: {max_tokens: 60}, gpu_layers: 0, threads: 2",
            {"generate": "auto", "threads": "2", "generate.max_tokens": "60", "gpu_layers": "0"},
        ),
    ],
)
def test_a_model_is_a_word_or_a_mapping_with_its_use(places: Locations, text: str, models: dict[str, str]) -> None:
    places.config_file.write_text(f"models: {{{text}}}")
    assert load_config(places).models == models


def test_a_model_without_a_name_is_refused(places: Locations) -> None:
    places.config_file.write_text("models: {embed: {query_prompt: 'query: '}}")
    with pytest.raises(ConfigError, match=r"models\.embed in .*'model'"):
        load_config(places)


def test_only_models_and_editor_links_need_the_whole_file(places: Locations) -> None:
    places.config_file.write_text(COMMENTED)
    assert not needs_full_config(places)
    for text in ("editorUri: 'zed://{path}'", "sampling: {top_k: 40}"):
        places.config_file.write_text(text)
        assert needs_full_config(places)


def test_what_is_written_about_sampling_replaces_the_defaults_one_by_one(places: Locations) -> None:
    places.config_file.write_text("sampling:\n  top_k: 40\n  order: [penalties, temperature]\n  seed:\n")
    written = load_config(places).sampling
    assert written is not None
    assert read_sampling(written) == replace(DEFAULT_SAMPLING, top_k=40, order=("penalties", "temperature"), seed=None)
    places.config_file.write_text("sampling:\n")
    assert load_config(places).sampling is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("top_p: 1.5", "sampling.top_p in '{file}' must be a number <= 1.0, not 1.5"),
        ("temperature: hot", "sampling.temperature in '{file}' must be a number, not 'hot'"),
        ("temperature: .inf", "sampling.temperature in '{file}' must be a number <= 100.0, not inf"),
        ("top_k: 2.5", "sampling.top_k in '{file}' must be a whole number, not 2.5"),
        ("dry_breakers: x", "sampling.dry_breakers in '{file}' must be a list, not 'x'"),
        (
            "order: [top_k, topp]",
            "sampling.order in '{file}' must be transformers or llama.cpp or a list of penalties, dry, top_n_sigma, "
            "top_k, typical_p, top_p, min_p, xtc, temperature, not ['top_k', 'topp']",
        ),
        ("topk: 3", "sampling in '{file}' has no setting 'topk'"),
        ("3", "sampling in '{file}' must be a mapping, not 3"),
    ],
)
def test_a_wrong_value_of_sampling_names_the_expected_one(places: Locations, written: str, message: str) -> None:
    places.config_file.write_text(f"sampling: {'{' + written + '}' if ':' in written else written}")
    with pytest.raises(ConfigError) as caught:
        load_config(places)
    assert caught.value.message == message.replace("{file}", str(places.config_file))


def test_adding_a_collection_keeps_comments_and_everything_else(places: Locations) -> None:
    places.config_file.write_text(COMMENTED)
    add_collection(places, "new", Path("/srv/new"))
    assert places.config_file.read_text().startswith(COMMENTED.rstrip())
    assert load_config(places).collections[-1].path == Path("/srv/new")


def test_an_empty_flow_mapping_grows_as_a_block(places: Locations) -> None:
    places.config_file.write_text("collections: {}\n")
    add_collection(places, "a", Path("/srv/a"))
    assert "collections: {" not in places.config_file.read_text()


def test_an_edit_that_changes_nothing_leaves_the_file_alone(places: Locations) -> None:
    odd = "collections:   {a:   {path: /a}}\n"
    places.config_file.write_text(odd)
    before = places.config_file.stat().st_mtime_ns
    remove_collection(places, "unknown")
    with pytest.raises(NotFoundError):
        remove_context(places, "a", "nothing")
    assert places.config_file.read_text() == odd
    assert places.config_file.stat().st_mtime_ns == before


def test_edits_of_a_collection_can_be_read_back(places: Locations) -> None:
    add_collection(places, "a", Path("/a"))
    set_collection(places, "a", {"update": "make notes"})
    set_collection(places, "a", {"includeByDefault": False})
    set_global_context(places, "all: of it")
    config = set_collection(places, "a", {}, "b")
    (collection,) = config.collections
    assert (collection.name, collection.update_command, collection.include_by_default) == ("b", "make notes", False)
    assert config.global_context == "all: of it"
    assert remove_collection(places, "b").collections == ()


def test_including_again_removes_the_key(places: Locations) -> None:
    add_collection(places, "a", Path("/a"))
    set_collection(places, "a", {"includeByDefault": False})
    set_collection(places, "a", {"includeByDefault": None})
    assert "includeByDefault" not in places.config_file.read_text()


def test_a_context_written_with_a_slash_is_found_without_one(places: Locations) -> None:
    places.config_file.write_text(COMMENTED)
    config = set_context(places, "notes", "work", "changed")
    assert config.collections[0].context == {"/work": "changed"}
    assert remove_context(places, "notes", "work").collections[0].context == {}
    assert "context" not in places.config_file.read_text().split("notes:")[1]


def test_a_symlinked_configuration_stays_a_symlink(places: Locations, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.yml"
    real.write_text("# mine\n")
    places.config_file.symlink_to(real)
    add_collection(places, "a", Path("/a"))
    assert places.config_file.is_symlink()
    assert "/a" in real.read_text()
