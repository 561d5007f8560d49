"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.report import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0"),
        (7, "7 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (23_752_139, "23.8 ms"),
        (999_499, "999 us"),
        (999_500, "1.00 ms"),
        (5_889_341_842, "5.89 s"),
        (1_234_000_000_000, "1,234 s"),
        (-8_000_000, "-8.00 ms"),
        (None, ""),
    ],
)
def test_a_duration_has_three_digits_and_the_unit_that_fits(ns: int | None, text: str) -> None:
    assert units.duration(ns) == text


@given(st.integers(min_value=1_000, max_value=10**15))
def test_a_duration_is_off_by_at_most_half_a_percent(ns: int) -> None:
    value, unit = units.duration(ns).replace(",", "").split()
    shown_ns = float(value) * {"us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert shown_ns == pytest.approx(ns, rel=0.005)


def test_what_was_not_measured_is_empty_and_never_zero() -> None:
    assert [units.size(None), units.number(None), units.percent(None)] == ["", "", ""]
    assert units.share(1, 0) == ""


def test_a_small_share_is_not_shown_as_none() -> None:
    assert units.percent(0.01) == "<0.1 %"
    assert units.percent(0.0) == "0.0 %"
    assert units.whole_percent(1, 1_000) == "<1 %"


def test_almost_all_is_not_shown_as_all() -> None:
    assert units.whole_percent(999, 1_000) == ">99 %"
    assert units.whole_percent(1_000, 1_000) == "100 %"


def test_an_instant_can_be_typed_back_as_an_option() -> None:
    assert units.instant(5_889_341_842) == "5.889342 s"
