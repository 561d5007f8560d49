"""What Python is answered is what the commands print."""

import json
from pathlib import Path
from typing import Any

import pytest

import nsysflow
from nsysflow.analysis.options import Options, StepPart
from nsysflow.base.errors import SelectionError
from tests.cli.running import run
from tests.reports import SAMPLES

pytestmark = pytest.mark.usefixtures("shared")

NAMES = ("nan_check-sync", "h2d-pageable")
SYNC, COPIES = (SAMPLES / f"{name}.sqlite.xz" for name in NAMES)


@pytest.mark.parametrize("report", [SYNC, COPIES])
def test_python_gets_the_documents_that_the_commands_print(report: Path) -> None:
    asked = run("whatif", report, "--remove", "sync", "--async-copies", "--json")
    answered = nsysflow.whatif(report, remove=["sync"], async_copies=True)
    assert answered == json.loads(asked.stdout)
    asked = run("diff", report, SYNC, "--json", "--force")
    assert nsysflow.diff([report], [SYNC], force=True) == json.loads(asked.stdout)
    budgets = ["step_ms<=99", "finding:launch-bound=none"]
    typed = [word for text in budgets for word in ("--max", text)]
    asked = run("check", report, "--json", *typed, code=4)  # one capture is too few to tell
    assert nsysflow.check([report], budgets) == json.loads(asked.stdout)
    asked = run("explain", "1", report)
    assert nsysflow.explain(1, report, width=110).split() == asked.stdout.split()


def test_options_can_be_given_by_name() -> None:
    typed = nsysflow.analyze(SYNC, step="step", steps="1:3", range="forward")
    options = Options(step="step", steps=(StepPart(1, 3),), range="forward")
    assert typed.accounting.equals(nsysflow.analyze(SYNC, options).accounting)


def test_python_replays_the_ranks_of_a_run_together(tmp_path: Path) -> None:
    for rank in (0, 1):
        name = f"ddp-bucketed-rank{rank}.sqlite.xz"
        (tmp_path / name).symlink_to(SAMPLES / name)
    asked = run("whatif", tmp_path, "--remove", "sync", "--json")
    answered = nsysflow.whatif(tmp_path, remove=["sync"])
    assert answered == json.loads(asked.stdout)
    assert answered["ranks"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"remove": ["snyc"]}, "Did you mean sync?"),
        ({"remove": ["sync@"]}, "names no place"),
        ({"scale": {"gemm": -1}}, "-1 is no factor for 'gemm'"),
        ({"faster_host": {"step": float("nan")}}, "nan is no factor for 'step'"),
    ],
)
def test_a_wrong_change_is_refused_before_the_report_is_read(
    change: dict[str, Any], said: str
) -> None:
    with pytest.raises(SelectionError, match=said):
        nsysflow.whatif("no such report", **change)
