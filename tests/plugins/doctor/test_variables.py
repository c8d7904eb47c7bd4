"""The list of environment variables and settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qmd.config.settings import AUTO_UPDATE_KEY
from qmd.inference.settings import ENV_STEMS
from qmd.plugins.doctor.variables import SETTINGS, VARIABLES, Setting, Variable
from qmd.plugins.qwen.settings import SAMPLING_NAMES

PACKAGE = Path(__file__).parents[3] / "qmd"
OF_A_ROLE = {f"{stem}{end}" for stem in ENV_STEMS.values() for end in ("_MODEL", "_URL", "_API", "_API_KEY")}
OF_A_ROLE |= {f"{ENV_STEMS[role]}_FORM" for role in ("rerank", "expand")}
"""Variables whose names the code assembles when it reads them."""


def read_by_the_code() -> set[str]:
    """Return the `QMD_` variables in any module but the list."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        if file.name != "variables.py":
            found |= set(re.findall(r"\bQMD_[A-Z][A-Z_]*[A-Z]\b", file.read_text("utf-8")))
    return (found - set(ENV_STEMS.values())) | OF_A_ROLE


def test_every_variable_that_the_code_reads_is_listed_and_every_listed_one_is_read() -> None:
    assert {one.name for one in VARIABLES if one.name.startswith("QMD_")} == read_by_the_code()


def test_no_variable_is_listed_twice() -> None:
    names = [one.name for one in VARIABLES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("one", VARIABLES, ids=lambda one: one.name)
def test_an_effect_is_one_short_line(one: Variable) -> None:
    assert "\n" not in one.effect and len(one.effect) <= 72 and not one.effect.endswith(".")


def test_every_setting_is_one_that_the_configuration_reads() -> None:
    source = (PACKAGE / "config" / "settings.py").read_text("utf-8") + (PACKAGE / "app" / "resources.py").read_text()
    others = [one for one in SETTINGS if not one.key.startswith("sampling.")]
    for one in others:
        names = (one.key.rpartition(".")[2], one.key.removeprefix("models."))
        assert any(f'"{name}"' in source for name in names), one.key


def test_every_setting_of_sampling_is_listed_with_its_default() -> None:
    listed = [one.key.removeprefix("sampling.") for one in SETTINGS if one.key.startswith("sampling.")]
    assert listed == list(SAMPLING_NAMES)
    assert {one.default for one in SETTINGS if one.key == "sampling.top_k"} == {"20"}


@pytest.mark.parametrize("one", SETTINGS, ids=lambda one: one.key)
def test_the_effect_of_a_setting_is_one_short_line(one: Setting) -> None:
    assert "\n" not in one.effect and len(one.effect) <= 72 and not one.effect.endswith(".")


def test_every_key_that_the_configuration_reads_is_a_setting() -> None:
    source = (PACKAGE / "config" / "settings.py").read_text("utf-8")
    read = set(re.findall(r'(?:content|entry)\.get\("(\w+)"', source)) | {AUTO_UPDATE_KEY}
    assert read - {"collections", "models"} <= {one.key.rpartition(".")[2] for one in SETTINGS}
