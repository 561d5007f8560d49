import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.base import units
from nsysflow.base.errors import near_or_all
from nsysflow.base.names import SourceLine, has_rank, printable_json, without_rank


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0"), (7, "7 ns"), (999, "999 ns"), (1_000, "1.00 us"), (23_752_139, "23.8 ms"),
     (999_499, "999 us"), (999_500, "1.00 ms"), (5_889_341_842, "5.89 s"),
     (1_234_000_000_000, "1,234 s"), (-8_000_000, "-8.00 ms"), (None, "")],
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 %"), (0.01, "<0.1 %"), (4.44, "4.4 %"), (9.94, "9.9 %"), (9.95, "10 %"),
     (34.2, "34 %"), (99.4, "99 %"), (99.9, ">99 %"), (100.0, "100 %"), (535.0, "535 %")],
)  # fmt: skip
def test_a_percentage_has_a_decimal_below_ten_alone(value: float, text: str) -> None:
    assert units.percent(value) == text


def test_in_a_sentence_it_has_none_and_is_neither_none_nor_all_by_rounding() -> None:
    shares = [units.whole_percent(part, 1_000) for part in (0, 1, 44, 999, 1_000)]
    assert shares == ["0 %", "<1 %", "4 %", ">99 %", "100 %"]


RANGES = ["step", "data", "forward", "backward", "optimizer", "grad_clip"]


@pytest.mark.parametrize(
    ("typed", "known", "said"),
    [
        ("fwd", RANGES, "Did you mean forward? There are 5 more; --table phases shows all"),
        ("xyz", ["a", "b"], "There are: a, b"),
        ("x", [*"123456789"], "There are: 1, 2, 3, 4, 5, 6, 7, 8. There is 1 more; --table phases"),
        ("xyz", [], ""),
        ("x", [f"Cijk_{'A' * 600}_WG16"], f"There is: Cijk_{'A' * 44}…{'A' * 45}_WG16"),
    ],
)
def test_the_answer_is_the_nearest_name_or_first(typed: str, known: list[str], said: str) -> None:
    assert near_or_all(typed, known, where="--table phases").startswith(said)


@pytest.mark.parametrize(
    ("name", "common"),
    [("ddp-rank0", "ddp"), ("run_rank_12.sqlite", "run.sqlite"), ("Rank3-a", "-a")],
)
def test_ranks_of_a_run_have_a_name_in_common(name: str, common: str) -> None:
    assert has_rank(name)
    assert without_rank(name) == common


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("train.py:42 in step", SourceLine("train.py", 42, "step")),
        ("pkg/train.py:42", SourceLine("pkg/train.py", 42, "")),
        ("a.py:7 in f in g", SourceLine("a.py", 7, "f in g")),
        ("train.py", None),
        ("", None),
    ],
)
def test_a_line_is_a_file_a_number_and_a_function(text: str, line: SourceLine | None) -> None:
    assert SourceLine.of(text) == line


def test_json_holds_no_letter_that_controls_a_terminal_and_reads_the_same() -> None:
    names = [chr(number) for number in range(0x20, 0x100)]
    text = printable_json(json.dumps(names, ensure_ascii=False))
    odd = {letter for letter in text if not letter.isprintable()}
    assert text.isprintable() or odd == {"\xa0", "\xad"}
    assert json.loads(text) == names
