"""What each phase ran and waited for, on a step of two phases."""

from tests.tiny import Row, analysis_of, kernel, launch, opened

STEP: tuple[Row, ...] = (
    opened(0, 1_000, "step"),
    opened(100, 400, "forward"),
    launch(50, 60, 1),
    kernel(60, 90, 1),
    launch(110, 120, 2),
    kernel(120, 220, 2),
    launch(200, 210, 3),
    kernel(200, 260, 3),
)


def phase(path: str, *more: Row) -> dict[str, object]:
    rows = analysis_of(*STEP, *more).phases.to_dicts()
    return next(row for row in rows if row["path"] == path)


def test_a_phase_includes_what_is_nested_in_it() -> None:
    assert (phase("step")["kernels"], phase("step/forward")["kernels"]) == (3, 2)
    assert (phase("step")["kernel_ns"], phase("step")["exclusive_kernel_ns"]) == (190, 30)


def test_busy_time_counts_kernels_that_overlap_once() -> None:
    assert (phase("step/forward")["kernel_ns"], phase("step/forward")["busy_ns"]) == (160, 140)


def test_idle_time_is_of_the_phase_whose_launch_ended_it_and_of_those_around() -> None:
    assert (phase("step/forward")["idle_ns"], phase("step")["idle_ns"]) == (30, 30)


def test_each_instance_counts_and_spans_from_its_first_kernel_to_its_last_end() -> None:
    again: tuple[Row, ...] = (opened(500, 700, "forward"), launch(510, 520, 4), kernel(520, 580, 4))
    row = phase("step/forward", *again)
    assert (row["instances"], row["span_ns"]) == (2, 140 + 60)


def test_a_phase_that_ran_nothing_still_has_its_host_time() -> None:
    row = phase("step/log", opened(800, 900, "log"))
    assert (row["ops"], row["host_wall_ns"]) == (0, 100)
