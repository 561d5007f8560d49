"""Rows are shown as a table, with notes."""

from io import StringIO

from rich.console import Console

from nsysflow.kernels.bench.rows import Row
from nsysflow.kernels.bench.statistics import stats_of
from nsysflow.kernels.bench.table import notes_of, spread_of, table_of
from tests.kernels.bench.rows import measured, row


def page(*rows: Row) -> list[str]:
    """The table as it is printed."""
    out = StringIO()
    Console(file=out, width=200, highlight=False).print(table_of(rows))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_timed_table_has_one_column_per_way_of_timing() -> None:
    title, heads, line = page(row(measured=measured(8000.0)))
    assert title == "advantage  medians in us"
    ways = ["device", "span cold", "span warm", "graph cold", "graph warm"]
    assert [heads.index(way) for way in ways] == sorted(heads.index(way) for way in ways)
    assert line.split()[:10] == ["S=8", "T=2", "bf16", "fwd", "triton", "25", "%", "8", "16", "16"]


def test_without_a_gpu_the_table_ends_with_the_error() -> None:
    _, heads, line = page(row(measured=None))
    assert heads.split() == ["shape", "dtype", "direction", "variant", "error", "/", "tolerance"]
    assert line.endswith("25 %")


def test_wrong_and_failed_rows_say_why() -> None:
    wrong = row(outcome="wrong", error=7.0, note="output 0 is off", measured=None)
    failed = row(outcome="failed", error=None, note="OSError: no", measured=None)
    assert [line.split()[-1] for line in page(wrong, failed)[2:]] == ["WRONG", "failed"]
    assert notes_of([row(), wrong, failed]) == [
        "advantage triton fwd bf16 S=8 T=2: wrong: output 0 is off",
        "advantage triton fwd bf16 S=8 T=2: failed: OSError: no",
    ]


def test_the_spread_names_the_worst_case() -> None:
    shaky = row(
        kernel="prio", measured=measured(graph_warm=stats_of([[100.0, 100.0], [103.0, 103.0]]))
    )
    line = spread_of([row(), shaky])
    assert line is not None
    assert "median 0.00 %, largest 3.00 % (graph warm, prio triton" in line
    assert spread_of([row(measured=None)]) is None
