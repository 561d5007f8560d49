import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner, Result

from nsysflow.base.errors import ExitCode, WrongResult
from nsysflow.cli.main import SUMMARIES, main
from nsysflow.cli.options import Option
from tests.cli.running import COMMANDS, run
from tests.disks import names
from tests.reports import PACKED, SAMPLES, linked
from tests.sharing import shared_analyses

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


SYNC, ALONE, CURVE = "nan_check-sync", "ddp-no_overlap-one_rank", "collectives-h200.csv"
RANKS = ("ddp-bucketed-rank0", "ddp-bucketed-rank1")

REFUSED: Final = (
    *("analyse x", "xyz", "bench advntage", "cache --prune --clear"),
    *("analyze x --table kernls", "analyze x --table syncs --columns blocked"),
    *("analyze x --from 3 --to 1", "analyze a.sqlite b.sqlite", "analyze rank*.sqlite"),
    *("diff", "diff a", "diff --base a", "diff --new a b", "diff a --base b --new c"),
    f"diff {ALONE} {SYNC} {SYNC} --figures b",
    *(f"check {SYNC} {words}" for words in ("", "--max finding:sync-in-lop=none")),
    f"check {SYNC} --update-baseline",
    *(f"whatif {SYNC} --remove {what}" for what in ("syncs", "sync@", "sync@nan_chek.py:125")),
    *(f"whatif {SYNC} --scale {what}" for what in ("reduce_kernel=half", "reduce_kernels=0.5")),
    *(f"whatif {SYNC} {words}" for words in ("--graph step/metric", "--remove sync --steps 9")),
    *("whatif gone --remove sync", f"whatif {ALONE} --ranks 2"),
    f"whatif {ALONE} --collectives {CURVE}",
    *(f"whatif {ranks} --ranks 2 --collectives {CURVE}" for ranks in ("ranks", RANKS[0])),
    *("explain snyc", "explain quark", f"explain 99 {SYNC}", f"explain 0 {SYNC}"),
    *(f"explain sync {SYNC}", f"explain {SYNC}"),
    *("profile", "profile nan_chek", "profile nan_check --variant asink"),
    *(f"profile nan_check -- {words}" for words in ("--bacth 3", "--gradient-clip 3", "3")),
    *("profile nan_check -- --batch many", "profile --backtrace nan_check"),
    *("profile --variant sync -- true", "profile --capture 3:2 -- true"),
    *("profile python train.py", "profile --duration 3 --stop-after-capture -- true"),
    "profile --capture 1:1:1 --delay 2 -- true",
    "profile --record-all --capture 1:1:1 -- true",
    *(f"profile {words} nan_check" for words in ("--record-all", "--duration 2")),
)
"""What is typed wrong; what is said of it is in tests/report/pages/refused.txt."""


def refusals() -> Iterator[str]:
    with TemporaryDirectory() as folder, chdir(folder), shared_analyses():
        linked(Path("ranks"), *RANKS)
        Path(CURVE).symlink_to(SAMPLES / CURVE)
        for name in (SYNC, ALONE, *RANKS):
            Path(name).symlink_to(PACKED[name])
        for typed in REFUSED:
            done = CliRunner().invoke(main, typed.split(), catch_exceptions=False)
            assert (done.stdout, done.stderr.count("Error: ") <= 1) == ("", True)
            yield f"$ nsysflow {typed}  # exits with {done.exit_code}"
            message = done.stderr.rpartition("\n\n")[2]  # without how to use the command
            yield from re.sub(r"There are \d+ more", "There are more", message).splitlines()
        assert {*names(Path())} == {"ranks", CURVE, SYNC, ALONE, *RANKS}  # nothing was begun


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
