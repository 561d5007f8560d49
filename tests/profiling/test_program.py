"""A program is run: its output, its exit code, the signals passed on to it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nsysflow.profiling.program import run_program

RUNNER = """
import sys
from pathlib import Path
from nsysflow.profiling.program import run_program
ended = run_program([sys.executable, "-S", "-c", sys.argv[1]], {}, Path(sys.argv[2]))
print(ended.exit_code, ended.interrupted)
"""
"""Run in a process of its own, so that signals do not reach pytest."""


def program(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_exit_code_is_the_programs(tmp_path: Path, code: int) -> None:
    assert run_program(program(f"raise SystemExit({code})"), {}, tmp_path / "log").exit_code == code


def test_a_program_ended_by_a_signal_has_the_exit_code_that_shells_give_it(tmp_path: Path) -> None:
    killed = run_program(program("import os; os.kill(os.getpid(), 9)"), {}, tmp_path / "log")
    assert killed.exit_code == 137
    assert not killed.interrupted


def test_output_and_errors_reach_stderr_and_the_log_and_not_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "import sys; print('said'); print('complained', file=sys.stderr)"
    ended = run_program(program(text), {}, tmp_path / "log")
    seen = capfd.readouterr()
    assert seen.out == ""
    assert sorted(seen.err.split()) == ["complained", "said"]
    assert sorted((tmp_path / "log").read_text().split()) == ["complained", "said"]
    assert sorted(ended.last_lines) == ["complained", "said"]


def test_output_is_shown_before_the_program_ends(tmp_path: Path) -> None:
    text = f"import time; print('early'); time.sleep({60})"
    started = subprocess.Popen(
        [sys.executable, "-c", RUNNER, text, str(tmp_path / "log")],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert started.stderr is not None
    with started, started.stderr:
        assert started.stderr.readline() == b"early\n"
        started.send_signal(signal.SIGINT)


def test_the_program_has_our_environment_and_the_added_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "1")
    ended = run_program(
        program("import os; print(os.environ['OURS'], os.environ['MORE'])"),
        {"MORE": "2"},
        tmp_path / "log",
    )
    assert ended.last_lines == ("1 2",)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_the_program_may_finish(
    tmp_path: Path, number: signal.Signals
) -> None:
    text = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('saved'), sys.exit(5)))\n"
        "print('ready')\n"
        "time.sleep(60)"
    )
    log = tmp_path / "log"
    started = subprocess.Popen(
        [sys.executable, "-c", RUNNER, text, str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with started:
        until = time.monotonic() + 30
        while not (log.exists() and b"ready\n" in log.read_bytes()):
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(started.pid, number)
        out, _ = started.communicate(timeout=30)
    assert out.split() == ["5", "True"]
    assert log.read_text().split() == ["ready", "saved"]


def started(text: str, log: Path) -> "subprocess.Popen[str]":
    """The runner, once its program has printed `ready`."""
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, text, str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 30
    while not (log.exists() and b"ready\n" in log.read_bytes()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return runner


def test_a_process_left_behind_does_not_keep_us_waiting(tmp_path: Path) -> None:
    server = "import time; time.sleep(60)"
    text = (
        "import subprocess, sys; print('ready', flush=True);"
        f" subprocess.Popen([sys.executable, '-c', {server!r}], start_new_session=True)"
    )
    begun = time.monotonic()
    with started(text, tmp_path / "log") as runner:
        out, _ = runner.communicate(timeout=40)
    assert out.split() == ["0", "False"]
    assert time.monotonic() - begun < 40


def test_the_second_signal_is_not_passed_on_and_the_third_ends_the_program(tmp_path: Path) -> None:
    text = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    log = tmp_path / "log"
    with started(text, log) as runner:
        for _ in range(2):
            runner.send_signal(signal.SIGINT)
            time.sleep(0.5)
        assert log.read_text().split() == ["ready", "interrupted"]
        runner.send_signal(signal.SIGINT)
        out, said = runner.communicate(timeout=30)
    assert out.split() == ["137", "True"]
    assert "interrupt once more to lose it" in said


@pytest.mark.parametrize(
    ("said", "code", "last"),
    [
        ("Generating '/x/nsys-report-1.qdstrm'", 0, "saved"),
        ("Generating 'a cat' ...", 130, "interrupted"),
    ],
    ids=["nsys saves", "the program's own words"],
)
def test_a_signal_is_held_back_only_while_nsys_saves_the_report(
    said: str, code: int, last: str, tmp_path: Path
) -> None:
    text = (
        "import signal, sys, time\n"
        "def stop(*_): print('interrupted', flush=True); sys.exit(130)\n"
        "signal.signal(signal.SIGINT, stop)\n"
        f"print({said!r} + '\\nready', flush=True)\n"
        "time.sleep(2); print('saved')"
    )
    log = tmp_path / "log"
    with started(text, log) as runner:
        runner.send_signal(signal.SIGINT)
        out, _ = runner.communicate(timeout=30)
    assert out.split() == [str(code), "True"]
    assert log.read_text().splitlines()[-1] == last


def test_a_closed_terminal_does_not_end_the_run(tmp_path: Path) -> None:
    text = "import time\nfor _ in range(9): print('x' * 9, flush=True); time.sleep(0.05)"
    log = tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, text, str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as runner:
        assert runner.stderr is not None
        runner.stderr.close()
        assert runner.stdout is not None
        assert runner.stdout.read().split() == [b"0", b"False"]
    assert len(log.read_text().split()) == 9
