"""Loading the models that a command needs, as far as the configuration is trusted."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from qmd.cli.session import Session, apply_trust
from qmd.config.paths import Locations
from qmd.config.settings import Config, load_config, needs_full_config
from qmd.errors import ModelError

if TYPE_CHECKING:
    from qmd.inference.base import EngineDescription, Engines
    from qmd.inference.models.catalogue import Role
    from qmd.inference.settings import EngineSettings


def load(
    session: Session, locations: Locations, roles: Collection[Role], *, allow_gpu: bool, config: Config | None = None
) -> Engines:
    """Open the models of `roles`.

    Args:
        config: Already checked for trust; None reads it when it names models at all.

    Raises:
        ModelError: The inference packages cannot be imported.
    """
    return open_engines(engine_settings(session, locations, allow_gpu=allow_gpu, config=config), roles)


def open_engines(settings: EngineSettings, roles: Collection[Role]) -> Engines:
    """Open the models of `roles` as settings say.

    Raises:
        ModelError: The inference packages cannot be imported.
    """
    try:
        from qmd.inference.loader import load_engines

        return load_engines(settings, roles)
    except ImportError as exc:
        raise ModelError(f"the inference packages cannot be imported: {exc}", "'qmd search' works without") from exc


def engine_settings(
    session: Session, locations: Locations, *, allow_gpu: bool = True, config: Config | None = None
) -> EngineSettings:
    """Which models to use: those of a trusted configuration, else the environment's, else automatic."""
    from qmd import workspace

    if config is None:
        config = apply_trust(session, locations, load_config(locations)) if needs_full_config(locations) else Config()
    return workspace.engine_settings(config, locations, session.environ, allow_gpu=allow_gpu)


def describe(description: EngineDescription) -> str:
    """A model in one phrase: `all-MiniLM-L6-v2 int8 (built-in, cpu)`."""
    return f"{description.model} {description.format} ({description.tier}, {description.provider})"
