import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import nsysflow
from nsysflow.report.explain.names import names_by_kind
from tests.analyses import analysed
from tests.cli.running import refused, run
from tests.reports import PACKED, SAMPLES, linked

pytestmark = pytest.mark.usefixtures("shared")

REPORT = PACKED["nan_check-sync"]
RANKS = ("ddp-bucketed-rank0", "ddp-bucketed-rank1")


def document(*words: str, report: Path = REPORT) -> Any:
    return json.loads(run("whatif", report, "--json", *words).stdout)


def test_the_page_is_of_the_selected_steps() -> None:
    words = ("--remove", "sync@nan_check.py:125", "--steps", "1:4", "--steps", "!2")
    assert "the mean of 2 selected steps" in run("whatif", REPORT, *words).stdout


CHANGES = ("--remove all", "--graph step", "--scale reduce_kernel=0.5", "--faster-host step=0.5")
EAGER = SAMPLES / "launch_bound-eager.sqlite.xz"


@pytest.mark.parametrize(
    ("change", "report"), [*((each, REPORT) for each in CHANGES), ("--no-profiler", EAGER)]
)
def test_each_change_saves_time(change: str, report: Path) -> None:
    found = document(*change.split(), report=report)
    assert found["window_after_ns"] < found["window_before_ns"]


def test_rows_of_syncs_csv_name_calls(tmp_path: Path) -> None:
    file = tmp_path / "syncs.csv"
    analysed("nan_check-sync").syncs.filter(kind="sync").drop("copy_label").write_csv(file)
    by_rows, by_kind = document("--remove-calls", str(file)), document("--remove", "sync")
    assert by_rows["window_after_ns"] == by_kind["window_after_ns"] < by_kind["window_before_ns"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("process,thread\n1,2\n", "has no column start_ns"),
        ("process,thread,start_ns\n1,2,soon\n", "line 2 of"),
        ("process,thread,start_ns\n1,2,3\n", "1 of 1 calls are not in"),
        (f"process,thread,start_ns\n1,2,{1 << 63}\n", "line 2 of"),
        ("", "has no column process"),
        ("\xff", "is not a CSV file"),
    ],
)
def test_a_file_of_wrong_calls_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "calls.csv"
    file.write_text(text, encoding="latin-1")
    assert said in refused("whatif", REPORT, "--remove-calls", file)


@pytest.mark.parametrize("change", ["--scale memset=1", "--graph step"])
def test_the_ranks_of_a_run_are_replayed_together(change: str, tmp_path: Path) -> None:
    found = document(*change.split(), report=linked(tmp_path, *RANKS))
    steps = [analysed(rank).judged.steps["duration_ns"] for rank in RANKS]
    slowest_ns = round(max(sum(ns) / len(ns) for ns in steps))
    assert found["ranks"] == 2
    assert 0.99 * slowest_ns <= found["step_before_ns"] < slowest_ns  # of the plain step
    assert (found["step_after_ns"] == found["step_before_ns"]) == change.endswith("=1")


ONE_RANK = SAMPLES / "ddp-no_overlap-one_rank.sqlite.xz"
CURVE = SAMPLES / "collectives-h200.csv"


def test_a_program_of_one_rank_on_two() -> None:
    words = ("--ranks", "2", "--collectives", CURVE)
    page = run("whatif", ONE_RANK, *words).stdout
    found = document(*map(str, words), report=ONE_RANK)
    sent = found["on_ranks"]["sent"]
    assert [(each["operation"], each["count"]) for each in sent] == [("ncclAllReduce", 10)]
    costs_ns = found["step_after_ns"] - found["step_before_ns"]
    assert costs_ns == pytest.approx(sent[0]["gpu_ns"], rel=0.05)  # this variant overlaps nothing
    assert "on 2 ranks" in page
    assert "sends   ncclAllReduce 10 times a step, 33.6 MB each" in page


def explained(*words: str | Path) -> str:
    """The page, with each command on one line."""
    return run("explain", *words).stdout.replace(" \\\n     ", "")


@pytest.mark.slow
def test_each_command_of_a_help_page_is_one_that_there_is() -> None:
    names = [*names_by_kind()["causes"], *names_by_kind()["tables"], "gap"]
    commands = set()
    for name in names:
        shown = re.findall(r"^  nsysflow (analyze .*)$", explained(name), re.MULTILINE)
        assert shown, name
        commands.update(shown)
    for command in sorted(commands):
        run(*shlex.split(command.replace("REPORT", shlex.quote(str(REPORT)))))


def test_settings_of_analyze_hold(here: Path) -> None:
    (here / "nsysflow.toml").write_text('[analyze]\nstep = "forward"\nskip = 0\n')
    assert "--step forward --skip 0" in explained("1", REPORT)
    assert "no run of nsysflow profile is in this folder" in refused("explain", "1", code=1)


def test_a_finding_of_several_ranks_is_explained_in_its_own_report() -> None:
    ranks = [SAMPLES / f"ddp-no_overlap-rank{rank}.sqlite.xz" for rank in (0, 1)]
    for number, report in enumerate(nsysflow.analyze(ranks).findings["report"][:2], start=1):
        shown = explained(str(number), *ranks)
        assert f" in {report} · " in shown
        assert f"nsysflow analyze {SAMPLES / report}.sqlite.xz --table " in shown.replace("'", "")
