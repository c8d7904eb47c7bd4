"""Where qmd's files lie and what the user wrote in `index.yml`.

Comes in: environment, working directory, the YAML file. Goes out: `Locations`, `Config`, edits that keep comments, and
the trust decision for project-local files. Must not know of indexes, models or terminals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.lazy import lazy_names

if TYPE_CHECKING:
    from qmd.config.paths import Locations, locate
    from qmd.config.settings import Config, config_digest, load_config, needs_full_config, parse_config
    from qmd.config.trust import (
        GatedItems,
        gated_items,
        is_trusted,
        record_trust,
        revoke_trust,
        trusted_configs,
        trusted_part,
    )

__all__ = [
    "Config",
    "GatedItems",
    "Locations",
    "config_digest",
    "gated_items",
    "is_trusted",
    "load_config",
    "locate",
    "needs_full_config",
    "parse_config",
    "record_trust",
    "revoke_trust",
    "trusted_configs",
    "trusted_part",
]

_HOMES = {"Locations": "paths", "locate": "paths"} | dict.fromkeys(
    ("Config", "config_digest", "load_config", "needs_full_config", "parse_config"), "settings"
)


# A search needs neither edits nor trust.
__getattr__ = lazy_names(__name__, __all__, _HOMES, "trust")
