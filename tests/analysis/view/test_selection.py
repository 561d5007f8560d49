"""Which windows the options select."""

import pytest

from nsysflow.analysis.options import Options
from nsysflow.analysis.view.selection import selected_windows
from tests.tiny import Row, kernel, launch, opened, timeline_of

ROWS: tuple[Row, ...] = (
    opened(0, 100, "load"),
    opened(200, 300, "forward"),
    launch(10, 20, 1),
    launch(210, 220, 2),
    launch(230, 240, 3),
    kernel(20, 60, 1),
    kernel(220, 260, 2),
    kernel(250, 290, 3, device=1),
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(), [(0, 20, 260), (1, 250, 290)]),
        (Options(device=1), [(1, 250, 290)]),
        (Options(from_ns=50, to_ns=255), [(0, 50, 255), (1, 250, 255)]),
        (Options(range="forward"), [(0, 220, 260), (1, 250, 290)]),
        (Options(range="forward", device=0, from_ns=230), [(0, 230, 260)]),
    ],
)
def test_a_window_is_what_all_options_agree_on(
    options: Options, expected: list[tuple[int, int, int]]
) -> None:
    timeline = timeline_of(*ROWS, options=options)
    windows = selected_windows(
        timeline.events, timeline.attribution, timeline.ops, timeline.steps, options
    )
    assert windows.select("device_no", "start_ns", "end_ns").sort("device_no").rows() == expected
