"""The checks that a recording must pass."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

import nsysflow
from nsysflow.analysis import schema
from nsysflow.analysis.events import activity as lost_stretches
from nsysflow.analysis.validity.checks import Check, Failed
from tests.analyses import EXAMPLES, analysed, every_report, oracle_of
from tests.breaking import (
    EVERY_TENTH_UNSTAMPED,
    MIDDLE_THIRD_GONE,
    NO_OPERATIONS,
    ONE_GRAPH_KERNEL_STRETCHED,
    broken,
)
from tests.oracle import lost
from tests.oracle.export import read_export
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import traces
from tests.oracle.validity import Failures, failures
from tests.tiny import Row, analysis_of, call, copy, kernel, launch, opened, trace_of

SOUND: tuple[Row, ...] = (launch(10, 20, 1), kernel(20, 30, 1))


def failed(analysis: nsysflow.Analysis) -> Failures:
    """The failed checks as the oracle gives them."""
    return {
        str(each.check): (each.count, each.of, each.start_ns, each.end_ns)
        for each in analysis.failed_checks
    }


def checks(path: Path) -> list[Check]:
    return [each.check for each in nsysflow.analyze(path).failed_checks]


@every_report
def test_a_report_that_nobody_broke_passes(name: str) -> None:
    assert analysed(name).failed_checks == ()
    assert failures(oracle_of(name)) == {}


def test_an_empty_report_passes() -> None:
    assert analysis_of().failed_checks == ()


@pytest.mark.parametrize(
    "rows",
    [
        [call(0, 9, "cudaStreamIsCapturing")],
        [opened(0, 9, "step")],
        [launch(0, 5, 1, name="cudaMemcpyAsync"), copy(6, 9, 1, "HtoD", "pinned", "device")],
    ],
    ids=["calls", "ranges", "copies"],
)
def test_anything_without_a_single_kernel_fails(rows: list[Row]) -> None:
    (only,) = analysis_of(*rows).failed_checks
    assert only.check == Check.NO_KERNELS


def test_a_kineto_trace_without_kernels_passes() -> None:
    ranges_only = replace(trace_of(opened(0, 9, "step")), collector="kineto")
    assert nsysflow.analyze(ranges_only).failed_checks == ()


def test_kernels_inside_graphs_that_were_traced_whole_are_kernels() -> None:
    whole = replace(kernel(20, 30, 1), kind="graph")
    assert analysis_of(launch(10, 20, 1), whole).failed_checks == ()


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("Importer error status: Importation succeeded with non-fatal errors.", True),
        ("Wrong event order has been detected when adding events to the collection", True),
        ("Cannot find string for an exterior index", True),
        ("Not all CUDA events might have been collected.", False),
        ("CUDA injection initialized successfully.", False),
        ("144 NVTX annotations were discarded because they contained an invalid handle.", False),
    ],
)
def test_what_the_importer_could_not_read_fails(text: str, fails: bool) -> None:
    said = pl.DataFrame([(2, text)], schema=schema.DIAGNOSTICS, orient="row")
    found = nsysflow.analyze(replace(trace_of(*SOUND), diagnostics=said)).failed_checks
    assert found == ((Failed(check=Check.IMPORT_ERRORS, count=1, of=0),) if fails else ())


def test_one_percent_of_operations_at_zero_fails() -> None:
    launches = [launch(n, n + 1, n) for n in range(1, 202)]
    sound = [kernel(n + 1, n + 2, n) for n in range(3, 202)]
    for unstamped, fails in ((2, False), (3, True)):
        at_zero = [kernel(0, 0, n) for n in range(unstamped)]
        found = analysis_of(*launches, *sound, *at_zero).failed_checks
        assert [each.check for each in found] == [Check.UNSTAMPED] * fails


@pytest.mark.parametrize("name", ["h200-train", "sum_many-loop", "h200-gpt2-eager"])
def test_a_report_without_its_middle_third_is_incomplete(tmp_path: Path, name: str) -> None:
    path = broken(tmp_path, name, MIDDLE_THIRD_GONE)
    assert checks(path) == [Check.INCOMPLETE]
    assert failed(nsysflow.analyze(path)) == failures(Report(read_export(path)))


@pytest.mark.parametrize(
    ("done", "check"),
    [(EVERY_TENTH_UNSTAMPED, Check.UNSTAMPED), (NO_OPERATIONS, Check.NO_KERNELS)],
)
def test_a_broken_report_fails_its_check(tmp_path: Path, done: str, check: Check) -> None:
    path = broken(tmp_path, "h200-train", done)
    assert checks(path) == [check]
    assert failed(nsysflow.analyze(path)) == failures(Report(read_export(path)))


def test_one_stretched_kernel_of_a_graph_is_flagged_in_integrity(tmp_path: Path) -> None:
    path = broken(tmp_path, "h200-train", ONE_GRAPH_KERNEL_STRETCHED)
    found = dict(nsysflow.analyze(path).integrity.select("check", "count").rows())
    assert found["graph operations into other launches"] == 1
    assert found["graph kernels over 100 times their median"] == 1
    assert checks(path) == []


@given(model=traces())
@settings(max_examples=5 * EXAMPLES, suppress_health_check=list(HealthCheck))
def test_the_oracle_finds_the_same(model: PlainTrace) -> None:
    with pytest.MonkeyPatch.context() as patch:  # random traces are short
        patch.setattr(lost_stretches, "LEAST_LAUNCHES", 2)
        patch.setattr(lost, "IN_A_ROW", 2)
        assert failed(nsysflow.analyze(to_trace(model))) == failures(Report(model))
