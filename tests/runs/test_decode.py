"""JSON is checked against the dataclass that it came from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest

from nsysflow.runs.decode import decode


@dataclass(frozen=True, kw_only=True)
class Inner:
    number: int


@dataclass(frozen=True, kw_only=True)
class Outer:
    text: str
    ratio: float
    kind: Literal["a", "b"]
    inner: Inner | None
    many: tuple[Inner, ...]
    by_name: Mapping[str, int]
    anything: dict[str, Any] | None = None
    on: bool = False
    words: tuple[str, ...] = field(default=("x",))


WHOLE = Outer(
    text="t",
    ratio=0.5,
    kind="b",
    inner=Inner(number=1),
    many=(Inner(number=2),),
    by_name={"x": 3},
    anything={"y": [None]},
)


def document(**changed: object) -> dict[str, object]:
    return asdict(WHOLE) | {"many": [{"number": 2}], "words": ["x"]} | changed


def test_what_was_written_comes_back() -> None:
    assert decode(Outer, document()) == WHOLE


def test_unknown_keys_are_dropped_and_defaults_filled_in() -> None:
    found = document(later="new")
    del found["on"], found["words"], found["anything"]
    assert decode(Outer, found) == Outer(**{**vars(WHOLE), "anything": None})


def test_a_whole_number_is_a_float_too() -> None:
    assert decode(Outer, document(ratio=2)).ratio == 2.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"text": 1}, r"^it\.text is 1, not str$"),
        ({"ratio": "1"}, r"^it\.ratio is '1', not float$"),
        ({"on": 1}, r"^it\.on is 1, not bool$"),
        ({"kind": "c"}, r"^it\.kind is 'c', not "),
        ({"inner": {"number": True}}, r"^it\.inner\.number is True, not int$"),
        ({"inner": {}}, r"^it\.inner has no number$"),
        ({"inner": 1}, r"^it\.inner is 1, not Inner$"),
        ({"many": [{"number": 1}, 2]}, r"^it\.many\[1\] is 2, not Inner$"),
        ({"many": {}}, r"^it\.many is \{\}, not "),
        ({"by_name": {"x": "3"}}, r"^it\.by_name\.x is '3', not int$"),
        ({"words": ["y", None]}, r"^it\.words\[1\] is None, not str$"),
    ],
)
def test_a_value_of_another_type_is_named(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode(Outer, document(**changed), name="it")


@pytest.mark.parametrize("found", [[], None, "text", 1])
def test_what_is_not_an_object_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="not Outer"):
        decode(Outer, found)
