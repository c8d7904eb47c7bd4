"""`get`, `multi-get` and `ls`: show and list documents."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace
from typer import Argument, Option

from qmd.app.disk_paths import linker
from qmd.app.records import DEFAULT_MAX_BYTES, DocumentText, DocumentTexts, SkippedDocument
from qmd.cli import completion
from qmd.cli.invocation import Invocation
from qmd.cli.options import FullPath, Index, NoLineNumbers, Output, Tokens
from qmd.cli.output import out, report, say, warn
from qmd.errors import EXIT_NOT_FOUND, NotFoundError, QmdError, nearest_name
from qmd.escapes import address_line
from qmd.render.formats import FetchedDocument, file_identifier, render_document, render_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from qmd.app.index import Index as OpenIndex
    from qmd.config.paths import Locations
    from qmd.records import Collection, StoredDocument
    from qmd.status import CollectionStatus

_INDEX_SUFFIX = re.compile(r"\?index=(?P<index>[^/?:]+)")
File = Annotated[
    list[str],
    Argument(
        help="Paths, names, links or #docids; :10:5, :10-14 or #HEADING selects lines.",
        autocompletion=completion.documents,
    ),
]
Pattern = Annotated[list[str], Argument(help="Globs, paths, names or docids.", autocompletion=completion.documents)]
Folder = Annotated[
    list[str] | None, Argument(help="Collection, or collection/prefix.", autocompletion=completion.folders)
]
Lines = Annotated[int | None, Option("-l", "--l", metavar="N", min=1, help="Show at most N lines.")]
_FOLDERS_NAMED = 5


class LineOptions(Struct, frozen=True):
    """Options for lines and names of documents."""

    line_numbers: Annotated[bool, Option("--line-numbers", help="Show line numbers (the default).")] = True
    no_line_numbers: NoLineNumbers = False
    full_path: FullPath = False
    plain: Annotated[bool, Option("--plain", help="Show the unformatted text, also on a terminal.")] = False
    tokens: Tokens = None

    @property
    def numbered(self) -> bool:
        return self.line_numbers and not self.no_line_numbers

    @property
    def is_plain(self) -> bool:
        """Whether to show the unformatted text; a budget of tokens counts that form."""
        return self.plain or self.tokens is not None

    def fit(self, found: DocumentTexts, show: Callable[[DocumentTexts], str]) -> DocumentTexts:
        """Return the documents, cut to the budget if there is one."""
        if self.tokens is None:
            return found
        from qmd.app.budget import fit_documents

        return fit_documents(found, self.tokens, show, "qmd get '{}:{}'")


def get(
    invocation: Invocation,
    file: File,
    from_line: Annotated[int | None, Option("--from", metavar="N", min=1, help="Start at line N.")] = None,
    lines: Lines = None,
    shown: LineOptions = LineOptions(),
    index: Index = None,
) -> int:
    words = file
    suffix = _INDEX_SUFFIX.search(words[0])
    if suffix and words[0].startswith("qmd:"):
        index = index or unquote(suffix["index"])
        words = [word.replace(suffix[0], "") for word in words]
    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        documents, problems = _find_each(invocation, opened, words, from_line, lines)
        invocation.warn_each(locations, (warning for one in documents for warning in one.warnings))
        if invocation.screen and not shown.is_plain:
            _show_pages(invocation, opened, documents, shown)
        else:

            def render(found: DocumentTexts) -> str:
                return "\n".join(_render_text(opened, one, shown, locations.index_name) for one in found.documents)

            fitted = shown.fit(DocumentTexts(tuple(documents)), render)
            for left in fitted.problems:
                warn(left)
            invocation.page(render(fitted))
    return max((report(problem) for problem in problems), default=0)


def paths_on_disk(index: OpenIndex, documents: Sequence[StoredDocument], *, relative: bool = True) -> Mapping[str, str]:
    """Return address → path for `--full-path`; warn about documents without a file, which keep their address."""
    paths = index.disk_paths(documents, relative=relative)
    n_missing, n_all = len(documents) - len(paths), len(documents)
    if n_missing:
        which = "the file" if n_all == 1 else f"{n_missing} of {n_all} results"
        warn(
            f"--full-path could not resolve {which} on disk (moved or deleted since indexing); "
            "showing qmd:// + docid instead. Run 'qmd update' to refresh the index."
        )
    return paths


def openable_paths(index: OpenIndex, documents: Sequence[StoredDocument], base: Path | None) -> Mapping[str, str]:
    """Return address → path of one line, relative to `base` if given; warn about documents without such a path.

    A relative path starts with a letter, digit or dot: programs read others as options or commands (`nvim +!cmd`).
    """
    paths = {uri: path for uri, path in index.disk_paths(documents).items() if address_line(path) == path}
    if n_missing := len(documents) - len(paths):
        warn(f"skipped {n_missing} of {len(documents)} results: no file on disk, or control characters in its path")
    if base is None:
        return paths
    here = base.resolve()
    near = {uri: os.path.relpath(path, here) for uri, path in paths.items() if Path(path).drive == here.drive}
    return paths | {uri: path if re.match(r"[\w.]", path) else f".{os.sep}{path}" for uri, path in near.items()}


def _render_text(index: OpenIndex, found: DocumentText, shown: LineOptions, index_name: str) -> str:
    header = f"{file_identifier(found.document.uri, index_name)}  {found.document.docid}"
    if shown.full_path:
        header = paths_on_disk(index, [found.document]).get(found.document.uri, header)
    return render_document(header, found, shown.numbered)


def _find_each(
    invocation: Invocation, index: OpenIndex, words: Sequence[str], first: int | None, count: int | None
) -> tuple[list[DocumentText], list[QmdError]]:
    """Return the document that the words name together, else one for each word, and the errors.

    Raises:
        QmdError: The words name no document.
    """
    found: list[DocumentText] = []
    problems: list[QmdError] = []
    together = " ".join(words)
    for reference in (together, *(words if len(words) > 1 else ())):
        try:
            one = index.get(reference, from_line=first, max_lines=count, folder=invocation.cwd)
        except QmdError as problem:
            problems.append(problem)
            continue
        found.append(one)
        if reference == together:
            break
    whole, *others = problems or (None,)
    if whole is not None and not found:
        several = isinstance(whole, NotFoundError) and any(mark in together for mark in "*?")
        raise NotFoundError(whole.message, f"for several documents: qmd multi-get '{together}'") if several else whole
    return found, others


def multi_get(
    invocation: Invocation,
    pattern: Pattern,
    lines: Lines = None,
    max_bytes: Annotated[
        int, Option("--max-bytes", metavar="N", min=1, help="Skip documents larger than N bytes.")
    ] = DEFAULT_MAX_BYTES,
    shown: LineOptions = LineOptions(),
    output: Output = Output(),
    index: Index = None,
) -> int:
    chosen = output.chosen()
    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        found = opened.multi_get(pattern, max_bytes=max_bytes, max_lines=lines, folder=invocation.cwd)
        if not found.entries:
            for problem in found.problems:
                say(problem)
            return EXIT_NOT_FOUND
        if invocation.screen and not shown.is_plain and chosen == "cli":
            _show_pages(invocation, opened, found.entries, shown)
            return 0
        documents = [entry.document for entry in found.entries]
        on_disk = paths_on_disk(opened, documents) if shown.full_path else {}
    names = _identifiers(found, locations.index_name)

    def render(found: DocumentTexts) -> str:
        uris = [(entry, entry.document.uri) for entry in found.entries]
        fetched = [_fetched(entry, names[uri], on_disk.get(uri), chosen) for entry, uri in uris]
        return render_documents(fetched, chosen, shown.numbered)

    fitted = shown.fit(found, render)
    for problem in fitted.problems:
        say(problem)
    invocation.page(render(fitted))
    return 0


def _show_pages(
    invocation: Invocation, index: OpenIndex, entries: Sequence[DocumentText | SkippedDocument], shown: LineOptions
) -> None:
    from qmd.render.pages import Page, draw_pages
    from qmd.times import utc_now

    assert invocation.screen is not None
    documents = [entry.document for entry in entries]
    paths = paths_on_disk(index, documents, relative=False) if shown.full_path else index.disk_paths(documents)
    link = linker(index.editor_uri())
    pages = []
    for entry in entries:
        document, path = entry.document, paths.get(entry.document.uri)
        page = Page(
            document, f"{document.collection}/{document.path}", entry.context, link=link(path, 1) if path else None
        )
        if shown.full_path and path is not None:
            page = replace(page, name=path)
        if isinstance(entry, SkippedDocument):
            pages.append(replace(page, reason=f"{entry.reason}: qmd get {document.uri}"))
        else:
            pages.append(replace(page, text=entry, address_of=_link_addresses(index, entry)))
    invocation.page(draw_pages(invocation.screen, pages, utc_now(), line_numbers=not shown.no_line_numbers))


def _link_addresses(index: OpenIndex, found: DocumentText) -> Callable[[str], str | None]:
    """Return the function from a link target in a document to the file of the note."""
    from qmd.render.pages import is_rendered

    if not is_rendered(found):
        return lambda target: None
    links = index.links(found.document.uri).outgoing
    openers = index.openers([(one.document, 1) for one in links if one.document is not None])
    return {one.link.target: openers.get(one.document.uri) for one in links if one.document is not None}.get


def _identifiers(found: DocumentTexts, index_name: str) -> dict[str, str]:
    """Return address → name: the path for a glob if it is unique, else the address."""
    documents = [entry.document for entry in found.entries]
    uses = Counter(document.path for document in documents)
    return {
        document.uri: document.path
        if found.is_glob and uses[document.path] == 1
        else file_identifier(document.uri, index_name)
        for document in documents
    }


def _fetched(entry: DocumentText | SkippedDocument, name: str, on_disk: str | None, form: str) -> FetchedDocument:
    name, has_path = on_disk or name, on_disk is not None
    context = entry.written_context if form == "json" and entry.written_context else entry.context
    if isinstance(entry, SkippedDocument):
        reason = f"{entry.reason}. Use 'qmd get {entry.document.uri}' to retrieve."
        return FetchedDocument(entry.document, name, context, "", reason, on_disk=has_path)
    return FetchedDocument(entry.document, name, context, entry.text, on_disk=has_path)


def list_files(invocation: Invocation, path: Folder = None, index: Index = None) -> int:
    wanted = " ".join(path or ())
    locations = invocation.locate(index)
    with invocation.open(locations) as opened:
        if not wanted:
            _show_collections(invocation, opened.indexed_collections(), opened.status().collections, locations)
            return 0
        found = opened.ls(wanted)
        if invocation.screen:
            folder = next((one.path for one in opened.indexed_collections() if one.name == found.collection), None)
            link = linker(opened.editor_uri())
        every = () if found.documents else opened.documents(found.collection)
    if not found.documents:
        place = f"qmd://{found.collection}/{found.prefix}"
        out(
            f"No files found under {place}\n" if found.prefix else f"No files found in collection: {found.collection}\n"
        )
        if found.prefix:
            say(f"hint: {_suggest_folder(found.collection, found.prefix, every)}")
        return 0
    from qmd.times import utc_now

    if invocation.screen:
        from qmd.render.tables import draw_files

        invocation.page(draw_files(invocation.screen, found, folder, link, utc_now()))
    else:
        from qmd.render.listings import render_files

        out(render_files(found.documents, utc_now()))
    return 0


def _show_collections(
    invocation: Invocation, collections: Sequence[Collection], counts: Sequence[CollectionStatus], places: Locations
) -> None:
    if invocation.screen:
        from qmd.render.tables import draw_collections
        from qmd.times import utc_now

        shown = draw_collections(invocation.screen, collections, counts, utc_now(), places.home, places.index_name)
        invocation.page(shown)
        return
    from qmd.render.listings import render_collection_names

    out(render_collection_names(collections, counts))


def _suggest_folder(collection: str, prefix: str, documents: Sequence[StoredDocument]) -> str:
    """Return a hint for a folder that does not exist."""
    near = nearest_name(prefix.strip("/"), {document.path.rpartition("/")[0] for document in documents} - {""})
    if near:
        from shlex import quote

        return f"did you mean: qmd ls {quote(f'{collection}/{near}')}"
    folders = sorted({document.path.partition("/")[0] for document in documents if "/" in document.path})
    if not folders:
        return f"it has no folders; see: qmd ls {collection}"
    more = ", …" if len(folders) > _FOLDERS_NAMED else ""
    return f"its folders: {', '.join(folders[:_FOLDERS_NAMED])}{more}; see: qmd ls {collection}"
