"""Variables and settings in effect for this run, and their origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.config.settings import MODEL_OPTIONS, Config
from qmd.errors import nearest_name
from qmd.inference.settings import SLOTS
from qmd.masks import OWN_PATTERNS, UNWRITTEN_PATTERN
from qmd.plugins import hooks
from qmd.plugins.doctor.variables import SETTINGS, VARIABLES, Variable

if TYPE_CHECKING:
    from qmd.plugins.doctor.inspection import EngineReport

_DEFAULTS = (None, True, (), *OWN_PATTERNS, UNWRITTEN_PATTERN)


class EffectiveSetting(Struct, frozen=True):
    """One variable or setting that is not at its default."""

    name: str
    value: str
    """Value without secrets."""
    effect: str
    overruled_by: str | None = None
    """Setting or state that prevents its effect."""


def effective_variables(environ: Mapping[str, str], config: Config | None = None) -> tuple[EffectiveSetting, ...]:
    """Return the variables that are set and not empty, in the order of `VARIABLES`, without keys, tokens and passwords.

    Programs that fetch files also read the names of proxies in lower case. A `QMD_` variable that is not in the list,
    perhaps misspelled or of another version, comes last.

    Args:
        config: Settings of `index.yml`, some of which precede variables.
    """
    found = []
    for one in (*VARIABLES, *unknown_variables(environ)):
        names = (one.name, one.name.lower()) if one.name.endswith("_PROXY") else (one.name,)
        value = next((environ[name] for name in names if environ.get(name)), None)
        if value is not None and one.matters_at in (None, value):
            found.append(EffectiveSetting(one.name, _shown(one, value), one.effect, _setting_before(one, config)))
    return tuple(found)


def unknown_variables(environ: Mapping[str, str]) -> list[Variable]:
    """Return the variables that look like qmd's and are none of this version, with the nearest in `effect`."""
    known = {one.name for one in VARIABLES if one.name.startswith("QMD_")}
    strangers = sorted(name for name in environ if name.startswith("QMD_") and name not in known)
    return [
        Variable(name, f"no variable of this version; nearest: {nearest_name(name, known, 0)}") for name in strangers
    ]


def effective_settings(
    written: Config, environ: Mapping[str, str], trusted: Config | None = None
) -> tuple[EffectiveSetting, ...]:
    """Return the settings of `index.yml` that are not at their defaults, those of the collections last.

    Args:
        written: The whole file.
        environ: The environment variables, some of which precede settings.
        trusted: Part of it that a project may decide (`qmd.config.trust.trusted_part`); None for all.
    """
    effects = {one.key: one.effect for one in SETTINGS}
    in_effect = {key for key, _, _ in _written(written if trusted is None else trusted)}
    found = []
    for key, pattern, value in _written(written):
        overruled = None if key in in_effect else "the project is not trusted"
        if key == "editor_uri" and environ.get("QMD_EDITOR_URI"):
            overruled = "QMD_EDITOR_URI"
        found.append(EffectiveSetting(key, value, effects[pattern], overruled))
    return tuple(found)


def mark_idle(found: Sequence[EffectiveSetting], reports: Sequence[EngineReport]) -> tuple[EffectiveSetting, ...]:
    """Return the same, with the reason for each setting of models, or its variable, that has no effect."""
    return tuple(replace(one, overruled_by=one.overruled_by or _idle(one, reports)) for one in found)


def _idle(one: EffectiveSetting, reports: Sequence[EngineReport]) -> str | None:
    setting = next((known.setting for known in VARIABLES if known.name == one.name and known.setting), one.name)
    slot, _, name = setting.removeprefix("models.").rpartition(".")
    of = [report for report in reports if slot in ("", SLOTS[report.role])]
    if name in ("context", "max_tokens") and not any(report.is_decoder or report.notes for report in of):
        return "no decoder runs here in this role"
    is_elsewhere = bool(of) and not any(report.asked for report in of)
    return "no model runs here" if name in ("threads", "gpu_layers") and is_elsewhere else None


def _setting_before(variable: Variable, config: Config | None) -> str | None:
    place, _, key = variable.setting.partition(".")
    value = config.models.get(key) if config is not None and place == "models" else None
    # An empty prompt is a setting; an empty model or form is none.
    return None if value in (None, "auto") or (value == "" and "." not in key) else variable.setting


def _written(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield (key, key with `NAME` for a collection, value) of each setting that is not at its default."""
    sampling = hooks.changed_sampling(config.sampling) if config.sampling else {}
    of_all = {
        **{name: getattr(config, name) for name in ("global_context", "editor_uri", "auto_update", "auto_embed")},
        **{f"models.{slot}": config.models.get(slot) for slot in (*SLOTS.values(), *MODEL_OPTIONS)},
        **{f"sampling.{name}": value for name, value in sampling.items()},
    }
    yield from ((key, key, _text(value)) for key, value in of_all.items() if value not in _DEFAULTS)
    for one in config.collections:
        of_one = {
            "pattern": one.pattern,
            "ignore": one.ignore,
            "gitignore": one.gitignore,
            "update": one.update_command,
            "includeByDefault": one.include_by_default,
            "agents_may_write": "true" if one.name in config.writable else None,
        }
        for key, value in of_one.items():
            if value not in _DEFAULTS:
                yield f"collections.{one.name}.{key}", f"collections.NAME.{key}", _text(value)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    return "false" if value is False else str(value)


def _shown(variable: Variable, value: str) -> str:
    if variable.name.endswith(("_KEY", "_TOKEN")):
        return "(set)"
    scheme, separator, rest = value.partition("://")
    place, slash, path = rest.partition("/")
    if separator and "@" in place:
        # This part of an address may be a password.
        return f"{scheme}://…@{place.rpartition('@')[2]}{slash}{path}"
    return value
