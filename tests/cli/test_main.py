import re
import subprocess
import sys
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner, Result

from nsysflow.base.errors import ExitCode, WrongResult
from nsysflow.cli.main import SUMMARIES, main
from nsysflow.cli.options import Option
from tests.cli.running import COMMANDS, refused, run
from tests.reports import SAMPLES

pytestmark = pytest.mark.usefixtures("shared")

REPORT = SAMPLES / "nan_check-sync.sqlite.xz"
every_command = pytest.mark.parametrize("command", COMMANDS)


def page(*words: str) -> str:
    return run(*words, "--help").stdout


def test_the_commands_are_listed_in_order_and_none_is_cut() -> None:
    listed = page().partition("Commands:")[2]
    assert re.findall(r"^  (\w+)  ", listed, re.MULTILINE) == [*COMMANDS]
    assert "..." not in listed


@every_command
def test_a_command_explains_itself_with_an_example(command: str) -> None:
    shown = run(command, "-h").stdout
    assert "Usage:" in shown
    assert " ".join(shown.split("\n\n")[1].split()).startswith(SUMMARIES[command])
    assert "Example:" in shown


@every_command
def test_an_option_has_a_sentence_and_default(command: str) -> None:
    of = COMMANDS[command]
    for option in (option for option in of.params if isinstance(option, click.Option)):
        # click shows the default, in one form
        assert re.fullmatch(r"[A-Z](?:(?!default).)*\.", option.help or "", re.DOTALL), option
        if isinstance(option, Option) and option.to_info_dict()["default"] not in (None, False, ()):
            record = option.get_help_record(click.Context(of, show_default=True))
            assert record is not None, option
            assert "[default: " in record[1]


NEEDED = {
    "analyze": ["x.sqlite"],
    "check": ["x.sqlite"],
    "completion": ["bash"],
    "pack": ["x.sqlite", "-o", "y.sqlite"],
    "whatif": ["x.sqlite"],
}
"""What a command cannot do without."""


def stopped(command: str, by: BaseException, monkeypatch: pytest.MonkeyPatch) -> Result:
    """A command that is stopped in the middle of its work."""
    monkeypatch.setattr(COMMANDS[command], "callback", Mock(side_effect=by))
    return CliRunner().invoke(main, [command, *NEEDED.get(command, [])])


@every_command
def test_ctrl_c_and_errors_are_one_message(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = stopped(command, KeyboardInterrupt(), monkeypatch)
    assert (done.exit_code, done.output) == (130, "nsysflow: interrupted\n")
    done = stopped(command, WrongResult("a is not b", "Look"), monkeypatch)
    assert (done.exit_code, done.output) == (ExitCode.WRONG_RESULT, "nsysflow: a is not b. Look\n")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = ZeroDivisionError()
    assert stopped("demo", bug, monkeypatch).exception is bug


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--no-files"], ["--table", "gaps", "--format", "csv"]], ids=" ".join
)
def test_a_reader_that_leaves_ends_a_command_with_141_and_no_message(words: list[str]) -> None:
    argv = [sys.executable, "-m", "nsysflow", "analyze", str(REPORT), *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        ours.stdout.close()
        assert ours.stderr is not None
        said = ours.stderr.read()
    assert (ours.returncode, said) == (ExitCode.READER_LEFT, "")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("analyse x", "no command 'analyse'. Did you mean analyze?"),
        ("xyz", "There are: demo, profile, analyze, "),
        ("analyze x --table kernls", "Did you mean kernels?"),
        ("bench advntage", "Did you mean advantage?"),
        ("analyze x --table syncs --columns blocked", "Did you mean blocked_ns?"),
        ("analyze x --from 3 --to 1", "--from 3 is later than --to 1"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(typed: str, said: str) -> None:
    assert said in refused(*typed.split())


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_page_is_the_same_but_for_letters_that_standard_output_lacks(encoding: str) -> None:
    whole = run("demo").stdout
    assert "nan_check.py:125 in check" in whole
    shown = CliRunner(charset=encoding).invoke(main, ["demo"]).stdout_bytes.decode(encoding)
    assert len(shown) == len(whole)
    other = {(drawn, letter) for drawn, letter in zip(whole, shown, strict=True) if drawn != letter}
    assert len(other) == len({letter for _, letter in other}) > 0
    assert all(not drawn.isascii() and letter in "#=+.-~" for drawn, letter in other)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lists_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in (("list",), ("explain",), ("explain", "syncs")):
        lines = run(*words).stdout.splitlines()
        assert max(map(len, lines)) <= columns, words
