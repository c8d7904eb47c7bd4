"""SECURITY.md sentence by sentence: every promise has a test."""

import ast
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from tests.program import Qmd, home, indexed, notes, qmd

__all__ = ["home", "indexed", "notes", "qmd"]

_ROOT = Path(__file__).parents[2]

PROMISES = {
    "something is sent to anyone who is not in its table,": """
        robustness/test_egress.py::test_nothing_leaves_the_machine_and_nothing_is_written_outside_the_own_folders
        plugins/models/test_hub_faults.py::test_the_access_token_goes_to_the_hub_and_to_no_other_host
        test_telemetry.py::test_loading_the_runtime_leaves_no_device_id_behind""",
    "or without the user's asking for it;": """
        plugins/models/test_downloads.py::test_offline_opens_no_socket
        plugins/servers/test_cli_remote_engines.py::test_offline_use_sends_nothing_to_another_machine
        plugins/warm/test_background.py::test_a_model_server_is_sent_no_texts_before_somebody_began""",
    "a file that qmd keeps can be read by other users of the machine,": """
        cli/test_cli_permissions.py::test_an_index_of_private_notes_is_private
        test_files.py::test_a_new_file_is_private_from_its_first_byte
        plugins/browse/test_saved.py::test_the_file_is_the_users_alone""",
    "or lies outside the folders that the page lists;": """
        robustness/test_egress.py::test_nothing_leaves_the_machine_and_nothing_is_written_outside_the_own_folders
        docs/test_security.py::test_all_that_is_kept_is_in_the_table_of_the_privacy_page""",
    "a note, a file name, a cloned project's `.qmd/`, a model's file or a server's answer makes qmd run a command,": """
        plugins/editor/test_cli_opening.py::test_no_shell_reads_the_name_of_a_note
        plugins/editor/test_launching.py::test_no_part_of_a_name_is_a_command_for_a_batch_file
        conformance/test_known_defects_of_the_original.py::test_23_a_checkout_reads_only_itself_and_runs_nothing
        plugins/warm/test_lifecycle.py::test_a_server_started_in_a_strangers_folder_takes_no_module_of_it
        robustness/test_fuzz.py::test_no_input_ends_in_anything_but_an_answer_or_one_line_of_refusal""",
    "read or write outside the collections,": """
        plugins/mcp/test_mcp_tools.py::test_get_reads_nothing_outside_the_index
        plugins/models/test_hostile_imports.py::test_a_path_between_folders_stays_below
        api/test_freshness.py::test_a_project_does_not_make_a_search_look_outside_of_it
        robustness/test_fuzz.py::test_the_watch_over_everything_outside_notices_what_is_done_there""",
    "follow a link out of them,": """
        ingest/test_ingest_scan.py::test_linked_folders_are_not_followed
        plugins/models/test_hostile_imports.py::test_a_link_in_a_models_folder_is_not_followed_out_of_it
        cli/test_cli_strange_projects.py::test_a_link_among_the_files_of_a_project_is_refused_by_name_and_leads_nowhere""",
    "send sequences of its own to a terminal,": """
        cli/test_cli_terminal.py::test_no_command_lets_a_stranger_steer_the_terminal
        cli/test_cli_terminal.py::test_what_an_update_command_prints_is_spelled_out
        plugins/browse/test_browse.py::test_what_a_note_holds_cannot_steer_the_terminal
        plugins/office/test_converting.py::test_of_all_that_a_reader_prints_one_line_is_shown_where_it_crashed""",
    "or add a row or a sentence of qmd's to an answer for an agent;": """
        plugins/mcp/test_hostile_notes.py::test_a_file_name_of_several_lines_is_one_row
        plugins/mcp/test_hostile_notes.py::test_a_line_of_a_note_ends_at_a_line_feed_alone
        plugins/test_foreign_text.py::test_every_field_of_a_record_is_one_line_in_answers""",
    "a note that is shown on the page of `qmd serve` runs a script,": """
        plugins/page/test_note_html.py::test_nothing_that_a_note_holds_runs_or_leads_astray
        plugins/page/test_page_in_browser.py::test_a_hostile_note_runs_nothing_and_reaches_nobody""",
    "makes the browser ask anyone but qmd,": """
        plugins/page/test_note_html.py::test_a_picture_comes_from_this_server_or_is_a_link
        plugins/page/test_page.py::test_every_answer_of_the_page_forbids_what_it_does_not_need""",
    """or makes qmd hand out a file that is no picture of its collection, or lies in a place that the collection leaves
    out;""": """
        plugins/page/test_page.py::test_nothing_but_pictures_of_the_collection_is_given_out
        plugins/page/test_pictures.py::test_no_picture_is_given_out_of_what_is_ignored_excluded_or_hidden""",
    "or another web page can read or frame that page, or search through it for more than words;": """
        plugins/page/test_page.py::test_other_pages_can_neither_ask_nor_embed
        plugins/page/test_page.py::test_a_link_of_another_page_runs_no_model""",
    """a project's configuration takes effect in what needs trust (commands, links, models) before `qmd trust`,""": """
        config/test_config_trust.py::test_hooks_outside_paths_models_and_links_need_trust
        config/test_config_trust.py::test_trust_ends_when_what_was_trusted_changes
        config/test_config_trust.py::test_links_of_a_strange_project_are_not_followed
        plugins/mcp/test_service_trust.py::test_models_of_an_untrusted_project_are_not_used""",
    """or its contexts reach the instructions of the MCP server, or text in any form but a quotation of one line, before
    that;""": """
        plugins/mcp/test_service_trust.py::test_untrusted_contexts_stay_out_of_instructions_and_are_quoted_in_answers
        cli/test_cli_project.py::test_untrusted_contexts_are_one_quoted_line_in_text_and_whole_in_json
        cli/test_cli_project.py::test_contexts_in_the_index_alone_are_quoted_too""",
    "or an index that came with the project is answered from;": """
        cli/test_cli_strange_projects.py::test_an_index_that_came_with_a_clone_answers_nothing_and_is_built_again
        cli/test_cli_strange_projects.py::test_its_vectors_are_not_kept_either""",
    "`qmd install` changes more of a file than qmd's own entry,": """
        plugins/install/test_cli_install.py::test_an_entry_goes_in_once_and_leaves_the_bytes_that_were_there
        plugins/install/test_cli_install.py::test_the_hook_joins_the_hooks_that_are_there""",
    "or follows a link of a project;": "plugins/install/test_cli_install.py::test_a_strangers_project_leads_nowhere",
    "opening what was found (`qmd open`, `o` in browse, a click on a result) runs it;": """
        plugins/editor/test_cli_opening.py::test_a_file_that_is_no_note_is_opened_or_refused
        plugins/editor/test_launching.py::test_a_file_that_a_desktop_might_run_goes_to_an_editor_or_nowhere""",
    "somebody without the token reaches a server that listens beyond the loopback interface,": """
        plugins/mcp/test_http.py::test_every_route_asks_for_the_token
        plugins/mcp/test_http_connections.py::test_a_body_of_two_lengths_is_refused_and_nothing_after_it_is_read""",
    "or a web page in a browser reaches one on it (origin and host are checked);": """
        plugins/mcp/test_http.py::test_every_route_refuses_foreign_hosts
        plugins/mcp/test_http.py::test_every_route_refuses_foreign_origins""",
    "another account of the same Linux machine gets anything but `/health` from a server without the token,": """
        plugins/mcp/test_page_key.py::test_another_account_is_told_in_one_line_and_gets_nothing_but_health
        plugins/mcp/test_other_accounts.py::test_a_server_answers_its_owner_alone""",
    """or on macOS and Windows the page without its key (there programs of other accounts reach `/mcp` and `/query` of a
    server that has no token);""": """
        plugins/mcp/test_other_accounts.py::test_where_the_system_does_not_name_owners_the_address_has_the_key""",
    """an agent, a project's configuration or a web page makes qmd write a note where the user's own configuration does
    not let agents write,""": """
        plugins/mcp/test_mcp_add.py::test_without_the_switch_there_is_no_tool
        plugins/mcp/test_mcp_add.py::test_the_switch_of_a_project_is_not_heard
        plugins/mcp/test_mcp_add.py::test_a_page_in_a_browser_cannot_write""",
    "change what a note says,": """
        plugins/adding/test_adding.py::test_daily_notes_and_named_ones_grow_at_their_end
        plugins/adding/test_adding.py::test_what_an_editor_saves_meanwhile_is_kept_and_so_is_the_entry""",
    "or put a file where no note can be,": """
        plugins/adding/test_adding.py::test_nothing_is_written_where_no_note_can_be
        plugins/adding/test_adding.py::test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere""",
    "or one that programs obey (`AGENTS.md`);": """
        plugins/adding/test_adding.py::test_names_that_agents_obey_are_refused
        plugins/adding/test_adding.py::test_where_the_file_system_ignores_case_small_letters_open_the_same_file""",
    "one file, pattern, query or request keeps a command or a server busy for good,": """
        indexing/test_skipped_files.py::test_a_file_that_takes_too_long_is_left_out_and_the_rest_is_read
        ingest/test_ingest_masks.py::test_no_mask_makes_matching_hang
        plugins/warm/test_deadline.py::test_a_search_that_takes_too_long_ends_and_gives_the_models_back
        plugins/mcp/test_http_connections.py::test_half_a_request_is_not_waited_for""",
    "or takes memory out of proportion to its size;": """
        plugins/office/test_converting.py::test_a_reader_that_eats_memory_fails_alone_and_one_process_reads_the_rest
        plugins/readers/test_books.py::test_a_book_that_unpacks_to_too_much_is_read_to_a_bound
        plugins/mcp/test_http.py::test_oversized_bodies_are_refused_with_and_without_length""",
    "a damaged or hostile index is answered from as if it were whole,": """
        store/test_store_damage.py::test_damage_in_any_table_is_found_by_the_reader_that_meets_it_and_by_check
        cli/test_cli_strange_projects.py::test_an_index_with_more_in_it_than_we_make_is_set_aside""",
    "or a crash loses what was confirmed.": """
        robustness/test_crash_states.py::test_whatever_a_crash_leaves_opens_and_the_repeated_command_completes_it
        indexing/test_killed_runs.py::test_a_run_killed_anywhere_and_repeated_equals_an_undisturbed_one""",
}
"""Part of a sentence of SECURITY.md → the tests that check it, below `tests/`. In the order of the page, and in all
its list "It is a vulnerability when": for a new promise add a row."""


def _unchecked(page: str, promises: dict[str, str]) -> str:
    """Return the first words of the list without a row, or the row without words or tests; empty without either."""
    listed = page.partition("It is a vulnerability when\n")[2].partition("\n## ")[0]
    rest = " ".join(re.sub(r"^- ", "", listed, flags=re.MULTILINE).split())
    for promise, tests in promises.items():
        words = " ".join(promise.split())
        if not rest.startswith(words):
            return f"no row: {rest[:99]}"
        missing = [test for test in tests.split() if not _exists(test)]
        if missing or not tests.split():
            return f"no test: {words} {' '.join(missing)}"
        rest = rest.removeprefix(words).lstrip()
    return rest and f"no row: {rest[:99]}"


def _exists(test: str) -> bool:
    file, _, name = test.partition("::")
    return name.startswith("test_") and name in _functions(_ROOT / "tests" / file)


@cache
def _functions(file: Path) -> set[str]:
    body = ast.parse(file.read_text("utf-8")).body if file.is_file() else []
    return {one.name for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_promise_has_a_test() -> None:
    assert _unchecked((_ROOT / "SECURITY.md").read_text("utf-8"), PROMISES) == ""


def test_a_promise_without_a_row_or_a_test_is_noticed() -> None:
    page = "It is a vulnerability when\n\n- a note\n  runs, or\n- sings.\n\n## Next\n\nmore"
    here = "docs/test_security.py::test_every_promise_has_a_test"
    assert _unchecked(page, {"a note runs,": here, "or": here, "sings.": f"{here} {here}"}) == ""
    assert _unchecked(page, {"a note runs,": here, "or": here}) == "no row: sings."
    assert _unchecked(page, {"a note runs,": here, "sings.": here}) == "no row: or sings."
    for tests in ("", "docs/test_security.py::test_x", "docs/none.py::test_x", "docs/test_security.py::_functions"):
        assert _unchecked(page, {"a note runs, or sings.": tests}).startswith("no test: a note runs, or sings. ")


def _kept_files() -> list[str]:
    """Return patterns of the files in the table of the privacy page."""
    table = (_ROOT / "docs/privacy.md").read_text("utf-8").partition("## Stored data")[2]
    patterns, last = [], ""
    for cell in re.findall(r"^\| (`~/.*?) \|", table, re.MULTILINE):
        for name in re.findall("`([^`]+)`", cell.replace(".index.yml.lock` and similar", ".*.lock`")):
            is_suffix = name.startswith(("-", "…"))
            place = name if name.startswith("~/") else f"{last if is_suffix else str(Path(last).parent) + '/'}{name}"
            place = place.replace("/….", ".").replace("…", "").replace("NAME", "*")
            patterns.append(f"{place}*" if place.endswith("/") else place)
            last = last if is_suffix else place
    return patterns


def test_all_that_is_kept_is_in_the_table_of_the_privacy_page(indexed: Qmd, notes: Path, tmp_path: Path) -> None:
    database = tmp_path / "cache/qmd/index.sqlite"
    raw = database.read_bytes()
    database.write_bytes(raw[:9_000] + b"\xff" * (len(raw) - 9_000))
    for line in ("index --no-embed", "save mine pricing", "add remember", "search pricing", "trust", "cleanup"):
        indexed(*line.split())
    kept = {
        f"~/.{place.relative_to(tmp_path)}"
        for folder in ("config", "cache")
        for place in (tmp_path / folder).rglob("*")
        if place.is_file()
    }
    assert "~/.cache/qmd/index.sqlite.damaged" in kept
    assert {one for one in kept if not any(fnmatchcase(one, pattern) for pattern in _kept_files())} == set()
