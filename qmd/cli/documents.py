"""`get`, `multi-get` and `ls`: documents by name."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote

from typer import Argument, Option

from qmd.cli import completion
from qmd.cli.disk_paths import disk_paths, missing_warning
from qmd.cli.options import (
    LARGEST_NUMBER,
    Csv,
    Files,
    FormatName,
    FullPath,
    Index,
    Json,
    Markdown,
    NoLineNumbers,
    Xml,
    choose_format,
    positive_number,
)
from qmd.cli.session import Session, current_config, open_current_reader, out, say, warn
from qmd.errors import EXIT_NOT_FOUND, NotFoundError
from qmd.names import to_text
from qmd.quick_dataclasses import replace
from qmd.render.documents import FetchedDocument, keep_lines, render_document, render_documents
from qmd.render.hits import file_identifier
from qmd.workspace.collections import collection_not_found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qmd.records import Collection, StoredDocument
    from qmd.retrieval import Resolution
    from qmd.store import IndexReader

DEFAULT_MAX_BYTES = 65_536
_INDEX_SUFFIX = re.compile(r"\?index=(?P<index>[^/?:]+)")
File = Annotated[
    list[str] | None,
    Argument(help="Path, address or #docid; :from:count selects lines.", autocompletion=completion.documents),
]
Pattern = Annotated[
    list[str] | None, Argument(help="A glob, or names and docids with commas.", autocompletion=completion.documents)
]
Folder = Annotated[
    list[str] | None, Argument(help="Collection, or collection/prefix.", autocompletion=completion.folders)
]
_LINE_OPTION = Option("-l", "--l", metavar="N", help="Show at most so many lines.")
_LINE_NUMBERS = Option("--line-numbers", help="Number the lines (the default).")


def get(
    session: Session,
    file: File = None,
    from_line: Annotated[str | None, Option("--from", metavar="N", help="First line shown.")] = None,
    lines: Annotated[str | None, _LINE_OPTION] = None,
    line_numbers: Annotated[bool, _LINE_NUMBERS] = True,
    no_line_numbers: NoLineNumbers = False,
    full_path: FullPath = False,
    index: Index = None,
) -> int:
    """Show one document."""
    reference = " ".join(file or ())
    if not reference:
        raise session.missing_argument()
    from qmd.retrieval.lookup import context_for, parse_line_range, resolve_document

    suffix = _INDEX_SUFFIX.search(reference)
    if suffix and reference.startswith("qmd:"):
        index, reference = index or unquote(suffix["index"]), reference.replace(suffix[0], "")
    locations = session.locate(index)
    with open_current_reader(locations) as reader:
        try:
            document = resolve_document(reader, reference)
        except NotFoundError as exc:
            from qmd.cli.missing import explain_missing

            raise explain_missing(exc, reference, reader, session.cwd) from exc
        collection = _collection_of(document, reader.collections())
        note = context_for(collection, reader.global_context(), document.path)
        text = reader.texts([document.hash])[document.hash]
        header = f"{file_identifier(document.uri, locations.index_name)}  {document.docid}"
        if full_path:
            header = _on_disk(session, document, reader.collections()) or header
    span = parse_line_range(reference)
    is_whole_name = document.path.endswith(reference)
    start = 1 if is_whole_name else span.start or 1
    count = None if is_whole_name else span.count
    first = positive_number(from_line, "--from", 1) if from_line is not None else start
    if lines is not None:
        count = positive_number(lines, "-l", count or LARGEST_NUMBER)
    # The last line break ends a line; it does not begin one.
    all_lines = text.removesuffix("\n").split("\n")
    shown = all_lines[first - 1 : None if count is None else first - 1 + count]
    out(render_document(header, note, shown, first, line_numbers and not no_line_numbers))
    return 0


def _on_disk(session: Session, document: StoredDocument, collections: Sequence[Collection]) -> str | None:
    path = disk_paths([document], collections, session.cwd).get(document.uri)
    if path is None:
        warn(missing_warning(1, 1))
    return path


def multi_get(
    session: Session,
    pattern: Pattern = None,
    lines: Annotated[str | None, _LINE_OPTION] = None,
    max_bytes: Annotated[str | None, Option("--max-bytes", metavar="N", help="Skip longer documents.")] = None,
    line_numbers: Annotated[bool, _LINE_NUMBERS] = True,
    no_line_numbers: NoLineNumbers = False,
    full_path: FullPath = False,
    format: FormatName = None,
    json: Json = False,
    csv: Csv = False,
    md: Markdown = False,
    xml: Xml = False,
    files: Files = False,
    index: Index = None,
) -> int:
    """Show several documents."""
    if not pattern:
        usage = session.missing_argument()
        usage.hint = "pattern: glob (e.g., 'journals/2025-05*.md') or comma-separated list"
        raise usage
    from qmd.retrieval.lookup import resolve_many

    chosen = choose_format(format, {"csv": csv, "md": md, "xml": xml, "files": files, "json": json})
    max_lines = positive_number(lines, "-l", LARGEST_NUMBER) if lines is not None else None
    limit = positive_number(max_bytes, "--max-bytes", DEFAULT_MAX_BYTES)
    locations = session.locate(index)
    with open_current_reader(locations) as reader:
        found = resolve_many(reader, " ".join(pattern))
        for problem in found.problems:
            say(problem.message)
        if not found.documents:
            return EXIT_NOT_FOUND
        on_disk = disk_paths(found.documents, reader.collections(), session.cwd) if full_path else {}
        if full_path and len(on_disk) < len(found.documents):
            warn(missing_warning(len(found.documents) - len(on_disk), len(found.documents)))
        fetched = [
            replace(one, identifier=on_disk[one.document.uri], on_disk=True) if one.document.uri in on_disk else one
            for one in _fetch(reader, found.documents, _identifiers(found, locations.index_name), max_lines, limit)
        ]
    out(render_documents(fetched, chosen, line_numbers and not no_line_numbers))
    return 0


def _identifiers(found: Resolution, index_name: str) -> dict[str, str]:
    """Address → name shown: the bare path for a glob while it is unique, else the address."""
    uses = Counter(document.path for document in found.documents)
    return {
        document.uri: document.path
        if found.kind == "glob" and uses[document.path] == 1
        else file_identifier(document.uri, index_name)
        for document in found.documents
    }


def _fetch(
    reader: IndexReader,
    documents: Sequence[StoredDocument],
    identifiers: dict[str, str],
    max_lines: int | None,
    max_characters: int,
) -> list[FetchedDocument]:
    from qmd.retrieval.lookup import context_for

    texts = reader.texts([document.hash for document in documents if document.size <= max_characters])
    collections, global_context = reader.collections(), reader.global_context()
    fetched = []
    for document in documents:
        note = context_for(_collection_of(document, collections), global_context, document.path)
        name = identifiers[document.uri]
        skipped = None
        if document.size > max_characters:
            size, limit = round(document.size / 1024), round(max_characters / 1024)
            skipped = f"File too large ({size}KB > {limit}KB). Use 'qmd get {document.uri}' to retrieve."
        body = "" if skipped else keep_lines(texts[document.hash], max_lines)
        fetched.append(FetchedDocument(document, name, note, body, skipped))
    return fetched


def _collection_of(document: StoredDocument, collections: Sequence[Collection]) -> Collection | None:
    return next((one for one in collections if one.name == document.collection), None)


def list_files(
    session: Session,
    path: Folder = None,
    index: Index = None,
) -> int:
    """List collections, or the files of one."""
    from datetime import UTC, datetime

    from qmd.records import Scope
    from qmd.render.listings import render_collection_names, render_files

    locations = session.locate(index)
    wanted = " ".join(path or ())
    if not locations.database.exists():
        collections: Sequence[Collection] = current_config(locations).collections
        if wanted:
            _split_listing(wanted, collections)
            raise NotFoundError("nothing is indexed yet", "run: qmd update")
        out(render_collection_names(collections, {}))
        return 0
    with open_current_reader(locations) as reader:
        collections = reader.collections()
        if not wanted:
            counts = {count.name: count for count in reader.status(None).collections}
            out(render_collection_names(collections, counts))
            return 0
        name, prefix = _split_listing(wanted, collections)
        documents = list(reader.iter_documents(Scope(collections=(name,), path_prefix=prefix or None)))
    if documents:
        out(render_files(documents, datetime.now(UTC)))
    else:
        place = f"under qmd://{name}/{prefix}" if prefix else f"in collection: {name}"
        out(f"No files found {place}\n")
    return 0


def _split_listing(wanted: str, collections: Sequence[Collection]) -> tuple[str, str]:
    """(collection, path prefix) of `name`, `name/prefix`, their `qmd://` forms, or a path inside a collection."""
    bare = re.sub(r"\A(?:qmd:/*|//)", "", wanted)
    bare = _INDEX_SUFFIX.sub("", bare)
    for one in sorted(collections, key=lambda collection: -len(collection.name)):
        if bare == one.name or bare.startswith(f"{one.name}/"):
            return one.name, bare[len(one.name) + 1 :]
    for one in collections:
        root = to_text(one.path)
        if wanted == root or wanted.startswith(f"{root}/"):
            return one.name, wanted[len(root) + 1 :]
    error = collection_not_found(bare.partition("/")[0], [one.name for one in collections])
    raise NotFoundError(error.message, "Run 'qmd ls' to see available collections.")
