"""Sampling settings of the expander: the `sampling` block of `index.yml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

Step = Literal["penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"]

ORDERS: Mapping[str, tuple[Step, ...]] = {
    "transformers": (
        "penalties", "dry", "temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc"
    ),
    "llama.cpp": (
        "penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"
    ),
}  # fmt: skip
"""Named orders of steps. Recommended values of model makers assume the first."""


def _within(least: float | None, most: float | None, effect: str) -> Meta:
    """Return the bounds of a setting, with its effect in one line."""
    return Meta(ge=least, le=most, description=effect)


class SamplingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a draw. The defaults change nothing and draw from the whole distribution.

    At a temperature of 0 (greedy) only the bias, the penalties and DRY count.
    """

    temperature: Annotated[float, _within(0, 100, "0: always the likeliest token; larger: more variety")] = 1.0
    top_k: Annotated[int, _within(0, None, "number of likeliest tokens kept; 0: all")] = 0
    top_p: Annotated[float, _within(0, 1, "the likeliest tokens up to this share; 1: all")] = 1.0
    min_p: Annotated[float, _within(0, 1, "no token less likely than this share of the likeliest")] = 0.0
    typical_p: Annotated[float, _within(0, 1, "the most typical tokens up to this share; 1: all")] = 1.0
    top_n_sigma: Annotated[float, _within(0, 100, "no logit so many deviations below the largest; 0: all")] = 0.0
    xtc_probability: Annotated[float, _within(0, 1, "how often the likeliest tokens are removed")] = 0.0
    xtc_threshold: Annotated[float, _within(0, 1, "least probability of a likely token there")] = 0.1
    repetition_penalty: Annotated[
        float, Meta(gt=0, le=100, description="divisor of the logits of written tokens; 1: none")
    ] = 1.0
    presence_penalty: Annotated[float, _within(-100, 100, "subtracted from the logits of written tokens")] = 0.0
    frequency_penalty: Annotated[float, _within(-100, 100, "the same, for each time")] = 0.0
    penalty_last_n: Annotated[int, _within(-1, None, "last tokens that these three use; -1: all")] = -1
    dry_multiplier: Annotated[float, _within(0, 100, "penalty of a token that repeats a run; 0: none")] = 0.0
    dry_base: Annotated[float, _within(1, 100, "growth of that penalty for each token more")] = 1.75
    dry_allowed_length: Annotated[int, _within(1, None, "length of runs that may be repeated")] = 2
    dry_last_n: Annotated[int, _within(-1, None, "last tokens searched for such runs; -1: all")] = -1
    dry_breakers: Annotated[tuple[str, ...], Meta(description="texts at which a run ends")] = (
        "\n", ":", '"', "*",
    )  # fmt: skip
    order: Annotated[
        Literal["transformers", "llama.cpp"] | tuple[Step, ...],
        Meta(description="transformers, llama.cpp, or the list of steps to take"),
    ] = "transformers"
    logit_bias: Annotated[
        Mapping[int, float], Meta(description="token numbers, and the bias added to their logits")
    ] = field(default_factory=dict)
    seed: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="seed of the random numbers; null: a new one each time")
    ] = 0

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in their order."""
        return ORDERS[self.order] if isinstance(self.order, str) else self.order


DEFAULT_SAMPLING = SamplingSettings(temperature=0.7, top_k=20, top_p=0.8, presence_penalty=0.5)
"""Recommended in Qwen3's card without thinking; greedy decoding loops. tobi/qmd has the same values."""

SAMPLING_NAMES = SamplingSettings.__struct_fields__

_WORDS = {"float": "a number", "int": "a whole number", "array": "a list", "str": "text", "object": "a mapping"}


def read_sampling(written: Mapping[str, object]) -> SamplingSettings:
    """Return `DEFAULT_SAMPLING` with the written items, each of which `expected_sampling` must accept."""
    return msgspec.convert({**msgspec.structs.asdict(DEFAULT_SAMPLING), **written}, SamplingSettings)


def expected_sampling(name: str, value: object) -> str | None:
    """Return the expected kind of a setting, as the end of a sentence; None if `value` is valid."""
    try:
        msgspec.convert({name: value}, SamplingSettings)
    except msgspec.ValidationError as exc:
        if name == "order":
            return f"{' or '.join(ORDERS)} or a list of {', '.join(get_args(Step))}"
        expected = str(exc).partition(" - at ")[0].removeprefix("Expected ").partition(", got ")[0]
        for kind, words in _WORDS.items():
            expected = expected.replace(f"`{kind}`", words)
        return expected
    return None


def sampling_effects() -> dict[str, tuple[str, str]]:
    """Return setting → effect and default, as a reference lists them."""
    hints: Mapping[str, Any] = get_type_hints(SamplingSettings, include_extras=True)
    metas = {name: next(one for one in get_args(hints[name])[1:] if isinstance(one, Meta)) for name in SAMPLING_NAMES}
    return {name: (meta.description or "", _shown(DEFAULT_SAMPLING, name)) for name, meta in metas.items()}


def changed_sampling(written: Mapping[str, object]) -> dict[str, str]:
    """Return setting → value, for display, of each written setting that differs from the default."""
    return differences(read_sampling(written), DEFAULT_SAMPLING)


def differences(settings: SamplingSettings, than: SamplingSettings) -> dict[str, str]:
    """Return setting → value, for display, of each that differs."""
    return {name: _shown(settings, name) for name in SAMPLING_NAMES if getattr(settings, name) != getattr(than, name)}


def _shown(settings: SamplingSettings, name: str) -> str:
    value: object = getattr(settings, name)
    if isinstance(value, tuple):
        return f"[{', '.join(item if item.isidentifier() else repr(item) for item in value)}]"
    if isinstance(value, Mapping):
        return ", ".join(f"{token}: {bias:g}" for token, bias in value.items())
    return "null" if value is None else str(value)
