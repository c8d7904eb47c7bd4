"""Quick dataclasses against the standard ones: whatever a record can be asked, both answer the same."""

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd import quick_dataclasses
from tests.processes import unmeasured


@quick_dataclasses.dataclass(frozen=True, slots=True)
class Quick:
    name: str
    level: int = 1
    tags: tuple[str, ...] = ()
    notes: Mapping[str, str] = quick_dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name}-{self.level}"


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    name: str
    level: int = 1
    tags: tuple[str, ...] = ()
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name}-{self.level}"


@quick_dataclasses.dataclass(slots=True)
class Counter:
    seen: int = 0
    names: list[str] = quick_dataclasses.field(default_factory=list)


FIELDS = st.fixed_dictionaries(
    {"name": st.text()},
    optional={"level": st.integers(), "tags": st.tuples(st.text()), "notes": st.dictionaries(st.text(), st.text())},
)


@given(FIELDS, FIELDS)
def test_values_equality_and_text_are_those_of_a_standard_dataclass(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    quick, standard = Quick(**first), Standard(**first)
    assert repr(quick) == repr(standard).replace("Standard", "Quick")
    assert (quick.name, quick.level, quick.tags, quick.notes, quick.label) == (
        *(getattr(standard, field.name) for field in dataclasses.fields(standard)),
        standard.label,
    )
    assert (quick == Quick(**second)) == (standard == Standard(**second))


@given(FIELDS, FIELDS)
def test_both_replaces_and_asdict_work_on_them(first: dict[str, Any], second: dict[str, Any]) -> None:
    expected = dataclasses.asdict(dataclasses.replace(Standard(**first), **second))
    assert dataclasses.asdict(quick_dataclasses.replace(Quick(**first), **second)) == expected
    assert dataclasses.asdict(dataclasses.replace(Quick(**first), **second)) == expected


@given(FIELDS)
def test_they_survive_pickling_and_copying(values: dict[str, Any]) -> None:
    record = Quick(**values)
    assert pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record


def test_equal_records_have_one_hash() -> None:
    assert hash(Quick("a", notes=())) == hash(Quick("a", 1, notes=())) == hash(Standard("a", notes=()))  # type: ignore[arg-type]


def test_a_default_factory_makes_a_new_value_for_each() -> None:
    Counter().names.append("x")
    assert Counter().names == []


def test_a_record_is_unequal_to_another_class_with_the_same_fields() -> None:
    standard: object = Standard("a")
    assert Quick("a") != standard


@pytest.mark.parametrize("name", ["level", "new"])
def test_a_frozen_record_refuses_changes(name: str) -> None:
    record = Quick("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(record, name)


def test_a_record_that_is_not_frozen_may_change_but_not_be_hashed() -> None:
    counter = Counter()
    counter.seen += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError):
        hash(counter)


@pytest.mark.parametrize("arguments", [{}, {"name": "a", "other": 1}])
def test_missing_and_unknown_fields_are_type_errors(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Quick(**arguments)


def test_fields_match_by_position() -> None:
    match Quick("a", 2):
        case Quick(name, level):
            assert (name, level) == ("a", 2)


def test_defining_and_making_a_record_imports_neither_dataclasses_nor_inspect() -> None:
    program = (
        "import sys\nfrom qmd.quick_dataclasses import dataclass, replace\n"
        "@dataclass(frozen=True, slots=True)\nclass A:\n    a: int\n"
        "replace(A(1), a=2) == A(2)\nprint({'dataclasses', 'inspect'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True, env=unmeasured()
    )
    assert done.stdout == "set()\n"


def _fresh(module: Any) -> Callable[..., Any]:
    @module.dataclass(slots=True)
    class Record:
        name: str
        level: int = 1
        notes: list[str] = module.field(default_factory=list)

    return Record


@pytest.mark.parametrize("before", [0, 100], ids=["first-objects", "many-objects"])
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [(("a",), {}), (("a", 2), {}), (("a",), {"notes": ["n"]}), ((), {"level": 3, "name": "a"})],
)
def test_the_first_objects_of_a_class_are_made_like_all_others(
    before: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    quick, standard = _fresh(quick_dataclasses), _fresh(dataclasses)
    for _ in range(before):
        quick("filler")
    made = [quick(*args, **kwargs) for _ in range(2)]
    assert [repr(one) for one in made] == [repr(standard(*args, **kwargs))] * 2
    assert "notes" in kwargs or made[0].notes is not made[1].notes


@pytest.mark.parametrize("before", [0, 100], ids=["first-objects", "many-objects"])
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), (("a", 1, [], 4), {}), (("a",), {"name": "b"}), (("a",), {"size": 1}), ((), {"level": 1})],
)
def test_wrong_arguments_are_refused_like_a_standard_dataclass_does(
    before: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    quick, standard = _fresh(quick_dataclasses), _fresh(dataclasses)
    for _ in range(before):
        quick("filler")
    with pytest.raises(TypeError) as expected:
        standard(*args, **kwargs)
    with pytest.raises(TypeError) as refused:
        quick(*args, **kwargs)
    assert str(refused.value) == str(expected.value)
