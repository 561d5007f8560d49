"""A copy of any trace in Perfetto's format gives the same page, and tells nothing private."""

import gzip
import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.base.errors import OutputError
from nsysflow.report.results import Results
from nsysflow.report.text import page_lines
from nsysflow.runs.packed import is_for_perfetto, pack_trace
from tests.reports import DATA, SAMPLES
from tests.rocpd import Database, write_rocpd

SECRET: Final = "hunter2"
KINETO: Final = DATA / "h200-kineto.pt.trace.json.gz"


def rocpd(folder: Path) -> Path:
    """A program on AMD's GPU whose ranges, metadata and threads tell secrets."""
    run = Database("tracks")
    run.add("rocpd_metadata", tag="environment", value=f"TOKEN={SECRET}")
    run.add("rocpd_info_process", id=99, pid=99, command=f"/home/{SECRET}/train --key {SECRET}")
    message = f"generate prompt='tell me {SECRET}'"
    run.call(0, 400, 9, "roctxThreadRangeA", "MARKER_CORE_RANGE_API", message)
    for number in range(3):
        at = 100 * number
        run.call(at + 5, at + 10, number + 1)
        run.kernel(at + 12, at + 40, number + 1)
    return write_rocpd(folder / f"{SECRET}_results.db", run)


def kineto(folder: Path) -> Path:
    """The trace of a program with a range that holds a prompt, and a path."""
    document: dict[str, Any] = json.loads(gzip.decompress(KINETO.read_bytes()))
    document["traceName"] = f"/home/{SECRET}/trace.json"
    step = next(e for e in document["traceEvents"] if e.get("cat") == "user_annotation")
    path = f"load /home/{SECRET}/model.bin"
    document["traceEvents"].append({**step, "name": path, "dur": step["dur"] / 2})
    out = folder / "trace.json"
    out.write_text(json.dumps(document))
    return out


def page_of(trace: nsysflow.Trace) -> list[str]:
    """The page of a trace, under one name."""
    results = Results([nsysflow.analyze(replace(trace, report="r"))])
    return [line.plain for line in page_lines(results, width=110, top=None)]


@pytest.mark.parametrize("make", [rocpd, kineto])
def test_a_copy_gives_the_same_page_and_no_planted_secret(make: Any, tmp_path: Path) -> None:
    report, out = make(tmp_path), tmp_path / "shared.pftrace.xz"
    before = report.read_bytes()
    pack_trace(report, out)
    copy = load(out)
    assert report.read_bytes() == before
    assert copy.report == "shared"
    assert SECRET.encode() not in lzma.decompress(out.read_bytes())
    assert any(SECRET in name for name in load(report).ranges["name"])
    assert SECRET not in "\n".join(page_of(copy))
    same, expected = (nsysflow.analyze(trace) for trace in (copy, load(report)))
    assert same.kernels.drop("report").equals(expected.kernels.drop("report"))
    named = ["report", "phase", "waiting_phase", "host_range"]
    assert same.gaps.drop(named).equals(expected.gaps.drop(named))


def test_a_report_of_nsys_can_be_packed_so_too(tmp_path: Path) -> None:
    out = tmp_path / "copy.perfetto-trace"
    report = SAMPLES / "nan_check-sync.sqlite.xz"
    pack_trace(report, out)
    assert page_of(load(out)) == page_of(load(report))


def test_the_ending_says_the_format() -> None:
    names = ("a.pftrace", "a.pftrace.xz", "b.perfetto-trace.gz", "c.pftrace.zst")
    assert all(is_for_perfetto(Path(name)) for name in names)
    assert not any(is_for_perfetto(Path(name)) for name in ("a.sqlite", "pftrace", "a.pftrace.zip"))


def test_a_trace_is_never_replaced_by_its_copy(tmp_path: Path) -> None:
    out = tmp_path / "trace.pftrace"
    pack_trace(KINETO, out)
    before = out.read_bytes()
    with pytest.raises(OutputError, match="is the report itself"):
        pack_trace(out, out)
    assert out.read_bytes() == before
