"""Running a program, ending it, and its last lines."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from nsysflow.record import program as program_module
from nsysflow.record.program import LAST_LINES, Ending, ProgramEnd, last_lines, run_program
from nsysflow.runtime.process import ChildStatus, WindowState, write_status
from nsysflow.runtime.protocol import RUN_FOLDER, Collector

pytestmark = pytest.mark.usefixtures("here")

RUNNER = """
import sys
from pathlib import Path
from nsysflow.record.program import run_program
ended = run_program([sys.executable, "-S", "-c", sys.argv[1]], {}, Path(sys.argv[2]))
print(ended.exit_code, ended.interrupted)
"""
"""Run in a process of its own, so that signals do not reach pytest."""


def code(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


@pytest.mark.parametrize(
    ("text", "exit_code"),
    [
        ("", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 137),  # as shells say it
    ],
)
def test_the_exit_code_is_the_programs(text: str, exit_code: int) -> None:
    ended = run_program(code(text), {}, Path("log"))
    assert (ended.exit_code, ended.interrupted) == (exit_code, False)


def test_all_output_reaches_stderr_and_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    text = "import sys; print('said'); print('complained', file=sys.stderr)"
    ended = run_program(code(text), {}, Path("log"))
    seen = capfd.readouterr()
    assert seen.out == ""
    for words in (seen.err.split(), Path("log").read_text().split(), ended.last_lines):
        assert sorted(words) == ["complained", "said"]


@pytest.mark.parametrize("more", ["", "print('last words')"])
def test_a_bar_stands_for_nsyss_progress_until_the_program_says_more(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    bars: list[str] = []

    @contextmanager
    def progress(label: str) -> Iterator[None]:
        bars.append(label)
        yield
        bars.append("gone")

    monkeypatch.setattr(program_module, "progress", progress)
    nsys = "Generating '/x/nsys-report-1.qdstrm'\n\r[1/1] [==50%  ] a.nsys-rep\n"
    text = f"import sys; print('epoch 1'); sys.stdout.write({nsys!r}); sys.stdout.flush(); {more}"
    run_program(code(text), {}, Path("log"))
    said = "epoch 1\n" + ("last words\n" if more else "")
    assert capfd.readouterr().err == said
    assert Path("log").read_bytes().startswith(f"epoch 1\n{nsys}".encode())
    assert bars == ["nsys writes its report", "gone"]


@contextmanager
def started(text: str) -> Iterator["subprocess.Popen[str]"]:
    """The runner, once its program has printed `ready`."""
    argv = [sys.executable, "-c", RUNNER, text, "log"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as runner:
        assert next_line(runner) == "ready\n"
        yield runner


def next_line(runner: "subprocess.Popen[str]") -> str:
    """The next line that the runner shows, as soon as it does."""
    assert runner.stderr is not None
    return runner.stderr.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_the_program_may_finish(number: signal.Signals) -> None:
    text = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('saved'), sys.exit(5)))\n"
        "print('ready')\n"
        "time.sleep(60)"
    )
    with started(text) as runner:
        runner.send_signal(number)
        out, _ = runner.communicate(timeout=30)
    assert out.split() == ["5", "True"]
    assert Path("log").read_text().split() == ["ready", "saved"]


def test_a_process_left_behind_does_not_keep_us_waiting() -> None:
    server = "import time; time.sleep(60)"
    text = (
        "import subprocess, sys; print('ready', flush=True);"
        f" subprocess.Popen([sys.executable, '-c', {server!r}], start_new_session=True)"
    )
    with started(text) as runner:
        out, _ = runner.communicate(timeout=40)
    assert out.split() == ["0", "False"]


def test_the_second_signal_is_not_passed_on_and_the_third_ends_the_program() -> None:
    text = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    with started(text) as runner:
        runner.send_signal(signal.SIGINT)
        assert next_line(runner) == "interrupted\n"
        runner.send_signal(signal.SIGINT)
        assert "interrupt once more" in next_line(runner)
        runner.send_signal(signal.SIGINT)
        out, _ = runner.communicate(timeout=30)
    assert out.split() == ["137", "True"]
    assert Path("log").read_text().split() == ["ready", "interrupted"]


@pytest.mark.parametrize(
    ("said", "seconds", "exit_code", "last"),
    [
        ("Generating '/x/nsys-report-1.qdstrm'", 1, 0, "saved"),
        ("Generating 'a cat' ...", 60, 130, "interrupted"),
    ],
)
def test_signals_wait_while_nsys_saves(said: str, seconds: int, exit_code: int, last: str) -> None:
    text = (
        "import signal, sys, time\n"
        "def stop(*_): print('interrupted', flush=True); sys.exit(130)\n"
        "signal.signal(signal.SIGINT, stop)\n"
        f"print('ready\\n' + {said!r} + '\\ngo', flush=True)\n"
        f"time.sleep({seconds}); print('saved')"
    )
    with started(text) as runner:
        while next_line(runner) != "go\n":
            pass
        runner.send_signal(signal.SIGINT)
        out, _ = runner.communicate(timeout=30)
    assert out.split() == [str(exit_code), "True"]
    assert Path("log").read_text().splitlines()[-1] == last


PROGRAM: Final = """
import signal, sys, time
from pathlib import Path
def end(*_):
    time.sleep(0.3)
    print("checkpoint saved", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
Path("ready").touch()
time.sleep(60)
"""
NSYS: Final = """
import os, subprocess, sys, time
from pathlib import Path
marked = os.environ | {"NSYS_PROFILING_SESSION_ID": "1"}
program = [sys.executable, "-S", "-c", sys.argv[1]]
subprocess.Popen(program, env=marked, start_new_session=True)
while not Path("ready").exists():
    time.sleep(0.01)
print("Generated:\\n    report.nsys-rep", flush=True)
"""
"""As nsys: the program has a process group of its own, and lives on when the report is done."""


def run(*argv: str, collector: Collector = "nsys", reports: tuple[str, ...] = ()) -> ProgramEnd:
    ending = Ending(Path.cwd(), collector, [Path(name) for name in reports])
    variables = {RUN_FOLDER: str(Path.cwd())}
    ended = run_program([*code(argv[0]), *argv[1:]], variables, Path("log"), ending)
    assert not ending.runs()
    return ended


def test_a_program_that_outlives_nsys_is_ended_when_the_report_is_complete() -> None:
    ended = run(NSYS, PROGRAM, reports=("report.nsys-rep",))
    assert (ended.stopped, ended.exit_code) == (True, 0)
    assert ended.last_lines == ("checkpoint saved",)
    ended_itself = run("print('report.nsys-rep')", reports=("report.nsys-rep",))
    assert not ended_itself.stopped


def test_without_nsys_a_program_is_ended_when_its_window_is_closed(tmp_path: Path) -> None:
    write_status(tmp_path, ChildStatus(pid=1, versions={}, window="closed"))
    assert run(PROGRAM, collector="kineto").stopped


@pytest.fixture
def running(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that nsys started for the run in `tmp_path`."""
    marked = os.environ | {RUN_FOLDER: str(tmp_path), "NSYS_PROFILING_SESSION_ID": "1"}
    sleeps = code("print(flush=True); import time; time.sleep(60)")
    with subprocess.Popen(sleeps, env=marked, process_group=0, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        one.stdout.readline()
        yield one
        one.kill()


@pytest.mark.parametrize(
    ("windows", "output", "nsys_ended", "ended"),
    [
        (["closed"], b"a report.nsys-rep b", False, True),
        ([], b"a report.nsys-rep b", True, True),
        (["closed"], b"another.nsys-rep", False, False),
        (["closed", "open"], b"report.nsys-rep", True, False),
        (["never"], b"Connection to Agent lost", True, True),
    ],
)
def test_it_waits_for_every_report_and_every_open_window_unless_nsys_crashed(
    tmp_path: Path,
    running: "subprocess.Popen[bytes]",
    windows: list[WindowState],
    output: bytes,
    nsys_ended: bool,
    ended: bool,
) -> None:
    for pid, window in enumerate(windows):
        write_status(tmp_path, ChildStatus(pid=pid, versions={}, window=window))
    ending = Ending(tmp_path, "nsys", [Path("report.nsys-rep")])
    ending.hear(output)
    ending.look(nsys_ended=nsys_ended)
    assert ending.begun == ended
    if ended:
        assert running.wait(timeout=30) == -15
    assert running.poll() == (-15 if ended else None)


FAILURE: Final = """\
W1120 13:07:35.125000 25651 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process
E1120 13:07:35.127000 25651 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode
Traceback (most recent call last):
  File "site-packages/torch/distributed/run.py", line 1032, in <module>
    main()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:{space}
============================================================
fail.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 25697)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code}
============================================================
"""
"""Of what torchrun of torch 2.13 printed when one of two ranks failed (2026-11-20)."""

ERROR: Final = (
    "Traceback (most recent call last):",
    '  File "train.py", line 8, in <module>',
    "    loss()",
    "ValueError: loss is NaN at step 7",
)


def ranks_said(*lines: str, code: str = "1 (pid: 25698) ") -> str:
    """Lines of ranks, followed by those of torchrun."""
    return "\n".join([*lines, FAILURE.format(space=" ", code=code)])


SAID: Final = [f"line {number}" for number in range(50)]
LATER: Final = tuple(f"rank 0: step {number}" for number in range(100))
TORCHRUN_SAYS: Final = "torchrun: rank 1 failed first (exit code 1)"
ENDED_BY_SIGNAL: Final = "torchrun: rank 1 failed first (exit code -11, SIGSEGV)"
OWN_BARS: Final = ("[rank0] FATAL: 98 % of the batch is NaN", "[INFO] 50% done", "last words")
"""Lines of the program that look like a progress bar."""


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("\n".join([*SAID, "10 %\r50 %\r100 % done", ""]), (*SAID[1 - LAST_LINES :], "100 % done")),
        ("Capture range started in the application.\nCollecting data...\nCUDA out of memory\n"
         "Capture range ended in the application.\nGenerating '/x/nsys-report-1.qdstrm'\n"
         "[1/1] [0%     ] a.nsys-rep\r[1/1] [==100%] a.nsys-rep\nGenerated:\n    /a.nsys-rep\n",
         ("CUDA out of memory",)),
        ("\n".join([*OWN_BARS, "[1/2] [===50%  ] a.nsys-rep", "[2/2] [====100%] a.sqlite", ""]),
         OWN_BARS),
        ("\n".join(ERROR), ERROR),
        (ranks_said("epoch 1", *ERROR), ("epoch 1", *ERROR, TORCHRUN_SAYS)),
        # the error is shown even if another rank continues
        (ranks_said("epoch 1", *ERROR, *LATER), ("epoch 1", *ERROR, TORCHRUN_SAYS)),
        (ranks_said(*ERROR, *LATER[:5]), (*ERROR, *LATER[:5], TORCHRUN_SAYS)),
        # a signal came from no older error
        (ranks_said(*ERROR, *LATER, code="-11 (pid: 28476)  (SIGSEGV)"),
         (*LATER[1 - LAST_LINES :], ENDED_BY_SIGNAL)),
    ],
)  # fmt: skip
def test_the_last_lines_are_those_of_the_program(output: str, lines: tuple[str, ...]) -> None:
    assert last_lines(output.encode()) == lines


@pytest.mark.long
def test_the_installed_torchrun_shows_the_error_of_the_rank() -> None:
    program = "import os\nif os.environ['RANK'] == '1': raise ValueError('loss is NaN')"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    argv = [sys.executable, *torchrun, sys.executable, "-c", program]
    ended = run_program(argv, {}, Path("log"))
    assert ended.exit_code == 1
    assert ended.last_lines[-2:] == ("ValueError: loss is NaN", TORCHRUN_SAYS)
