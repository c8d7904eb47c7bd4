"""Variables and settings in effect for a run."""

from __future__ import annotations

from pathlib import Path

from qmd.config.settings import Config
from qmd.plugins.doctor.effective_settings import effective_settings, effective_variables
from qmd.records import Collection


def test_what_is_set_is_shown_and_no_secret() -> None:
    environ = {
        "QMD_OFFLINE": "1",
        "QMD_API_KEY": "very-secret",
        "HF_TOKEN": "very-secret",
        "https_proxy": "http://me:very-secret@proxy:3128",
        "QMD_EMBED_URL": "https://me:very-secret@gpu/v1",
        "QMD_PAGER": "",
        "HOME": "/home/me",
    }
    assert {one.name: one.value for one in effective_variables(environ)} == {
        "QMD_OFFLINE": "1",
        "QMD_API_KEY": "(set)",
        "HF_TOKEN": "(set)",
        "HTTPS_PROXY": "http://…@proxy:3128",
        "QMD_EMBED_URL": "https://…@gpu/v1",
    }


def test_a_misspelled_variable_is_named() -> None:
    (one,) = effective_variables({"QMD_OFLINE": "1"})
    assert (one.name, one.value, one.effect) == ("QMD_OFLINE", "1", "no variable of this version; nearest: QMD_OFFLINE")


def test_a_variable_that_a_setting_overrules_says_so() -> None:
    config = Config(models={"generate": "qwen"})
    (one,) = effective_variables({"QMD_GENERATE_MODEL": "other"}, config)
    assert one.overruled_by == "models.generate"
    (one,) = effective_variables({"QMD_EMBED_MODEL": "other"}, config)
    assert one.overruled_by is None


def test_settings_at_their_defaults_are_left_out() -> None:
    plain = Collection("notes", Path("/notes"))
    chosen = Collection("work", Path("/work"), "*.txt", ignore=("a", "b"), include_by_default=False, gitignore=False)
    found = effective_settings(
        Config((plain, chosen), editor_uri="code://{path}", auto_update=False, writable=("work",)), {}
    )
    assert {one.name: one.value for one in found} == {
        "editor_uri": "code://{path}",
        "auto_update": "false",
        "collections.work.pattern": "*.txt",
        "collections.work.ignore": "a, b",
        "collections.work.gitignore": "false",
        "collections.work.includeByDefault": "false",
        "collections.work.agents_may_write": "true",
    }


def test_of_sampling_what_differs_from_the_default_is_shown() -> None:
    sampling = {"temperature": 0.9, "top_k": 20, "order": ["top_k", "temperature"], "seed": None}
    found = effective_settings(Config(sampling=sampling), {})
    assert {one.name: one.value for one in found} == {
        "sampling.temperature": "0.9",
        "sampling.order": "[top_k, temperature]",
        "sampling.seed": "null",
    }


def test_a_setting_that_is_overruled_or_not_trusted_says_so() -> None:
    config = Config(editor_uri="code://{path}", models={"embed": "x"})
    editor, embed = effective_settings(config, {"QMD_EDITOR_URI": "vim://{path}"})
    assert (editor.overruled_by, embed.overruled_by) == ("QMD_EDITOR_URI", None)
    editor, embed = effective_settings(config, {}, trusted=Config())
    assert (editor.overruled_by, embed.overruled_by) == ("the project is not trusted",) * 2


def test_what_is_said_of_the_embedding_model_is_shown_and_goes_before_the_environment() -> None:
    config = Config(models={"embed": "~/x", "embed.query_prompt": "ask: "})
    assert {one.name: one.value for one in effective_settings(config, {})} == {
        "models.embed": "~/x",
        "models.embed.query_prompt": "ask: ",
    }
    query, document = effective_variables({"QMD_EMBED_QUERY_PROMPT": "a", "QMD_EMBED_DOCUMENT_PROMPT": "b"}, config)
    assert (query.overruled_by, document.overruled_by) == ("models.embed.query_prompt", None)
