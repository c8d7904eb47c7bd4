"""Servers use the models of a project's configuration only if the user trusts it."""

from pathlib import Path

import pytest

from qmd.app.configuration import FileConfiguration
from qmd.app.index import Index
from qmd.app.notices import Notices
from qmd.config.paths import Locations, locate
from qmd.config.settings import load_config
from qmd.config.trust import gated_items, record_trust
from qmd.inference.settings import EngineSettings

CONFIG = "collections: {a: {path: docs}}\nmodels: {embed: 'hf:x/y', rerank: built-in}\n"


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    folder = tmp_path / "project" / ".qmd"
    folder.mkdir(parents=True)
    (folder / "index.yml").write_text(CONFIG, encoding="utf-8")
    environ = {"HOME": str(tmp_path / "home"), "QMD_CONFIG_DIR": str(tmp_path / "config")}
    return locate(None, tmp_path / "project", environ)


def settings_of(places: Locations, **environ: str) -> EngineSettings:
    return Index(places, FileConfiguration(places, environ, Notices()), environ).engine_settings()


def test_models_of_an_untrusted_project_are_not_used(places: Locations) -> None:
    assert settings_of(places).embed == "auto"


def test_models_of_a_trusted_project_are_used(places: Locations) -> None:
    record_trust(gated_items(load_config(places), places), places)
    assert settings_of(places).embed == "hf:x/y"


def test_only_variables_of_this_program_reach_the_engines(places: Locations) -> None:
    assert settings_of(places, QMD_FORCE_CPU="1", PATH="/bin").env == {"QMD_FORCE_CPU": "1"}
