from pathlib import Path

import pytest

from qmd.config.paths import Locations, locate
from qmd.config.project import read_trust
from qmd.config.settings import load_config
from qmd.config.trust import gated_items, is_trusted, record_trust, revoke_trust, trusted_part


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    (tmp_path / "p/.qmd").mkdir(parents=True)
    (tmp_path / "p/.qmd/index.yml").write_text("")
    environ = {"HOME": str(tmp_path / "home"), "QMD_CONFIG_DIR": str(tmp_path / "config")}
    return locate(None, tmp_path / "p", environ)


def write(places: Locations, text: str) -> None:
    places.config_file.write_text(text)


HOOK = "collections: {a: {path: ., update: 'curl evil'}}"


def test_a_collection_inside_the_project_needs_no_trust(places: Locations) -> None:
    write(places, "collections: {a: {path: docs}}")
    assert is_trusted(gated_items(load_config(places), places), places, {})


@pytest.mark.parametrize(
    "text",
    [
        HOOK,
        "collections: {a: {path: /etc}}",
        "collections: {a: {path: ../up}}",
        "models: {embed: 'hf:x/y'}",
        "models: {embed: {model: auto, query_prompt: 'x'}}",
        "models: {rerank: {context: 600}}",
        "models: {gpu_layers: 0}",
        "editor_uri: 'https://evil.example/?{path}'",
    ],
)
def test_hooks_outside_paths_models_and_links_need_trust(places: Locations, text: str) -> None:
    write(places, text)
    assert not is_trusted(gated_items(load_config(places), places), places, {})


def test_a_symlink_out_of_the_project_needs_trust(places: Locations, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "p/docs").symlink_to(tmp_path / "outside")
    write(places, "collections: {a: {path: docs}}")
    assert gated_items(load_config(places), places).paths == (("a", str((tmp_path / "outside").resolve())),)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (HOOK, HOOK.replace("evil", "worse")),
        (f"{HOOK}\neditor_uri: 'vscode://file/{{path}}'", f"{HOOK}\neditor_uri: 'https://evil.example/?{{path}}'"),
    ],
    ids=["items", "links"],
)
def test_trust_ends_when_what_was_trusted_changes(places: Locations, before: str, after: str) -> None:
    write(places, before)
    items = gated_items(load_config(places), places)
    record_trust(items, places)
    assert is_trusted(items, places, {})
    write(places, after)
    assert not is_trusted(gated_items(load_config(places), places), places, {})


def test_models_of_a_strange_project_are_not_used(places: Locations) -> None:
    write(places, "models: {embed: 'hf:x/y', rerank: built-in}")
    config = load_config(places)
    assert dict(trusted_part(config, places, {}).models) == {"rerank": "built-in"}


def test_revoking_ends_trust(places: Locations) -> None:
    write(places, HOOK)
    items = gated_items(load_config(places), places)
    record_trust(items, places)
    assert list(read_trust(places.config_dir)) == [str(places.config_file)]
    assert revoke_trust(places)
    assert not revoke_trust(places)
    assert not is_trusted(items, places, {})


@pytest.mark.parametrize(("value", "trusted"), [("1", True), ("0", False), ("off", False), ("", False)])
def test_the_environment_can_vouch(places: Locations, value: str, trusted: bool) -> None:
    write(places, HOOK)
    items = gated_items(load_config(places), places)
    assert is_trusted(items, places, {"QMD_TRUST_LOCAL_CONFIG": value}) is trusted


def test_a_damaged_record_trusts_nothing(places: Locations) -> None:
    write(places, HOOK)
    items = gated_items(load_config(places), places)
    record_trust(items, places)
    (places.config_dir / "trusted.json").write_text("[")
    assert not is_trusted(items, places, {})


def test_the_users_own_configuration_needs_no_trust(tmp_path: Path) -> None:
    places = locate(None, tmp_path, {"HOME": str(tmp_path), "QMD_CONFIG_DIR": str(tmp_path / "c")})
    (tmp_path / "c").mkdir()
    write(places, HOOK)
    assert not gated_items(load_config(places), places)


def test_links_of_a_strange_project_are_not_followed(places: Locations) -> None:
    write(places, "editor_uri: 'https://evil.example/?{path}'")
    config = load_config(places)
    assert trusted_part(config, places, {}).editor_uri is None
    record_trust(gated_items(config, places), places)
    assert trusted_part(config, places, {}).editor_uri == config.editor_uri
