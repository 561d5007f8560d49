"""Where each idle nanosecond belongs, on traces of a few rows (spec §3.17 to §3.23)."""

import nsysflow
from nsysflow.analysis.options import Options
from tests.oracle.model import Overhead
from tests.tiny import PROCESS, Row, analysis_of, call, kernel, launch, opened

US = 1_000
SYNC = "cudaStreamSynchronize"


def gap(*rows: Row, start: int = 100, end: int = 1_000, until: int | None = None) -> list[Row]:
    """A gap from `start` to `end` us, whose next launch lasts from `end` - 20 to `until` us."""
    launched = (end - 1 if until is None else until) * US
    return [
        launch(0, 10 * US, 1),
        kernel(20 * US, start * US, 1),
        launch((end - 20) * US, launched, 2),
        kernel(end * US, (end + 100) * US, 2),
        *rows,
    ]


def wait(first: int, last: int, name: str = SYNC) -> Row:
    return call(first * US, last * US, name)


def within(first: int, last: int, name: str) -> Row:
    return opened(first * US, last * US, name)


def places(analysis: nsysflow.Analysis, cause: str) -> list[tuple[str, str, int]]:
    """Phase, culprit and us of each part of a cause."""
    rows = analysis.gap_summary.filter(cause=cause).select("phase", "culprit", "total_ns").rows()
    return [(phase, culprit, ns // US) for phase, culprit, ns in rows]


def test_a_wait_is_where_it_was_called_not_where_the_host_was_in_the_middle() -> None:
    ranges = within(150, 400, "log"), within(400, 1_000, "data")
    found = analysis_of(*gap(wait(200, 300), *ranges))
    assert places(found, "sync") == [("log", SYNC, 100)]
    assert [place[0] for place in places(found, "host")] == ["data"]


def test_a_wait_before_the_gap_is_charged_to_the_place_of_its_call() -> None:
    rows = within(30, 95, "log"), within(95, 2_000, "data")
    found = analysis_of(*gap(wait(40, 90), *rows))
    assert places(found, "sync") == [("log", SYNC, 50)]


def test_waits_of_one_gap_in_two_phases_are_two_parts_each_with_its_own_call() -> None:
    rows = wait(200, 300), wait(500, 560, "cudaDeviceSynchronize")
    ranges = within(150, 400, "a"), within(450, 600, "b")
    found = analysis_of(*gap(*rows, *ranges))
    assert places(found, "sync") == [("a", SYNC, 100), ("b", "cudaDeviceSynchronize", 60)]
    assert found.gap_summary.filter(cause="sync")["gaps"].to_list() == [1, 1]


def test_launch_calls_and_the_code_between_them_can_lie_in_two_phases() -> None:
    ranges = within(100, 178, "build"), within(178, 300, "send")
    found = analysis_of(*gap(wait(100, 140, "cudaLaunchKernel"), *ranges, end=200))
    # 40 us of a launch and 40 us of the framework's come before the launch in `send`
    assert places(found, "launch") == [
        ("build", "cudaLaunchKernel", 80),
        ("send", "cudaLaunchKernel", 19),
    ]


def test_queue_time_is_of_the_phase_that_launched() -> None:
    found = analysis_of(*gap(within(970, 990, "send"), until=992))
    assert places(found, "queue_delay") == [("send", "", 8)]


def test_a_launch_that_began_before_the_gap_is_where_it_was_called() -> None:
    rows = [
        *gap(within(85, 95, "send"), end=110, until=105),
        Overhead(102 * US, 104 * US, PROCESS, PROCESS | 1, "flush"),
    ]
    found = analysis_of(*rows)
    assert {*found.gap_summary["phase"]} == {"send"}
    (row,) = found.gaps.to_dicts()
    assert (row["phase"], row["host_range"]) == ("send", "")


def test_work_without_a_launch_has_a_place_of_its_own() -> None:
    rows = launch(0, 10, 1), kernel(20, 100, 1), kernel(900, 1_000, None)
    found = analysis_of(*rows, opened(0, 2_000, "step"))
    assert found.gap_summary["phase"].to_list() == ["(launch not recorded)"]
    (row,) = found.gaps.to_dicts()
    assert (row["phase"], row["waiting_phase"]) == ("(launch not recorded)",) * 2


def test_the_phase_of_a_gap_is_the_place_with_most_of_its_cause() -> None:
    rows = wait(110, 400), wait(450, 900), within(100, 420, "a"), within(430, 950, "b")
    (row,) = analysis_of(*gap(*rows)).gaps.to_dicts()
    assert (row["cause"], row["phase"]) == ("sync", "b")


def test_of_two_places_with_equally_much_the_first_by_name_is_the_gaps() -> None:
    rows = wait(110, 410), wait(450, 750), within(100, 420, "z"), within(430, 800, "a")
    (row,) = analysis_of(*gap(*rows)).gaps.to_dicts()
    assert (row["cause"], row["phase"]) == ("sync", "a")


def test_the_places_of_a_cut_gap_keep_their_proportions() -> None:
    rows = wait(100, 400), wait(400, 980), within(90, 400, "a"), within(400, 990, "b")
    found = analysis_of(*gap(*rows), options=Options(from_ns=0, to_ns=550 * US))
    half = {phase: us for phase, _, us in places(found, "sync")}
    assert half == {"a": 150, "b": 290}
