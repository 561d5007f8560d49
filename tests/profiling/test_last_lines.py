"""The last lines are the program's own, with the error that ended it."""

import sys
from pathlib import Path
from typing import Final

import pytest

from nsysflow.profiling.last_lines import LAST_LINES, last_lines
from nsysflow.profiling.program import run_program

FAILURE: Final = """\
W1120 13:07:35.125000 25651 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process
E1120 13:07:35.127000 25651 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "site-packages/torch/distributed/run.py", line 1032, in <module>
    main()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:{space}
============================================================
fail.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-20_13:07:35
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 25697)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 25697
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_13:07:35
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {code}
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
"""What torchrun of torch 2.13 printed when one of two ranks failed (2026-11-20)."""

ERROR: Final = (
    "Traceback (most recent call last):",
    '  File "train.py", line 8, in <module>',
    "    loss()",
    "ValueError: loss is NaN at step 7",
)


def ranks_said(*lines: str, code: str = "1 (pid: 25698) ") -> bytes:
    """Lines of ranks, followed by those of torchrun."""
    return "\n".join([*lines, FAILURE.format(space=" ", code=code)]).encode()


def test_the_last_lines_are_as_a_terminal_shows_them() -> None:
    lines = [f"line {number}" for number in range(50)]
    output = "\n".join([*lines, "10 %\r50 %\r100 % done", ""])
    assert last_lines(output.encode()) == (*lines[-LAST_LINES + 1 :], "100 % done")


def test_lines_of_nsys_are_left_out() -> None:
    output = (
        "Capture range started in the application.\nCollecting data...\nCUDA out of memory\n"
        "Capture range ended in the application.\nGenerating '/x/nsys-report-1.qdstrm'\n"
        "[1/1] [0%     ] a.nsys-rep\r[1/1] [===100%] a.nsys-rep\nGenerated:\n    /x/a.nsys-rep\n"
    )
    assert last_lines(output.encode()) == ("CUDA out of memory",)


def test_torchruns_table_of_failures_becomes_one_line() -> None:
    assert last_lines(ranks_said("epoch 1", *ERROR)) == (
        "epoch 1",
        *ERROR,
        "torchrun: rank 1 failed first (exit code 1)",
    )


def test_the_error_is_shown_even_if_another_rank_continues() -> None:
    later = [f"rank 0: step {n}" for n in range(100)]
    assert last_lines(ranks_said("epoch 1", *ERROR, *later))[-3:-1] == ERROR[-2:]
    assert last_lines(ranks_said(*ERROR, *later[:5]))[-6:-1] == tuple(later[:5])


def test_a_rank_ended_by_a_signal_is_named_with_it_and_not_with_an_older_error() -> None:
    said = [*ERROR, *(f"step {n}" for n in range(100))]
    found = last_lines(ranks_said(*said, code="-11 (pid: 28476)  (SIGSEGV)"))
    assert found[-2:] == ("step 99", "torchrun: rank 1 failed first (exit code -11, SIGSEGV)")
    assert len(found) == LAST_LINES


def test_a_line_of_the_program_that_looks_like_a_progress_bar_stays() -> None:
    said = ("[rank0] FATAL: 98 % of the batch is NaN", "[INFO] 50% done", "last words")
    bars = "[1/2] [=====50%      ] report.nsys-rep\n[2/2] [========100%] report.sqlite\n"
    assert last_lines(("\n".join(said) + "\n" + bars).encode()) == said


def test_an_error_in_torchrun_itself_is_kept() -> None:
    said = ("Traceback (most recent call last):", '  File "run.py"', "ValueError: no such option")
    assert last_lines("\n".join(said).encode()) == said


@pytest.mark.slow
def test_the_installed_torchrun_shows_the_error_of_the_rank(tmp_path: Path) -> None:
    program = "import os\nif os.environ['RANK'] == '1': raise ValueError('loss is NaN')"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    argv = [sys.executable, *torchrun, sys.executable, "-c", program]
    ended = run_program(argv, {}, tmp_path / "log")
    assert ended.exit_code == 1
    assert ended.last_lines[-2:] == (
        "ValueError: loss is NaN",
        "torchrun: rank 1 failed first (exit code 1)",
    )
