"""`nsysflow.analyze`, the names of the package, and the documents that commands print."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nsysflow
from nsysflow.analysis.options import Options, StepPart
from nsysflow.base.errors import NotAReport, SelectionError
from nsysflow.runs.manifest import write_manifest
from nsysflow.runs.sources import load
from tests.analyses import analysed, loaded
from tests.cli.running import run
from tests.reports import DATA, PACKED, linked
from tests.runs.runs import RUN

pytestmark = pytest.mark.usefixtures("shared")

REPORT = PACKED["nan_check-sync"]
RANKS = ["ddp-no_overlap-rank0", "ddp-no_overlap-rank1"]
RANK_FILES = [PACKED[name] for name in RANKS]


def test_a_path_gives_the_tables_of_its_report_and_a_list_those_of_a_run() -> None:
    for report in (REPORT, str(REPORT)):
        analysis = nsysflow.analyze(report)
        assert analysis.gap_summary.equals(analysed("nan_check-sync").gap_summary)
    assert analysis.kernels.equals(analysed("nan_check-sync").kernels)  # with grid and block
    run = nsysflow.analyze(RANK_FILES)
    assert run.ranks["device"].to_list() == [0, 1]
    assert run.phases.height == sum(analysed(rank).phases.height for rank in RANKS)
    assert repr(run).startswith("<Results of ddp-no_overlap-rank0, ddp-no_overlap-rank1: 2 x ")
    assert {"ranks", "gap_summary", "notes"} <= {*dir(run)}
    typo = "gap_sumary"
    with pytest.raises(AttributeError, match=f"no attribute '{typo}'"):
        getattr(run, typo)


def test_open_gives_what_analyze_gives_and_ranks_are_given_in_a_list(tmp_path: Path) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    for folder, names in ((one, ["nan_check-sync"]), (several, RANKS)):
        reports = tuple(PACKED[name].name for name in names)
        write_manifest(linked(folder, *names), replace(RUN, reports=reports))
    summary = analysed("nan_check-sync").gap_summary.drop("report")
    for path in (str(one), one):
        found = nsysflow.open(path)
        assert isinstance(found, nsysflow.Analysis)
        assert found.gap_summary.drop("report").equals(summary)
    for results in (nsysflow.open(several), nsysflow.analyze([several])):
        assert isinstance(results, nsysflow.Results)
        assert results.reports == (*RANKS,)
    with pytest.raises(NotAReport, match="is a run of 2 ranks"):
        nsysflow.analyze(several)


def test_options_narrow_a_report_and_open_takes_options_and_traces() -> None:
    part = nsysflow.Options(steps=(nsysflow.StepPart(2, 3),))
    assert nsysflow.analyze(REPORT, part).steps.height == 1
    assert nsysflow.open(loaded("nan_check-sync"), part).steps.height == 1
    assert analysed("nan_check-sync").steps.height == 5


def test_what_cannot_be_analysed_is_an_error_of_the_family() -> None:
    wrong = nsysflow.Options(steps=(nsysflow.StepPart(-1),))
    for report in (loaded("nan_check-sync"), REPORT, RANK_FILES):
        with pytest.raises(SelectionError, match="counted from 0"):
            nsysflow.analyze(report, wrong)
    with pytest.raises(SelectionError, match="no report was given"):
        nsysflow.analyze([])
    for read in (nsysflow.analyze, nsysflow.open):
        with pytest.raises(NotAReport):
            read("nothing.sqlite")


def test_the_public_names_are_listed_and_there() -> None:
    assert dir(nsysflow) == sorted(nsysflow.__all__)
    assert all(getattr(nsysflow, name) is not None for name in nsysflow.__all__)
    with pytest.raises(AttributeError, match="no attribute 'analyse'"):
        _ = nsysflow.analyse


def test_every_loader_leaves_out_the_shapes_that_were_not_asked_for() -> None:
    shapes = load(DATA / "h200-kineto.pt.trace.json.gz", shapes="grid").shapes
    assert shapes["grid_x"].null_count() == 0 < len(shapes)
    assert shapes["registers"].null_count() == len(shapes)


@pytest.mark.parametrize("report", [REPORT, PACKED["h2d-pageable"]])
def test_python_gets_the_documents_that_the_commands_print(report: Path) -> None:
    asked = run("whatif", report, "--remove", "sync", "--async-copies", "--json")
    answered = nsysflow.whatif(report, remove=["sync"], async_copies=True)
    assert answered == json.loads(asked.stdout)
    asked = run("diff", report, REPORT, "--json", "--force")
    assert nsysflow.diff([report], [REPORT], force=True) == json.loads(asked.stdout)
    budgets = ["step_ms<=99", "finding:launch-bound=none"]
    typed = [word for text in budgets for word in ("--max", text)]
    asked = run("check", report, "--json", *typed, code=4)  # one capture is too few to tell
    assert nsysflow.check([report], budgets) == json.loads(asked.stdout)
    asked = run("explain", "1", report)
    assert nsysflow.explain(1, report, width=110).split() == asked.stdout.split()


def test_options_can_be_given_by_name() -> None:
    typed = nsysflow.analyze(REPORT, step="step", steps="1:3", range="forward")
    options = Options(step="step", steps=(StepPart(1, 3),), range="forward")
    assert typed.accounting.equals(nsysflow.analyze(REPORT, options).accounting)


def test_python_replays_the_ranks_of_a_run_together(tmp_path: Path) -> None:
    linked(tmp_path, *RANKS)
    asked = run("whatif", tmp_path, "--remove", "sync", "--json")
    answered = nsysflow.whatif(tmp_path, remove=["sync"])
    assert answered == json.loads(asked.stdout)
    assert answered["ranks"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"remove": ["snyc"]}, "Did you mean sync?"),
        ({"scale": {"gemm": -1}}, "-1 is no factor for 'gemm'"),
        ({"faster_host": {"step": float("nan")}}, "nan is no factor for 'step'"),
    ],
)
def test_a_wrong_change_is_refused_before_the_report_is_read(
    change: dict[str, Any], said: str
) -> None:
    with pytest.raises(SelectionError, match=said):
        nsysflow.whatif("no such report", **change)
