"""How the expansion model's next token is drawn: a record, and the `sampling` block of `index.yml` read into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

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
"""The orders that have a name. The first is what the makers of models have in mind when they recommend values."""

_Share = Annotated[float, Meta(ge=0, le=1)]
_NotNegative = Annotated[float, Meta(ge=0, le=100)]
_Positive = Annotated[float, Meta(gt=0, le=100)]
_Penalty = Annotated[float, Meta(ge=-100, le=100)]
_Count = Annotated[int, Meta(ge=0)]
_Window = Annotated[int, Meta(ge=-1)]


class SamplingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How to draw a token. The defaults change nothing and draw from the whole distribution."""

    temperature: _NotNegative = 1.0
    """0 takes the likeliest token (greedy) after penalties and DRY, and ignores every other step."""
    dynatemp_range: _NotNegative = 0.0
    """The temperature moves by this much up and down with the entropy of what is left; 0 keeps it."""
    dynatemp_exponent: _Positive = 1.0
    """Power of the entropy's share of its maximum that decides where in the range."""
    top_k: _Count = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: _Share = 1.0
    """Keep the fewest tokens whose probabilities reach this sum."""
    min_p: _Share = 0.0
    """Drop tokens less likely than this share of the likeliest."""
    typical_p: _Share = 1.0
    """Keep the fewest tokens whose probabilities reach this sum, those first whose surprise is nearest the expected."""
    top_n_sigma: _NotNegative = 0.0
    """Drop logits more than so many standard deviations below the largest; 0 keeps all."""
    xtc_probability: _Share = 0.0
    """How often the likeliest tokens are left out (exclude top choices)."""
    xtc_threshold: _Share = 0.1
    """Of the tokens at least this likely only the least likely stays then."""
    repetition_penalty: _Positive = 1.0
    """Divides positive and multiplies negative logits of tokens seen in prompt or text."""
    presence_penalty: _Penalty = 0.0
    """Subtracted once from the logit of every token already generated."""
    frequency_penalty: _Penalty = 0.0
    """Subtracted from the logit of a token as often as it was generated."""
    penalty_last_n: _Window = -1
    """The three penalties count the last so many tokens; -1 all, 0 none."""
    dry_multiplier: _NotNegative = 0.0
    """Penalty of a token that repeats a run longer than allowed (do not repeat yourself, DRY); 0 for none."""
    dry_base: Annotated[float, Meta(ge=1, le=100)] = 1.75
    """What the penalty grows by for each token more."""
    dry_allowed_length: Annotated[int, Meta(ge=1)] = 2
    """Runs up to this many tokens may be repeated."""
    dry_last_n: _Window = -1
    """Runs are looked for in the last so many tokens; -1 all, 0 none."""
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    """No run reaches across a token that holds one of these texts."""
    order: Literal["transformers", "llama.cpp"] | tuple[Step, ...] = "transformers"
    """A name of `ORDERS`, or steps one by one; those not named are left out."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of single tokens before everything else; `-inf` forbids one."""
    seed: Annotated[int, Meta(ge=0)] | None = 0
    """None draws differently each time."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in their order."""
        return ORDERS[self.order] if isinstance(self.order, str) else self.order


DEFAULT_SAMPLING = SamplingSettings(temperature=0.7, top_k=20, top_p=0.8, presence_penalty=0.5)
"""What the card of Qwen3 asks for without thinking; greedy decoding loops. tobi/qmd has the same values."""

_WORDS = {
    "`float`": "a number",
    "`int`": "a whole number",
    "`array`": "a list",
    "`str`": "text",
    "`object`": "a mapping",
}


def read_sampling(written: Mapping[str, object]) -> SamplingSettings:
    """`DEFAULT_SAMPLING` with what is written in its place; each item must be one that `expected_of` accepts."""
    return msgspec.convert({**msgspec.structs.asdict(DEFAULT_SAMPLING), **written}, SamplingSettings)


def expected_of(key: str, value: object) -> str | None:
    """What the setting must be, as the end of a sentence; None where it can be `value`."""
    try:
        msgspec.convert({key: value}, SamplingSettings)
    except msgspec.ValidationError as exc:
        if key == "order":
            return f"{' or '.join(ORDERS)} or a list of {', '.join(get_args(Step))}"
        expected = str(exc).partition(" - at ")[0].removeprefix("Expected ").partition(", got ")[0]
        for kind, words in _WORDS.items():
            expected = expected.replace(kind, words)
        return expected
    return None


def changed_sampling(settings: SamplingSettings, than: SamplingSettings = DEFAULT_SAMPLING) -> Mapping[str, str]:
    """Name → value, as it may be shown, of each setting that differs."""
    names = (name for name in settings.__struct_fields__ if getattr(settings, name) != getattr(than, name))
    return {name: shown_setting(settings, name) for name in names}


def shown_setting(settings: SamplingSettings, name: str) -> str:
    """A setting's value in words."""
    value: object = getattr(settings, name)
    if isinstance(value, tuple):
        return f"[{', '.join(item if item.isidentifier() else repr(item) for item in value)}]"
    if isinstance(value, Mapping):
        return ", ".join(f"{token}: {bias:g}" for token, bias in value.items())
    return "null" if value is None else str(value)
