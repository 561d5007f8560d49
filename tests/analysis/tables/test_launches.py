"""What launching cost in a phase, on launches of known length."""

from tests.tiny import analysis_of, kernel, launch, opened


def test_a_phase_sums_its_launches_and_takes_medians_of_them() -> None:
    rows = [opened(0, 1_000, "step")]
    calls = [launch(100 * n, 100 * n + 10 * n, n) for n in (1, 2, 3)]
    kernels = [kernel(100 * n + 50, 100 * n + 60, n) for n in (1, 2, 3)]
    (row,) = analysis_of(*rows, *calls, *kernels).launches.to_dicts()
    assert (row["path"], row["launches"], row["api_ns"]) == ("step", 3, 10 + 20 + 30)
    assert (row["api_median_ns"], row["latency_median_ns"]) == (20, 50)


def test_launches_outside_all_ranges_are_in_no_row() -> None:
    assert analysis_of(launch(0, 10, 1), kernel(20, 30, 1)).launches.is_empty()
