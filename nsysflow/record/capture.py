"""A run, end to end: make its folder, start the program, export what nsys wrote; and the plain run,
the program without a profiler, until some of its steps are timed.
"""

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from shlex import quote
from typing import Final

import nsysflow
from nsysflow.analysis.load.allocator import history_of
from nsysflow.analysis.tables.index import ABOUT
from nsysflow.base.errors import ChildFailed, Damaged, NsysflowError, OutputError
from nsysflow.base.progress import progress
from nsysflow.nsys.run import export
from nsysflow.record.bound import EVERY_S, Bound, Quota
from nsysflow.record.failure import export_failed, no_report_error, program_failed
from nsysflow.record.machine import Gpus
from nsysflow.record.plan import PlainCommand, Plan
from nsysflow.record.program import Ending, Processes, ProgramEnd, run_program
from nsysflow.runs.manifest import FILE as MANIFEST
from nsysflow.runs.manifest import (
    LOG,
    PLAIN_LOG,
    GitState,
    Manifest,
    PlainRun,
    is_run,
    read_manifest,
    take_annotation,
    take_statuses,
    write_manifest,
)
from nsysflow.runtime.bound import FEWEST_PLAIN, PLAIN_STEPS
from nsysflow.runtime.inject.nsysflow_hook import ANNOTATED, HOOKED, NOT_ANNOTATED
from nsysflow.runtime.process import ChildStatus
from nsysflow.runtime.protocol import MEMORY_FILES

_TRACE: Final = re.compile(r"(?:report|rank(?P<rank>\d+))(?:-(?P<pid>\d+))?\.pt\.trace\.json\.gz")
_CAPTURED: Final = re.compile(
    rf"(?:report|rank\d+)\.(?:nsys-rep|qdstrm|sqlite)|{_TRACE.pattern}|(?:child|memory)-\d+\.json"
    rf"|{HOOKED}|{ANNOTATED}|{NOT_ANNOTATED}"
)
_ANALYSED: Final = (
    *("summary.md", "report.json", "gap-report.csv", "gap-report.md"),
    *(f"{table}.csv" for table in ABOUT),
)

_ELSEWHERE: Final = "Name another folder with -o DIR"


def make_unused_folder(folder: Path) -> Path:
    """Make the folder under the first free name of `run`, `run-2`, `run-3`, …, and return it. Runs
    that start at the same time get one each.

    Raises:
        OutputError: it cannot be made.
    """
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    for own in chain([folder], numbered):
        try:
            own.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _cannot_write(own, error) from error
        break
    return own


def make_run_folder(folder: Path, *, force: bool) -> None:
    """Make the folder, or empty it of an earlier run's files. A run that left no report is replaced
    without `force`.

    Raises:
        OutputError: the folder holds something that may not be replaced, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not force and not _left_no_report(folder):
            raise OutputError(
                f"{folder} exists and is not empty; nothing was run",
                f"{_ELSEWHERE}, or replace an earlier run with --force",
            )
        of_a_run = list(_files_of_a_run(folder))
        if of_a_run and not is_run(folder):
            raise OutputError(
                f"{folder} is not a run of nsysflow, but holds a file that a run would replace"
                f" ({of_a_run[0].name}); nothing was run",
                _ELSEWHERE,
            )
        for file in of_a_run:
            file.unlink()
        (folder / LOG).touch()
    except FileExistsError:
        raise OutputError(
            f"{folder} is a file, not a folder; nothing was run", _ELSEWHERE
        ) from None
    except OSError as error:
        raise _cannot_write(folder, error) from error


def traces_in(folder: Path) -> list[Path]:
    """The Kineto traces that a run's processes left, by rank and process id."""
    traces = [(named, file) for file in folder.iterdir() if (named := _TRACE.fullmatch(file.name))]
    traces.sort(key=lambda pair: (int(pair[0]["rank"] or -1), int(pair[0]["pid"] or 0)))
    return [file for _, file in traces]


def _left_no_report(folder: Path) -> bool:
    """Whether the folder is that of a run without reports."""
    try:
        earlier = read_manifest(folder)
    except Damaged:
        return False
    return earlier is not None and not earlier.reports


def _cannot_write(folder: Path, error: OSError) -> OutputError:
    return OutputError(f"{folder} cannot be written: {error.strerror}; nothing was run", _ELSEWHERE)


def _files_of_a_run(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if _CAPTURED.fullmatch(file.name) or file.name in (LOG, PLAIN_LOG, MANIFEST, *_ANALYSED):
            yield file


def capture(plan: Plan, gpus: Gpus, *, force: bool) -> tuple[Manifest, ChildFailed | None]:
    """Run a plan: afterwards the run's folder holds its reports, their exports and manifest.json.

    Returns:
        The manifest, and the program's failure if it failed but left something to analyse.

    Raises:
        OutputError: the folder cannot be used.
        CaptureError: nothing was captured, or it cannot be exported.
    """
    folder = plan.request.folder
    make_run_folder(folder, force=force)
    plain_run = run_plain(plan, plan.plain) if plan.plain is not None else None
    started = datetime.now(UTC)
    bound = _bound(plan)
    end = run_program(plan.argv, plan.environment, folder / LOG, _ending(plan, bound), bound)
    # nsys ends before we end the program: its code then comes from an earlier failure
    failed_itself = bool(end.exit_code) and not (end.stopped and plan.collector == "kineto")
    try:
        children = take_statuses(folder)
        annotation = take_annotation(folder) if plan.request.annotate else None
        not_exported = _export(plan)  # the manifest is written all the same: there is a report
        manifest = replace(
            _manifest(plan, gpus, started, end, children),
            annotation=annotation,
            plain_run=plain_run,
        )
        write_manifest(folder, manifest)
    except OSError as error:
        raise OutputError(
            f"{folder} cannot be written: {error.strerror}",
            "Make room, or look at its permissions",
            f"ls -ld {quote(str(folder))}",
        ) from error
    if not_exported is not None:
        raise export_failed(plan, end, not_exported) if failed_itself else not_exported
    if not manifest.reports:
        why = no_report_error(plan, end, children, annotation)
        if plan.request.on == "cpu" and not end.exit_code:  # a trial that recorded nothing
            for file in _files_of_a_run(folder):
                file.unlink()
            folder.rmdir()
        raise why
    failed = program_failed(plan, end, manifest.reports) if failed_itself else None
    return manifest, failed


def _export(plan: Plan) -> NsysflowError | None:
    """Export what nsys wrote; returns why it could not be exported."""
    try:
        _export_all(plan)
    except NsysflowError as error:
        return error
    return None


_NO_HISTORY: Final = (
    "nsysflow: no process left what PyTorch's allocator did, so the report has only what CUDA"
    " allocated: --memory needs a PyTorch program on a GPU, with --capture or without"
    " --no-annotate\n"
)


def _export_all(plan: Plan) -> None:
    files = sorted(plan.request.folder.glob(MEMORY_FILES))
    histories = [history for file in files if (history := history_of(file.read_bytes()))]
    for rank, made in enumerate(plan.exports):
        if plan.nsys is not None and made.report.exists():
            mine = [h for h in histories if h.rank == rank or len(plan.exports) == 1]
            with progress(f"exporting {made.report.name}"):
                json = plan.request.needs_json
                export(plan.nsys, made.report, made.sqlite, json=json, histories=mine)
    for file in files:
        file.unlink()
    if plan.request.memory and not histories:
        with suppress(OSError):  # a closed terminal must not end the run
            sys.stderr.write(_NO_HISTORY)


def _manifest(
    plan: Plan, gpus: Gpus, started: datetime, end: ProgramEnd, children: Sequence[ChildStatus]
) -> Manifest:
    request = plan.request
    return Manifest(
        name=request.name,
        workload=request.workload,
        command=request.command,
        argv=plan.argv,
        on=request.on,
        collector=plan.collector,
        capture=str(plan.window) if plan.window else None,
        delay_s=request.delay_s,
        duration_s=request.duration_s,
        processes=request.processes,
        trace=request.trace,
        backtraces=request.backtrace or "none",
        sample_python=request.sample_python or 0,
        gpu_metrics=request.gpu_metrics,
        flops_per_step=request.flops_per_step,
        flops_dtype=request.flops_dtype,
        own=request.own,
        git=_git_state(Path.cwd()),
        versions=_versions(plan, gpus, children),
        gpus=gpus.names,
        started=started.isoformat(timespec="seconds"),
        wall_ns=end.wall_ns,
        exit_code=end.exit_code,
        stopped=end.stopped,
        interrupted=end.interrupted,
        reports=tuple(report.name for report in _reports(plan)),
        children=tuple(children),
    )


def _reports(plan: Plan) -> list[Path]:
    """What the run left to analyse, by rank. Every process under torch.profiler writes a trace,
    also one that the program started."""
    if plan.collector == "kineto":
        return traces_in(plan.request.folder)
    return [made.sqlite for made in plan.exports if made.sqlite.exists()]


def _versions(plan: Plan, gpus: Gpus, children: Sequence[ChildStatus]) -> dict[str, str]:
    """Versions by name: the machine's, and those of packages that the program loaded."""
    versions = {
        "nsysflow": nsysflow.__version__,
        "os": f"{platform.system()} {platform.release()}",
    }
    if plan.nsys is not None:
        versions["nsys"] = plan.nsys.version_text
    if gpus.driver:
        versions["driver"] = gpus.driver
    for child in children:
        versions |= child.versions
    return versions


def _bound(plan: Plan) -> Bound | None:
    """What ends the recording; None if it ends with the program or its window."""
    if plan.nsys is None or not plan.sessions:
        return None
    folder, steps = plan.request.folder.resolve(), plan.request.annotate
    return Bound(folder, plan.nsys, plan.sessions, reports_steps=steps)


def _ending(plan: Plan, bound: Bound | None) -> Ending | None:
    """What ends the program; None if it ends by itself."""
    if not plan.request.ends_program:
        return None
    folder, reports = plan.request.folder.resolve(), [made.report for made in plan.exports]
    return Ending(folder, plan.collector, reports, bound)


def _git_state(folder: Path) -> GitState | None:
    """The commit that is checked out, and whether files differ from it; None outside git."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):  # no git, no repository, or no commit yet
        return None
    return GitState(commit=commit, changed=bool(changed))


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


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
    timed = [status for status in statuses if status.plain_step_ns is not None]
    if timed:
        slowest = max(timed, key=lambda status: status.plain_step_ns or 0)
        return PlainRun(step_ns=slowest.plain_step_ns, wait_ns=slowest.plain_wait_ns)
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
