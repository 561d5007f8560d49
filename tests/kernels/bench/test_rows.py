"""Rows and their files."""

import csv
import json
import math
from pathlib import Path

import pytest

from nsysflow.base.errors import OutputError
from nsysflow.base.peaks import PEAKS, peak_flops
from nsysflow.kernels.bench.cases import checked_copy, exit_code
from nsysflow.kernels.bench.rows import add_to_csv, add_to_json, check_file, flat
from tests.kernels.bench.rows import measured, row


def test_rates_use_the_device_time() -> None:
    columns = flat(row(), peak_flops_per_s=3e12)
    assert columns["device_median_ns"] == 1000
    assert columns["graph_warm_median_ns"] == 2000
    assert columns["bytes_per_s"] == 4e9
    assert columns["copy_pct"] == 80
    assert columns["flops_per_s"] == 3e11
    assert columns["peak_pct"] == 10


@pytest.mark.parametrize(
    "other",
    [
        row(measured=None, cost=None, error=None, outcome="failed", note="why"),
        row(measured=measured(graph_cold=None, graph_warm=None, why_no_graph="it waits")),
        row(error=math.inf, outcome="wrong", measured=None),
    ],
    ids=["failed", "not captured", "wrong"],
)
def test_every_row_has_the_same_columns_and_is_valid_json(other: object) -> None:
    columns = flat(other, None)  # type: ignore[arg-type]
    assert list(columns) == list(flat(row(), peak_flops_per_s=1e12))
    assert json.loads(json.dumps(columns, allow_nan=False)) == columns


def test_rows_are_appended_and_never_replaced(tmp_path: Path) -> None:
    table, lines = tmp_path / "rows.csv", tmp_path / "rows.json"
    for name in ("advantage", "prio", "muon"):
        columns = flat(row(kernel=name), None)
        check_file(table, columns)
        add_to_csv(table, columns)
        add_to_json(lines, columns)
    with table.open(newline="") as file:
        names = [each["kernel"] for each in csv.DictReader(file)]
    assert names == ["advantage", "prio", "muon"]
    assert [json.loads(line)["kernel"] for line in lines.read_text().splitlines()] == names


def test_a_file_with_other_columns_is_refused_and_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(OutputError, match="has other columns"):
        check_file(file, flat(row(), None))
    assert file.read_text() == "a,b\n1,2\n"


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot append results to"):
        check_file(tmp_path / "no" / "rows.json", None)


def test_a_row_names_only_gpu_and_versions_of_the_machine() -> None:
    texts = {name for name, value in flat(row(), None).items() if isinstance(value, str)}
    versions = {"driver", "cuda", "torch", "triton", "nsysflow"}
    case = {"kernel", "shape", "dtype", "direction", "variant", "outcome", "unit"}
    assert texts == {"date", "gpu"} | versions | case


@pytest.mark.parametrize(("device_ns", "outcome"), [(800, "right"), (799, "wrong"), (950, "wrong")])
def test_a_copy_at_an_impossible_speed_is_wrong(device_ns: float, outcome: str) -> None:
    copied = row(kernel="copy", measured=measured(device_ns))  # 4000 bytes: 800 ns at 5 GB/s
    assert checked_copy(copied).outcome == outcome
    assert checked_copy(row(measured=measured(device_ns))).outcome == "right"


def test_the_worst_outcome_decides_the_exit_code() -> None:
    right, wrong, failed = (row(outcome=each) for each in ("right", "wrong", "failed"))
    assert exit_code([right, failed, wrong]) == 3
    assert exit_code([right, failed]) == 1
    assert exit_code([right]) == 0


def test_peaks_are_higher_for_narrower_numbers() -> None:
    for peaks in PEAKS.values():
        assert peaks["float32"] < peaks["tf32"] < peaks["bf16"]
    assert peak_flops("a GPU of tomorrow", "bf16") is None
