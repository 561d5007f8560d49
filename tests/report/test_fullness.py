"""The block on sampled counters."""

from nsysflow.report.fullness import FULL_BAR, fullness
from nsysflow.report.results import Results
from tests.report.handmade import MS, handmade, metrics, results, sampled, training


def test_what_is_busy_on_an_idle_chip_comes_first_and_is_named_so() -> None:
    block = fullness(Results([sampled()]), 10)
    flagged = [row[1] for row in block.rows if row[-1] == FULL_BAR]
    assert flagged == ["step/loss", "reduction"]
    assert [row[1] for row in block.rows][:3] == ["step/loss", "reduction", "step"]


def test_a_phase_whose_gpu_idles_between_operations_is_no_idle_chip() -> None:
    row = metrics("phase", "step", MS, bound="overhead", sm_active_pct=3.0)
    block = fullness(results(gpu_metrics=[row]), 10)
    assert [column.head for column in block.columns][-1] == "bound"
    assert FULL_BAR not in block.rows[0]


def test_memory_is_what_is_read_and_written_together() -> None:
    block = fullness(Results([sampled()]), 10)
    (cells,) = [row for row in block.rows if "matmul" in row]
    assert "31.5 %" in cells


def test_what_was_not_sampled_has_no_row() -> None:
    rows = [metrics("phase", "step", MS, samples=0, sm_active_pct=None, bound=None)]
    assert fullness(Results([handmade(gpu_metrics=rows)]), 10).rows == ()


def test_a_report_without_samples_has_no_such_block() -> None:
    assert fullness(Results([training()]), 10).rows == ()
