"""Steps as they are typed."""

from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner, Result

from nsysflow.analysis.options import StepPart
from nsysflow.base.errors import NotAReport
from nsysflow.cli.main import main
from nsysflow.cli.options import step_part
from nsysflow.runs import analyze as runs_analyze
from nsysflow.runs.engine import Choice, Executor


@pytest.mark.parametrize(
    ("typed", "part"),
    [
        ("2:5", StepPart(2, 5)),
        ("2:", StepPart(2)),
        ("7", StepPart(7, 8)),
        ("!7", StepPart(7, 8, out=True)),
        ("!2:5", StepPart(2, 5, out=True)),
        ("!2:", StepPart(2, out=True)),
    ],
)
def test_a_part_is_written_as_it_is_typed(typed: str, part: StepPart) -> None:
    assert step_part(typed) == part
    assert str(part) == typed


def test_an_open_start_is_the_first_step() -> None:
    assert step_part(":3") == StepPart(0, 3)
    assert step_part(":") == StepPart()


@pytest.mark.parametrize("typed", ["", "!", "x", "!x", "1.5", "-1", "1:2:3", "!!3", "3:3", "5:2"])
def test_what_selects_nothing_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(click.BadParameter, match=r"e\.g\. 2:5|B must be greater than A"):
        step_part(typed)


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, ["analyze", *words])


@pytest.mark.parametrize(
    ("words", "choice", "strict"),
    [
        ([], Choice(), False),
        (["--strict"], Choice(), True),
        (["--executor", "threads", "--workers", "3"], Choice(executor="threads", workers=3), False),
        (["--scheduler", "tcp://a:1"], Choice(scheduler="tcp://a:1"), False),
    ],
)
def test_what_was_typed_reaches_the_analysis(
    monkeypatch: pytest.MonkeyPatch, words: list[str], choice: Choice, strict: bool
) -> None:
    told: dict[str, Any] = {}

    def analysed(*_asked: object, **how: object) -> None:
        told.update(how)
        raise NotAReport("seen enough")

    monkeypatch.setattr(runs_analyze, "analyze_reports", analysed)
    done = typed("a.sqlite", "--no-files", *words)
    assert (done.exit_code, done.stderr) == (1, "nsysflow: seen enough\n")
    assert (told["choice"], told["strict"]) == (choice, strict)


def test_every_executor_can_be_typed() -> None:
    (executor,) = (param for param in main.commands["analyze"].params if param.name == "executor")
    assert isinstance(executor.type, click.Choice)
    assert executor.type.choices == get_args(Executor)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--executor", "threads", "--scheduler", "slurm"], "--scheduler slurm is for Dask"),
        (["--workers", "2", "--scheduler", "tcp://a:1"], "has workers of its own"),
        (["--workers", "0"], "0 is not in the range x>=1"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(words: list[str], said: str) -> None:
    done = typed("a.sqlite", "--no-files", *words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_a_pattern_needs_a_folder_for_the_files(tmp_path: Path) -> None:
    done = typed(str(tmp_path / "rank*.sqlite"))
    assert done.exit_code == 2
    assert "several reports need -o DIR" in done.stderr
