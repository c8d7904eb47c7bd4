"""Which models a configuration means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from qmd.config.paths import Locations
from qmd.config.settings import Config

if TYPE_CHECKING:
    from qmd.inference.settings import EngineSettings


def engine_settings(
    config: Config, locations: Locations, environ: Mapping[str, str], *, allow_gpu: bool = True
) -> EngineSettings:
    """The models of a configuration, else the environment's, else automatic.

    Args:
        config: As far as it is trusted.
        locations: Knows the folder of downloaded models.
        environ: Variables that the engines hear.
        allow_gpu: False keeps models on the CPU.
    """
    from qmd.inference.settings import EngineSettings

    return EngineSettings(
        models_dir=locations.models,
        embed=config.models.get("embed", "auto"),
        rerank=config.models.get("rerank", "auto"),
        expand=config.models.get("generate", "auto"),
        allow_gpu=allow_gpu,
        env=environ,
    )
