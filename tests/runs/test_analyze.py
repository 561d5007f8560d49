"""Runs of many ranks: all of their files, whoever does the work."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Literal

import polars as pl
import pytest
from click.testing import CliRunner

from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.options import Options, StepPart
from nsysflow.base.errors import Damaged, NotAReport, SelectionError
from nsysflow.cli.main import main
from nsysflow.report.results import Origin, Results
from nsysflow.report.text import page_lines
from nsysflow.runs.analyze import (
    analyze_reports,
    loops_are_timed,
    origin_of,
    reports_in_full,
    with_run,
)
from nsysflow.runs.engine import Choice, Executor
from nsysflow.runs.files import write_folder
from nsysflow.runs.manifest import PlainRun, write_manifest
from nsysflow.runs.sources import Source
from nsysflow.runtime.durations import LaterSteps
from tests.analyses import analysed
from tests.analysis.steps.test_kinds import TRAIN, program
from tests.exports import write_export
from tests.reports import PACKED, sqlite_report
from tests.runs.runs import CHILD, RUN
from tests.tiny import analysis_of


@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_results_say_that_a_run_had_no_gpu(tmp_path: Path, on: Literal["cpu", "cuda"]) -> None:
    report = write_export(tmp_path / "report.sqlite", nvtx=[{"text": "step"}])
    write_manifest(tmp_path, replace(RUN, on=on))
    results = analyze_reports([tmp_path], Options())
    assert results.origin.on_cpu == (on == "cpu")
    assert any("--on cpu" in note.text for note in results.notes) == (on == "cpu")
    assert not analyze_reports([report], Options()).origin.on_cpu


def test_manifests_say_where_reports_come_from() -> None:
    path = Path("run/report.sqlite")
    source = Source(path=path, name="run", manifest=replace(RUN, versions={"driver": "580.65"}))
    assert origin_of([source], [Path("run")]) == Origin(
        paths={"run": path},
        typed=(Path("run"),),
        versions={"driver": "580.65"},
        started=RUN.started,
    )
    ranks = [replace(source, name=name, manifest=replace(RUN, reports=("a", "b"))) for name in "ab"]
    assert origin_of(ranks, []).ranks
    assert origin_of([replace(source, manifest=replace(RUN, processes=1))], []).ranks
    assert not origin_of([*ranks, source], []).ranks
    unknown = replace(source, manifest=None)
    assert not origin_of([*ranks, unknown], []).ranks
    origin = origin_of([unknown], [])
    assert (origin.versions, origin.started, origin.on_cpu) == ({}, "", False)


FEW, OUTLIERS = 2, 1
COPIES = FEW + 1

needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="needs distributed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def few_are_many() -> Iterator[None]:
    """Three ranks are many here, and one of them is an outlier: as few as show what ten would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nsysflow.runs.analyze.MANY", FEW)
        patch.setattr("nsysflow.runs.analyze.OUTLIERS", OUTLIERS)
        yield


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three ranks: two real ones, one of them twice; and one that is damaged."""
    folder = tmp_path_factory.mktemp("ranks")
    real = [sqlite_report(folder, f"ddp-bucketed-rank{rank}") for rank in (0, 1)]
    paths = [folder / "run" / f"rank{number}.sqlite" for number in range(COPIES + 1)]
    paths[0].parent.mkdir()
    for number, path in enumerate(paths):
        shutil.copyfile(real[number % 2], path)
    paths[-1].write_bytes(b"")
    return paths


def written(results: Results, folder: Path) -> dict[str, bytes]:
    """Every file of a run, and its page as a terminal shows it."""
    write_folder(results, folder, top=None, at_least_ns=0)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    lines = page_lines(results, width=110, length="page", top=None, at_least_ns=0)
    return {**files, "page": "\n".join(line.plain for line in lines).encode()}


@pytest.fixture(scope="module")
def in_one_thread(ranks: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    choice = Choice(executor="threads", workers=1)
    return written(analyze_reports(ranks, Options(), choice=choice), tmp_path_factory.mktemp("a"))


@pytest.mark.parametrize(
    "executor", ["threads", "processes", pytest.param("dask", marks=[needs_dask, pytest.mark.long])]
)
def test_files_and_page_are_equal_whoever_does_the_work_in_whatever_order(
    ranks: list[Path], in_one_thread: dict[str, bytes], tmp_path: Path, executor: Executor
) -> None:
    shuffled = Random(executor).sample(ranks, len(ranks))
    choice = Choice(executor=executor, workers=2)
    found = written(analyze_reports(shuffled, Options(), choice=choice), tmp_path)
    assert [name for name in found if found[name] != in_one_thread[name]] == []
    assert found.keys() == in_one_thread.keys()


def test_only_a_few_of_many_ranks_are_looked_at_whole_and_what_is_left_out_is_named(
    in_one_thread: dict[str, bytes], ranks: list[Path]
) -> None:
    steps = pl.read_csv(in_one_thread["steps.csv"])
    assert 0 < steps["report"].n_unique() <= 1 + OUTLIERS < COPIES
    of_run = pl.read_csv(in_one_thread["ranks.csv"])
    assert of_run["report"].to_list() == [f"rank{number}" for number in range(COPIES)]
    note = f"{ranks[-1].stem} is left out: {ranks[-1]} is empty (0 bytes)"
    assert note in in_one_thread["summary.md"].decode()
    assert note in " ".join(in_one_thread["page"].decode().split())


def test_the_typical_rank_and_the_first_outliers_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysflow.runs.analyze.typical_report", lambda _: "rank0")
    outlying = ["rank0", "rank3", "rank1", "rank2"]
    ranks: Any = SimpleNamespace(report_of=str, busiest=["rank3"], outlying=outlying)
    assert reports_in_full(ranks) == {"rank0", "rank3"}


def in_threads(
    paths: list[Path], options: Options | None = None, *, strict: bool = False
) -> Results:
    choice = Choice(executor="threads", workers=2)
    return analyze_reports(paths, options or Options(), tables=(), choice=choice, strict=strict)


@pytest.fixture(params=[FEW, 1], ids=["few", "many"])
def few_or_many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks as they are, and as if they were many."""
    monkeypatch.setattr("nsysflow.runs.analyze.MANY", request.param)


@pytest.fixture
def two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysflow.runs.analyze.MANY", 1)


@pytest.mark.usefixtures("two_are_many")
def test_what_is_selected_reaches_the_digests(ranks: list[Path]) -> None:
    one = in_threads(ranks[:2], Options(steps=(StepPart(2, 3),), skip=0))
    assert one.digests is not None
    assert {*pl.concat([each.steps for each in one.digests])["step"]} == {2}
    assert in_threads(ranks[:2], Options(device=1)).every_report == ("rank1",)


@pytest.mark.usefixtures("few_or_many")
def test_a_part_that_no_rank_has_is_an_error(ranks: list[Path], tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="no range 'nothing' in rank0"):
        in_threads(ranks[:2], Options(range="nothing"))
    with pytest.raises(SelectionError, match="no device 5 in any of rank0"):
        in_threads(ranks[:2], Options(device=5))
    with pytest.raises(SelectionError, match="no NVTX domain 'NCLC' in any of"):
        in_threads(ranks[:2], Options(domains_added=("NCLC",)))
    with pytest.raises(Damaged, match=r"rank3\.sqlite is empty"):
        in_threads(ranks[-2:], strict=True)
    with pytest.raises(NotAReport, match=r"rank0\.sqlite does not exist"):  # the first says why
        in_threads([tmp_path / f"rank{n}.sqlite" for n in range(2)])


@pytest.mark.usefixtures("two_are_many")
def test_of_many_ranks_the_typical_one_stands_for_all(ranks: list[Path]) -> None:
    results = in_threads(ranks[:2])
    (report,) = results.typical.reports
    assert report in reports_in_full(results.ranks_of_run)
    assert results.typical.table("ranks").equals(results.table("ranks"))


PLAIN_NS = 13_000_000
"""70 % of a recorded step of launch_bound-eager."""


def test_savings_are_of_plain_steps_where_the_run_timed_them(tmp_path: Path) -> None:
    report = sqlite_report(tmp_path, "launch_bound-eager")
    child = replace(CHILD, plain_step_ns=PLAIN_NS)
    write_manifest(tmp_path, replace(RUN, reports=(report.name,), children=(child,)))
    found = analyze_reports([tmp_path], Options()).found
    assert found.step_ns > 1.3 * PLAIN_NS
    assert found.undisturbed_step_ns == pytest.approx(PLAIN_NS, rel=0.01)
    replayed = json.loads(CliRunner().invoke(main, ["whatif", str(tmp_path), "--json"]).stdout)
    assert replayed["undisturbed"]
    assert replayed["step_before_ns"] == replayed["step_after_ns"]
    assert replayed["step_after_ns"] == pytest.approx(PLAIN_NS, rel=0.01)
    asked = analyze_reports([tmp_path], Options(steps=(StepPart(first=3),))).found
    assert asked.plain_estimate is not None  # plain steps are the mean of all


@pytest.mark.parametrize(
    ("loops", "evaluations", "timed"), [(4, 0, True), (4, 1, False), (0, 0, False)]
)
def test_steps_are_compared_with_plain_ones_unless_other_loops_may_be_in_these(
    loops: int, evaluations: int, timed: bool
) -> None:
    analysis = analysis_of(*program(*TRAIN, *["validate"] * loops, *TRAIN))
    child = replace(CHILD, plain_step_ns=100, evaluations=evaluations)
    assert loops_are_timed(replace(RUN, children=(child,)), analysis) == timed
    assert not loops_are_timed(RUN, analysis)  # none was timed


def test_the_waits_of_plain_steps_are_those_of_the_steps_that_were_timed() -> None:
    later = LaterSteps(first=81, count=40, total_ns=280, median_ns=7, longest=())
    slow = replace(CHILD, plain_step_ns=9, plain_wait_ns=4, later=later)
    quick = replace(CHILD, plain_step_ns=7, plain_wait_ns=6, later=later)
    after = replace(RUN, children=(quick, slow))
    options = with_run(after, Options())
    assert (options.unrecorded_step_ns, options.unrecorded_wait_ns) == (9, 4)
    before = replace(after, plain_run=PlainRun(step_ns=8, wait_ns=2))
    options = with_run(before, Options())
    assert (options.unrecorded_step_ns, options.unrecorded_wait_ns) == (8, 2)


def test_later_steps_are_recorded_from_where_they_were_timed() -> None:
    later = LaterSteps(first=81, count=40, total_ns=280, median_ns=7, longest=())
    children = (CHILD, replace(CHILD, plain_step_ns=7, later=later))
    manifest = replace(RUN, children=children, processes=2)
    source = Source(path=Path("report.sqlite"), name="report", manifest=manifest)
    command = "nsysflow profile --capture 81:2:30 --nproc 2 -- python train.py"
    assert origin_of([source], []).record_later == command


@pytest.mark.parametrize(
    ("first", "count", "window"), [(374, 26, "368:2:30"), (374, 32, "374:2:30"), (9, 4, "0:2:30")]
)
def test_later_steps_are_recorded_where_the_program_has_enough_of_them(
    first: int, count: int, window: str
) -> None:
    later = LaterSteps(first=first, count=count, total_ns=280, median_ns=7, longest=())
    manifest = replace(RUN, children=(replace(CHILD, plain_step_ns=40_000_000, later=later),))
    source = Source(path=Path("report.sqlite"), name="report", manifest=manifest)
    origin = origin_of([source], [])
    assert f"--capture {window} " in origin.record_later
    assert origin.later_middle == first + count / 2


@pytest.mark.parametrize(
    ("count", "total_ms", "step_ms", "wait"),
    [
        (150, 2_000 + 100 * 19, 19, 168),  # 50 steps of 40 ms are timed, which is 2 s
        (150, 2_000 + 100 * 21, 40, 50),
        (79, 2_000 + 29, 40, 50),
    ],
    ids=["half", "more than half", "too few"],
)
def test_a_program_settles_once_it_has_loaded_its_code(
    count: int, total_ms: int, step_ms: int, wait: int
) -> None:
    total_ns = total_ms * 1_000_000
    later = LaterSteps(first=50, count=count, total_ns=total_ns, median_ns=7, longest=())
    manifest = replace(RUN, children=(replace(CHILD, plain_step_ns=40_000_000, later=later),))
    source = Source(path=Path("report.sqlite"), name="report", manifest=manifest)
    origin = origin_of([source], [])
    assert origin.later_step_ns == step_ms * 1_000_000
    assert f"--capture {wait}:2:30 " in origin.record_later


def test_a_report_on_disk_is_analysed_as_in_memory(
    tmp_path: Path, fast_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of both are equal as their tables are: tests/analysis/frames/test_scratch.py."""
    scratch = Scratch(fast_disk, least_bytes=1, slice_rows=300)
    monkeypatch.setattr("nsysflow.runs.analyze.scratch_for", lambda *_, **__: scratch)
    results = analyze_reports([PACKED["nan_check-sync"]], Options(), tables=("gaps",))
    assert results.analyses[0].trace.scratch is scratch
    write_folder(results, tmp_path / "out", top=None, at_least_ns=0, html=True)
    assert (tmp_path / "out" / "report.html").is_file()
    assert results.table("gaps").equals(analysed("nan_check-sync").gaps)
