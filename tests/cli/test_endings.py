"""Every command ends in one message and an exit code, whatever stops it."""

import subprocess
import sys
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from nsysflow.base.errors import ExitCode, NsysflowError, WrongResult
from nsysflow.cli.main import main
from tests.reports import SAMPLES

WORDS = {
    "analyze": ["x.sqlite"],
    "check": ["x.sqlite"],
    "completion": ["bash"],
    "pack": ["x.sqlite", "-o", "y.sqlite"],
    "whatif": ["x.sqlite"],
}
"""What a command cannot do without."""

every_command = pytest.mark.parametrize("command", sorted(main.commands))


def stopped(command: str, by: BaseException, monkeypatch: pytest.MonkeyPatch) -> Result:
    """A command that is stopped in the middle of its work."""
    monkeypatch.setattr(main.commands[command], "callback", Mock(side_effect=by))
    return CliRunner().invoke(main, [command, *WORDS.get(command, [])])


@every_command
def test_ctrl_c_is_one_line_and_130(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = stopped(command, KeyboardInterrupt(), monkeypatch)
    assert (done.exit_code, done.output) == (130, "nsysflow: interrupted\n")


@every_command
def test_an_error_is_one_message_and_its_own_exit_code(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = stopped(command, WrongResult("a is not b", "Look"), monkeypatch)
    assert (done.exit_code, done.stderr) == (ExitCode.WRONG_RESULT, "nsysflow: a is not b. Look\n")


def test_what_was_added_to_an_error_is_printed_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    error = NsysflowError("a is not b")
    error.add_note("The run is kept")
    done = stopped("demo", error, monkeypatch)
    assert (done.exit_code, done.stderr) == (1, "nsysflow: a is not b\nThe run is kept\n")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = ZeroDivisionError()
    assert stopped("demo", bug, monkeypatch).exception is bug


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-files"],
        ["--table", "gaps"],
        ["--table", "gaps", "--format", "csv"],
        ["--table", "gaps", "--format", "md"],
        ["--gaps-csv", "-"],
        ["--json"],
    ],
    ids=" ".join,
)
def test_a_reader_that_leaves_ends_a_command_with_141_and_no_message(arguments: list[str]) -> None:
    report = SAMPLES / "nan_check-sync.sqlite.xz"
    argv = [sys.executable, "-m", "nsysflow", "analyze", str(report), *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        ours.stdout.close()
        assert ours.stderr is not None
        said = ours.stderr.read()
    assert ours.returncode == ExitCode.READER_LEFT
    assert all(line.startswith("not shown: ") for line in said.splitlines())


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["analyse", "x"], "no command 'analyse'. Did you mean analyze?"),
        (["xyz"], "There are: demo, profile, analyze, "),
        (["analyze", "x", "--table", "kernls"], "Did you mean kernels?"),
        (["bench", "advntage"], "Did you mean advantage?"),
        (["analyze", "x", "--table", "syncs", "--columns", "blocked"], "Did you mean blocked_ns?"),
        (["analyze", "x", "--from", "3", "--to", "1"], "--from 3 is later than --to 1"),
    ],
)
def test_a_mistyped_word_is_wrong_usage_and_answered_with_the_nearest(
    typed: list[str], said: str
) -> None:
    done = CliRunner().invoke(main, typed)
    assert done.exit_code == 2
    assert said in done.stderr
