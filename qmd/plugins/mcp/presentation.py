"""Answers of the service as MCP and HTTP show them, those of a search aside. Pure: records in, text and JSON out."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from msgspec import Struct

from qmd.app.records import DocumentText, Overview, RelatedNotes, SkippedDocument
from qmd.errors import QmdError
from qmd.names import to_text
from qmd.records import Collection, StoredDocument
from qmd.render.links import render_related
from qmd.render.listings import embedding_row
from qmd.render.text import number_lines
from qmd.status import IndexStatus, fact_lines, fact_values

_SAFE = "!'()*"
PASSAGE_CHARS = 300
"""Longest passage in an answer to a program, as in the original."""


class Shown(Struct, frozen=True):
    """The answer of a tool: what a model reads, and `structuredContent` for programs."""

    parts: tuple[str, ...]
    structured: dict[str, Any] | None = None


def document_uri(document: StoredDocument) -> str:
    """`qmd://collection/path`, every segment percent-encoded, fit for `resources/read`."""
    segments = [document.collection, *document.path.split("/")]
    return "qmd://" + "/".join(quote(segment, safe=_SAFE) for segment in segments)


def collection_uri(collection: Collection) -> str:
    """`qmd://collection/`, which `resources/read` answers with the addresses in it."""
    return f"qmd://{quote(collection.name, safe=_SAFE)}/"


def document_text(fetched: DocumentText, *, line_numbers: bool) -> str:
    """A document that was read, or lines of it, under its address and docid."""
    head = f"{document_uri(fetched.document)} {fetched.document.docid}"
    return f"{head}\n\n{resource_text(fetched, line_numbers=line_numbers)}"


def resource_text(fetched: DocumentText, *, line_numbers: bool = True) -> str:
    """The lines of a document under its context, numbered as in the source unless asked otherwise."""
    text = number_lines(fetched.text, fetched.first_line) if line_numbers else fetched.text
    if not fetched.context:
        return text
    # "-->" would end the comment early and let the rest of the note pass for the document.
    return f"<!-- Context: {fetched.context.replace('-->', '-- >')} -->\n\n{text}"


def skipped_text(skipped: SkippedDocument) -> str:
    """The line that stands for a document that is not shown."""
    file = file_of(skipped.document)
    return f"[SKIPPED: {file} - {skipped.reason}. Use 'get' with file=\"{file}\" to retrieve.]"


def related_text(found: RelatedNotes) -> str:
    """Related notes as text."""
    return "\n".join([*(f"Warning: {warning}" for warning in found.warnings), render_related(found, file_of)])


def file_of(document: StoredDocument) -> str:
    """How a document is called in answers of tools: collection and path, without a scheme."""
    return f"{document.collection}/{document.path}"


def structured_status(status: IndexStatus) -> dict[str, Any]:
    """`structuredContent` of `status`: collections with documents, newest first; `embedding` while it goes on."""
    used = [collection for collection in status.collections if collection.documents]
    used.sort(key=lambda collection: collection.updated_at or "", reverse=True)
    embedding = {} if status.embedding is None else {"embedding": embedding_row(status.embedding)}
    return {
        **fact_values(status, is_for_tool=True),
        "collections": [
            {
                "name": collection.name,
                "path": to_text(collection.path),
                "pattern": collection.pattern,
                "documents": collection.documents,
                "lastUpdated": collection.updated_at,
            }
            for collection in used
        ],
        **embedding,
    }


def status_text(status: IndexStatus) -> str:
    """The same as text."""
    content = structured_status(status)
    lines = [
        "QMD Index Status:",
        f"  Total documents: {content['totalDocuments']}",
        f"  Needs embedding: {content['needsEmbedding']}",
        *(
            [f"  Computing vectors: {status.embedding.state} ({status.embedding.who})"]
            if status.embedding is not None
            else ()
        ),
        f"  Vector index: {'yes' if content['hasVectorIndex'] else 'no'}",
        *(f"  {label}: {value}" for label, value in fact_lines(status, is_for_tool=True)),
        f"  Collections: {len(content['collections'])}",
    ]
    for collection in content["collections"]:
        lines.append(
            f"    - {collection['name']}: {collection['path']} ({collection['pattern']}, "
            f"{collection['documents']} documents, updated {collection['lastUpdated'] or 'never'})"
        )
    return "\n".join(lines)


def instructions(overview: Overview | None, error: QmdError | None = None) -> str:
    """What a client tells its model about this server at the start of a session.

    Args:
        overview: What is indexed; None where there is none, or none that can be read.
        error: Why it cannot be read.
    """
    if error is not None:
        head = [f"The index cannot be read: {error.message}"]
        if error.hint:
            head.append(f"What the user can do: {error.hint}")
    elif overview is None:
        head = ["There is no index yet. The user can make one: qmd collection add FOLDER, then qmd embed."]
    else:
        count = overview.documents
        head = [f"QMD is a local search engine over {count} markdown document{'' if count == 1 else 's'}."]
        if overview.global_context:
            head.append(f"Context: {overview.global_context}")
        if overview.default_collections:
            names = ", ".join(overview.default_collections)
            head.append(f"Collections: {names}. The status tool shows their folders and counts.")
    return "\n\n".join(["\n".join(head), _GUIDANCE])


_GUIDANCE = """\
Search with query. Give a plain question as 'query', or write 'searches' yourself:
  lex: keywords, BM25; "exact phrase", -excluded
  vec: a question in plain words, by meaning
  hyde: a made-up passage that would answer, by meaning
Examples:
  exact name: [{"type":"lex","query":"\\"rate limiter\\""}]
  concept: [{"type":"vec","query":"how are requests throttled"}]
  both, best recall: [{"type":"lex","query":"token bucket"},{"type":"vec","query":"how are requests throttled"}]
  vague: [{"type":"hyde","query":"Requests are throttled by a sliding window of one minute per client."}]
Always pass 'intent' (what the answer is needed for): it helps with ambiguous words.

Read with get (path, qmd:// address or #docid; add :LINE:COUNT for a part) or multi_get (glob or comma list).

- Scores mean the same in every search: 0.5 and more is a good match, below 0.2 rarely worth reading.
- Snippet lines carry the line numbers of the file; cite them, and pass them to get.
- minScore 0.2 cuts noise; collections narrows the search."""
