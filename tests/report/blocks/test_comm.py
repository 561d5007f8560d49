"""Communication kernels: the most exposed time first."""

from nsysflow.report.blocks.comm import block
from nsysflow.report.fields import Limits
from tests.analyses import analysed
from tests.report.handmade import MS, Results, device, results


def group(exposed_ns: int, busy_ns: int, **columns: object) -> dict[str, object]:
    """A row of comm."""
    hidden_pct = 100 * (busy_ns - exposed_ns) / busy_ns
    of = {"exposed_ns": exposed_ns, "busy_ns": busy_ns, "hidden_pct": hidden_pct, "count": 10}
    return {"name": "ncclDevKernel_X", "operation": "ncclAllReduce", "bytes": None, **of, **columns}


def test_the_most_exposed_time_comes_first() -> None:
    run = results(
        accounting=[device(100 * MS)],
        comm=[
            group(1 * MS, 9 * MS, phase="step/backward"),
            group(3 * MS, 4 * MS, phase="step/sync"),
            group(0, 2 * MS, phase=""),
        ],
    )
    found = block(run, Limits(rows=2))
    assert [row[:4] for row in found.rows] == [
        ("3.00 ms", "25 %", "4.00 ms", "10"),
        ("1.00 ms", "89 %", "9.00 ms", "10"),
    ]
    assert found.rest == "1 more: --table comm"


def test_bytes_have_a_column_only_where_some_are_known() -> None:
    unknown, known = (
        block(results(comm=[group(1 * MS, 2 * MS, bytes=size)]), Limits(rows=5))
        for size in (None, 64_000_000)
    )
    assert "bytes" not in [column.head for column in unknown.columns]
    assert "bytes" in [column.head for column in known.columns]
    assert any("64" in cell for cell in known.rows[0])


def test_each_rank_has_rows_of_its_own() -> None:
    both = Results([analysed(f"h200-ddp-rank{number}") for number in (0, 1)])
    gpus = [row[0] for row in block(both, Limits(rows=5)).rows]
    assert gpus == ["h200-ddp-rank1 GPU 1", "h200-ddp-rank0 GPU 0"]
