"""Gaps as rows, summed and counted, on kernels at known distances."""

import polars as pl

import nsysflow
from nsysflow.analysis.tables.gaps import count_gaps, longest_gaps
from tests.tiny import Row, analysis_of, call, kernel, launch, opened

US = 1_000


def apart(*pauses_ns: int) -> list[Row]:
    """Kernels of 1 us with these pauses between them, launched when the one before has ended."""
    rows: list[Row] = [launch(0, 10, 1), kernel(10, US, 1)]
    end = US
    for number, pause_ns in enumerate(pauses_ns, start=2):
        start = end + pause_ns
        rows += [launch(start - 10, start, number), kernel(start, start + US, number)]
        end = start + US
    return rows


def test_a_row_names_the_operations_around_the_gap() -> None:
    rows = launch(0, 10, 1), kernel(10, 20, 1, name="a"), launch(30, 40, 2)
    (gap,) = analysis_of(*rows, kernel(50, 60, 2, name="b")).gaps.to_dicts()
    assert (gap["prev_op"], gap["next_op"], gap["duration_ns"]) == ("a", "b", 30)


def test_the_longest_gaps_come_first_and_short_ones_can_be_left_out() -> None:
    view = analysis_of(*apart(3 * US, 9 * US, 5 * US)).view
    assert longest_gaps(view, 2)["duration_ns"].to_list() == [9 * US, 5 * US]
    assert longest_gaps(view, 9, at_least_ns=6 * US)["duration_ns"].to_list() == [9 * US]
    assert (count_gaps(view), count_gaps(view, 4 * US)) == (3, 2)


def test_a_length_on_a_border_counts_in_the_class_above() -> None:
    histogram = analysis_of(*apart(1_999, 2_000, 4_999)).gap_histogram
    counted = histogram.group_by("length").agg(pl.col("gaps").sum())
    assert dict(counted.rows()) == {"< 2 us": 1, "< 5 us": 2}


def summary(analysis: nsysflow.Analysis) -> dict[tuple[str, str, str], int]:
    """Idle time by phase, cause and culprit."""
    rows = analysis.gap_summary.select("phase", pl.col("cause", "culprit").cast(str), "total_ns")
    return {row[:3]: row[3] for row in rows.rows()}


def test_each_part_of_a_gap_counts_under_its_own_cause_and_culprit() -> None:
    wait = call(2 * US, 80 * US, "cudaStreamSynchronize")
    found = summary(analysis_of(*apart(200 * US), wait))
    assert found[("", "sync", "cudaStreamSynchronize")] == 78 * US
    assert sum(found.values()) == 200 * US


def test_idle_time_is_of_the_phase_in_which_the_host_was() -> None:
    data, after = opened(50 * US, 150 * US, "data"), opened(150 * US, 300 * US, "after")
    found = analysis_of(*apart(200 * US), data, after)
    assert {phase for phase, cause, _ in summary(found) if cause == "host"} == {"data"}
    (gap,) = found.gaps.to_dicts()
    assert (gap["phase"], gap["waiting_phase"]) == ("data", "after")
