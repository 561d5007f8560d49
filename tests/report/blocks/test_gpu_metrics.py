"""Sampled counters."""

from nsysflow.report.blocks.gpu_metrics import FEW_SMS, block
from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from tests.report.handmade import MS, Results, handmade, metrics, results, sampled, training


def counters(of: Results) -> Block:
    return block(of, Limits(rows=10))


def test_what_is_busy_with_few_sms_active_comes_first_and_is_marked() -> None:
    block = counters(Results([sampled()]))
    flagged = [row[1] for row in block.rows if row[-1] == FEW_SMS]
    assert flagged == ["step/loss", "reduction"]
    assert [row[1] for row in block.rows][:3] == ["step/loss", "reduction", "step"]


def test_a_phase_whose_gpu_idles_between_operations_is_not_marked() -> None:
    row = metrics("phase", "step", MS, bound="overhead", sm_active_pct=3.0)
    block = counters(results(gpu_metrics=[row]))
    assert [column.head for column in block.columns][-1] == "bound"
    assert FEW_SMS not in block.rows[0]


def test_memory_is_what_is_read_and_written_together() -> None:
    block = counters(Results([sampled()]))
    (cells,) = [row for row in block.rows if "matmul" in row]
    assert cells[6] == "32 %"  # 20 % read and 11.5 % written


def test_what_was_not_sampled_has_no_row() -> None:
    rows = [metrics("phase", "step", MS, samples=0, sm_active_pct=None, bound=None)]
    assert counters(Results([handmade(gpu_metrics=rows)])).rows == ()


def test_a_report_without_samples_has_no_rows() -> None:
    assert counters(Results([training()])).rows == ()
