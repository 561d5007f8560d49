"""Running a program: its output, its exit code, the signals handed down."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nsysflow.profiling.run import run

RUNNER = """
import sys
from pathlib import Path
from nsysflow.profiling.run import run
ended = run([sys.executable, "-c", sys.argv[1]], {}, Path(sys.argv[2]))
print(ended.exit_code, ended.interrupted)
"""
"""A program of its own, so that signals reach it and not pytest."""


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_exit_code_is_the_programs(tmp_path: Path, code: int) -> None:
    assert run(program(f"raise SystemExit({code})"), {}, tmp_path / "log").exit_code == code


def test_a_program_that_a_signal_ended_has_the_code_that_shells_give_it(tmp_path: Path) -> None:
    killed = run(program("import os; os.kill(os.getpid(), 9)"), {}, tmp_path / "log")
    assert killed.exit_code == 137
    assert not killed.interrupted


def test_output_and_errors_reach_stderr_and_the_log_and_not_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "import sys; print('said'); print('complained', file=sys.stderr)"
    ended = run(program(text), {}, tmp_path / "log")
    seen = capfd.readouterr()
    assert seen.out == ""
    assert sorted(seen.err.split()) == ["complained", "said"]
    assert sorted((tmp_path / "log").read_text().split()) == ["complained", "said"]
    assert sorted(ended.tail) == ["complained", "said"]


def test_what_is_printed_is_seen_before_the_program_ends(tmp_path: Path) -> None:
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


def test_the_environment_is_ours_and_what_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "1")
    ended = run(
        program("import os; print(os.environ['OURS'], os.environ['MORE'])"),
        {"MORE": "2"},
        tmp_path / "log",
    )
    assert ended.tail == ("1 2",)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_handed_down_and_the_program_may_still_finish(
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
    """The runner, once its program has said `ready`."""
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


def test_output_that_another_process_still_holds_is_not_waited_for(tmp_path: Path) -> None:
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


def test_the_second_signal_is_kept_back_and_the_third_ends_the_program(tmp_path: Path) -> None:
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
    assert "stop once more to lose it" in said


@pytest.mark.parametrize(
    ("said", "code", "last"),
    [
        ("Generating '/x/nsys-report-1.qdstrm'", 0, "saved"),
        ("Generating 'a cat' ...", 130, "interrupted"),
    ],
    ids=["nsys saves", "a program's own word"],
)
def test_a_signal_is_kept_back_while_nsys_saves_the_report_and_only_then(
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


def test_a_screen_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
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
