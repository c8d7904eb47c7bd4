"""Hooks: functions of plug-ins that the core and other plug-ins call, each imported when it is first used.

A caller writes `hooks.server_of(locations)`. Type checkers see the function itself, so a call that does not fit its
signature is an error. Hooks of plug-ins form no cycle. A test compares `MODULES` with the imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.plugins import load

if TYPE_CHECKING:
    from qmd.plugins.adding.notes import add_for_agent as add_for_agent
    from qmd.plugins.browse.command import pick_note as pick_note
    from qmd.plugins.code.declarations import find_declarations as find_declarations
    from qmd.plugins.code.languages import has_grammar as has_grammar
    from qmd.plugins.doctor.effective_settings import unknown_variables as unknown_variables
    from qmd.plugins.editor.command import open_found as open_found
    from qmd.plugins.fastembed.available import list_available_models as list_available_models
    from qmd.plugins.install.command import print_settings as print_settings
    from qmd.plugins.models.formats.sentence_transformers import describe_folder as describe_folder
    from qmd.plugins.models.formats.sources import gguf_remedy as gguf_remedy
    from qmd.plugins.pack.packing import pack as pack
    from qmd.plugins.page.page import page_routes as page_routes
    from qmd.plugins.qwen.decoder_signature import read_signature as read_signature
    from qmd.plugins.qwen.expansion_checks import check_expansions as check_expansions
    from qmd.plugins.qwen.rerank_runs import prompt_logits as prompt_logits
    from qmd.plugins.qwen.settings import SAMPLING_NAMES as SAMPLING_NAMES
    from qmd.plugins.qwen.settings import changed_sampling as changed_sampling
    from qmd.plugins.qwen.settings import expected_sampling as expected_sampling
    from qmd.plugins.qwen.settings import sampling_effects as sampling_effects
    from qmd.plugins.readers.markup import read_html as read_html
    from qmd.plugins.warm.lifecycle import server_of as server_of
    from qmd.plugins.warm.record import serving_process as serving_process
    from qmd.plugins.warm.remote_index import warm_index as warm_index
    from qmd.plugins.watch.command import watch_in_background as watch_in_background

MODULES = {
    "add_for_agent": "qmd.plugins.adding.notes",
    "pick_note": "qmd.plugins.browse.command",
    "find_declarations": "qmd.plugins.code.declarations",
    "has_grammar": "qmd.plugins.code.languages",
    "unknown_variables": "qmd.plugins.doctor.effective_settings",
    "open_found": "qmd.plugins.editor.command",
    "list_available_models": "qmd.plugins.fastembed.available",
    "print_settings": "qmd.plugins.install.command",
    "describe_folder": "qmd.plugins.models.formats.sentence_transformers",
    "gguf_remedy": "qmd.plugins.models.formats.sources",
    "pack": "qmd.plugins.pack.packing",
    "page_routes": "qmd.plugins.page.page",
    "read_signature": "qmd.plugins.qwen.decoder_signature",
    "check_expansions": "qmd.plugins.qwen.expansion_checks",
    "prompt_logits": "qmd.plugins.qwen.rerank_runs",
    "SAMPLING_NAMES": "qmd.plugins.qwen.settings",
    "changed_sampling": "qmd.plugins.qwen.settings",
    "expected_sampling": "qmd.plugins.qwen.settings",
    "sampling_effects": "qmd.plugins.qwen.settings",
    "read_html": "qmd.plugins.readers.markup",
    "server_of": "qmd.plugins.warm.lifecycle",
    "serving_process": "qmd.plugins.warm.record",
    "warm_index": "qmd.plugins.warm.remote_index",
    "watch_in_background": "qmd.plugins.watch.command",
}
"""Name of a hook -> the module that defines it."""

# Type checkers do not see this function: with it they would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the module of a hook and return the hook."""
        if name not in MODULES:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return load(f"{MODULES[name]}:{name}")
