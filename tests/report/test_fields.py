import polars as pl
import pytest

from nsysflow.base.units import duration
from nsysflow.report.fields import gpu_fields, mean_count, phase_field, value
from nsysflow.report.source_lines import line_at
from tests.report.handmade import MS, Results, handmade, renamed


def test_null_is_an_empty_cell_and_no_phase_is_outside_all_ranges() -> None:
    shown = value("ns", duration)
    assert [shown({"ns": ns}) for ns in (None, 0, 3 * MS)] == ["", "0", "3.00 ms"]
    _, cell = phase_field()
    phases = [cell({"phase": phase}) for phase in ("step", "", None)]
    assert phases == ["step", "(outside ranges)", "(outside ranges)"]


def test_the_gpu_has_a_column_only_where_the_rows_are_of_several_and_its_report_too() -> None:
    for devices, named in (([0, 0], False), ([0, 1], True)):
        table = pl.DataFrame({"report": "run.sqlite", "device": devices})
        assert bool(gpu_fields(Results([handmade()]), table)) is named
    run = Results([renamed(handmade(), name) for name in "ab"])
    ((_, cell),) = gpu_fields(run, pl.DataFrame({"report": ["a", "b"], "device": [0, 0]}))
    assert cell({"report": "b", "device": 0}) == "b GPU 0"


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0"), (1, "<0.1"), (25, "0.5"), (50, "1"), (99, "2.0"), (475, "9.5"), (525, "10")],
)  # fmt: skip
def test_a_mean_count_per_step_is_never_rounded_to_none(count: int, said: str) -> None:
    assert mean_count(count, 50) == said


@pytest.mark.parametrize(
    ("cause", "culprit", "source", "said"),
    [
        ("host", "", "train.py:42 in step", "before train.py:42"),  # of the launch after it
        ("host", "", "train.py:42", "before train.py:42"),
        ("sync", "cudaStreamSynchronize", "a.py:1 in f", "a.py:1 in f"),
        ("host", "", "", ""),
    ],
)
def test_the_line_of_a_cause(cause: str, culprit: str, source: str, said: str) -> None:
    assert line_at(cause, culprit, source) == said
