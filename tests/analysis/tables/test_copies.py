"""Copies summed by direction, memory and phase."""

from tests.tiny import analysis_of, copy, launch, opened


def test_copies_of_one_kind_and_phase_are_one_row() -> None:
    rows = [opened(0, 250, "load"), opened(250, 1_000, "save")]
    calls = [launch(100 * n, 100 * n + 5, n, name="cudaMemcpyAsync") for n in (1, 2, 3)]
    copies = [copy(100 * n + 10, 100 * n + 40, n, "HtoD", "pinned", "device") for n in (1, 2, 3)]
    found = analysis_of(*rows, *calls, *copies).copies
    assert found.select("phase", "direction", "count", "bytes", "gpu_ns").rows() == [
        ("load", "HtoD", 2, 2_000, 60),
        ("save", "HtoD", 1, 1_000, 30),
    ]
