"""`status` and `doctor`: what the index holds and whether all is well."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from qmd.cli.options import Index, Json
from qmd.cli.session import Session, current_config, open_current_reader, out
from qmd.errors import ModelError, QmdError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qmd.config.paths import Locations
    from qmd.inference.catalogue import Role
    from qmd.records import Collection, IndexStatus


def status(session: Session, json: Json = False, index: Index = None) -> int:
    """Show what the index holds."""
    from datetime import UTC, datetime

    from qmd.render.listings import StatusReport, render_status, status_json

    locations = session.locate(index)
    if locations.database.exists():
        with open_current_reader(locations) as reader:
            collections: Sequence[Collection] = reader.collections()
            counts = reader.status(None)
    else:
        collections, counts = current_config(locations).collections, _empty(locations)
    report = StatusReport(counts, tuple(collections), (), _tips(counts, collections))
    out(status_json(report) if json else render_status(report, datetime.now(UTC)))
    return 0


def _empty(locations: Locations) -> IndexStatus:
    from qmd.records import IndexStatus

    return IndexStatus(locations.database, 0, 0, 0, 0, 0, 0, None, None, ())


def _tips(counts: IndexStatus, collections: Sequence[Collection]) -> tuple[str, ...]:
    bare = [one.name for one in collections if not one.context]
    if not bare or not counts.documents:
        return ()
    names = ", ".join(bare[:3]) + (", …" if len(bare) > 3 else "")
    return (f'Add context to collections for better results: {names} (qmd context add qmd://NAME/ "what is there")',)


def doctor(session: Session, index: Index = None) -> int:
    """Check the installation and the index."""
    locations = session.locate(index)
    version = ".".join(map(str, sys.version_info[:3]))
    out(f"QMD Doctor\n\nIndex: {locations.database}\nRuntime: Python {version} on {sys.platform}\n\n")
    _check("SQLite", _sqlite)
    _check("configuration", lambda: _configuration(locations))
    _check("index", lambda: _index(locations))
    for role in ("embed", "rerank", "expand"):
        _check(f"{role} model", lambda role=role: _model(session, locations, role))  # type: ignore[misc]
    overrides = sorted(name for name in session.environ if name.startswith("QMD_") or name == "INDEX_PATH")
    if overrides:
        out(f"⚠ environment: {', '.join(f'{name}={session.environ[name]}' for name in overrides)}\n")
    return 0


def _check(label: str, examine: Callable[[], str]) -> None:
    """Print one line: what was found, or what is wrong and what to do."""
    try:
        out(f"✓ {label}: {examine()}\n")
    except QmdError as exc:
        hint = f"; {exc.hint}" if exc.hint else ""
        out(f"⚠ {label}: {exc.message}{hint}\n")


def _sqlite() -> str:
    import apsw

    return f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"


def _configuration(locations: Locations) -> str:
    n_collections = len(current_config(locations).collections)
    return f"{locations.config_file}, {n_collections} collection{'' if n_collections == 1 else 's'}"


def _index(locations: Locations) -> str:
    with open_current_reader(locations) as reader:
        problems = reader.check()
        if problems:
            raise QmdError("; ".join(problems), "move the file away and run: qmd index")
        return f"sound, {reader.count_documents()} documents"


def _model(session: Session, locations: Locations, role: Role) -> str:
    from qmd.cli.engines import describe, load

    engines = load(session, locations, [role], allow_gpu=True)
    engine = {"embed": engines.embedder, "rerank": engines.reranker, "expand": engines.expander}[role]
    if engine is None:
        raise ModelError("; ".join(engines.notes) or "none, queries run without it", "get one: qmd models pull")
    return "; ".join([describe(engine.description), *engines.notes])
