"""When devices idled, and where the host was."""

import pytest

from tests.tiny import Row, analysis_of, kernel, launch, opened, timeline_of


@pytest.mark.parametrize(
    ("kernels", "gaps"),
    [
        pytest.param(((0, 10), (30, 40)), [(10, 30)], id="between two operations"),
        pytest.param(((0, 10), (10, 40)), [], id="none where they touch"),
        pytest.param(((0, 100), (20, 30), (150, 160)), [(100, 150)], id="nested ones end none"),
        pytest.param(((0, 10), (20, 20), (30, 40)), [(10, 30)], id="those of no length bound none"),
        pytest.param(((0, 10), (30, 40), (0, 40, 1)), [(10, 30)], id="each device has its own"),
    ],
)
def test_a_gap_lies(kernels: tuple[tuple[int, ...], ...], gaps: list[tuple[int, int]]) -> None:
    rows = [
        kernel(start, end, number, device=next(iter(device), 0))
        for number, (start, end, *device) in enumerate(kernels, start=1)
    ]
    assert timeline_of(*rows).bare_gaps.select("start_ns", "end_ns").rows() == gaps


def test_the_operation_launched_first_ends_the_gap_if_several_start_together() -> None:
    rows: list[Row] = [launch(5, 6, 2), launch(3, 4, 3), kernel(0, 10, 1)]
    timeline = timeline_of(*rows, kernel(20, 30, 2, name="late"), kernel(20, 30, 3, name="early"))
    (next_op,) = timeline.bare_gaps["next_op"]
    assert timeline.ops["short_name"][next_op] == "early"


@pytest.mark.parametrize(
    ("ranges", "second", "host_range"),
    [
        pytest.param(((0, 299, "data"), (300, 900, "forward")), 500, "forward", id="middle at 300"),
        pytest.param(((0, 299, "data"), (300, 900, "forward")), 498, "", id="neither is open"),
        pytest.param(((0, 2_000, "step"),), 50, "", id="the launch came before the gap"),
    ],
)
def test_the_host_range_is_open_in_the_middle_of_the_time_before_the_launch(
    ranges: tuple[tuple[int, int, str], ...], second: int, host_range: str
) -> None:
    rows = (launch(0, 10, 1), kernel(20, 100, 1), launch(second, second + 5, 2))
    (gap,) = analysis_of(
        *rows, kernel(1_000, 1_100, 2), *(opened(*range_) for range_ in ranges)
    ).gaps.to_dicts()
    assert gap["host_range"] == host_range
