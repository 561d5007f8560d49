"""The plain run: the program without a profiler, until some of its steps are timed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from nsysflow.base.progress import progress
from nsysflow.record.bound import EVERY_S, Quota
from nsysflow.record.plan import PlainCommand, Plan
from nsysflow.record.program import Processes
from nsysflow.runs.manifest import PLAIN_LOG, PlainRun, take_annotation, take_statuses
from nsysflow.runtime.bound import FEWEST_PLAIN, PLAIN_STEPS

GRACE_S: Final = 10
"""A program that is sent SIGTERM has so long to end before it is killed."""


def run_plain(plan: Plan, command: PlainCommand) -> PlainRun:
    """Run the program without a profiler until its steps are timed, then end it.

    Raises:
        OSError: the program cannot be started, or the run's folder cannot be written.
    """
    request, folder = plan.request, plan.request.folder.resolve()
    with suppress(OSError):  # a closed terminal must not end the run
        sys.stderr.write(
            f"nsysflow: first without the profiler, until {PLAIN_STEPS} steps are timed\n"
        )
    quota = Quota(folder, request.processes or 1, reports_steps=True)
    begun_s = time.monotonic()
    with progress("timing plain steps"), (folder / PLAIN_LOG).open("wb") as log:
        code = _run_until(quota, command, folder, log.fileno())
    lasted_s = time.monotonic() - begun_s
    quota.end()
    statuses, annotation = take_statuses(folder), take_annotation(folder)
    times_ns = [status.plain_step_ns for status in statuses if status.plain_step_ns is not None]
    if times_ns:
        return PlainRun(step_ns=max(times_ns))
    steps = max((status.steps for status in statuses), default=0)
    missing = annotation.missing if request.annotate else None
    return PlainRun(step_ns=None, problem=_problem(code, lasted_s, steps, missing))


def _problem(code: int | None, lasted_s: float, steps: int, missing: str | None) -> str:
    """What was seen of a plain run that timed no step, and what to do."""
    if code:
        seen, advice = f"it failed with exit code {code}", f"See {PLAIN_LOG} in the run's folder"
    elif steps:
        seen = f"{steps} step{'s' if steps > 1 else ''} ran in {lasted_s:.0f} s"
        advice = (
            f"At least {FEWEST_PLAIN} steps after start-up are needed: run more, or leave out"
            " --plain-run"
        )
    else:
        seen = f"no step was reported in {lasted_s:.0f} s{f', and {missing}' if missing else ''}"
        advice = (
            "Put the loop into `for batch in nsysflow.steps(loader):`, or leave out --plain-run"
        )
    return f"the plain run timed no step: {seen}. {advice}"


def _run_until(quota: Quota, command: PlainCommand, folder: Path, log: int) -> int | None:
    """Run the program until there are enough steps; its exit code, None if we ended it."""
    with (
        _interrupted_by_sigterm(),
        subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **command.environment},
            process_group=0,  # a terminal's Ctrl-C comes to us alone, and we end it
        ) as program,
    ):
        try:
            while program.poll() is None and not quota.is_met():
                time.sleep(EVERY_S)
            return program.returncode
        finally:
            _end(program, Processes(folder, by_nsys=False))


def _end(program: "subprocess.Popen[bytes]", processes: Processes) -> None:
    """End the program with all that it started, each rank and worker."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until_s = time.monotonic() + GRACE_S
        if program.poll() is None or processes.runs():
            processes.send(number)
        while time.monotonic() < until_s and (program.poll() is None or processes.runs()):
            time.sleep(EVERY_S)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM interrupts the block as Ctrl-C does, so that the program is ended, too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
