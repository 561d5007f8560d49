"""What may be wrong with a recording, one fault at a time."""

import pytest

from tests.tiny import Row, analysis_of, call, kernel, launch, opened

SOUND: tuple[Row, ...] = (launch(0, 10, 1), kernel(20, 30, 1), launch(80, 90, 2), kernel(95, 99, 2))


def checks(*rows: Row) -> dict[str, int]:
    return dict(analysis_of(*rows).integrity.select("check", "count").rows())


def test_a_sound_report_has_no_row() -> None:
    assert checks(*SOUND) == {}


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ([launch(41, 45, 9), kernel(40, 50, 9)], "kernels before their launch"),
        ([kernel(40, 50, None)], "operations without a launch"),
        ([launch(35, 36, 9), kernel(50, 40, 9)], "negative durations"),
        ([launch(40, 50, 9)], "launches without an operation"),
        ([opened(0, 50, "step")], "unattributed operations"),
        ([launch(21, 22, 9), kernel(25, 35, 9)], "overlapping kernels on one stream"),
    ],
)
def test_a_fault_is_counted_by_its_check(fault: list[Row], check: str) -> None:
    assert checks(*SOUND, *fault)[check] == 1


def test_a_launch_into_a_graph_that_is_being_captured_lacks_no_operation() -> None:
    begun, ended = call(35, 36, "cudaStreamBeginCapture"), call(60, 61, "cudaStreamEndCapture")
    assert checks(*SOUND, begun, launch(40, 50, 9), ended) == {}
