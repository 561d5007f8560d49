"""What a run was and left behind: its manifest.json, and the statuses of its processes."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import join, quote
from typing import Any, Final, Literal, NamedTuple

import msgspec

from nsysflow.base.atomic import staged_file
from nsysflow.base.errors import Damaged, ReportError
from nsysflow.base.peaks import Unit
from nsysflow.runtime.bound import ENOUGH_NS, PLAIN_STEPS
from nsysflow.runtime.inject.nsysflow_hook import ANNOTATED, HOOKED, NOT_ANNOTATED
from nsysflow.runtime.process import FILES, SCRATCH_FILES, ChildStatus
from nsysflow.runtime.protocol import LOADER_FILES, Backtrace, Collector, Window

FILE: Final = "manifest.json"
LOG: Final = "output.log"
"""The output of the program, kept in the run's folder."""

PLAIN_LOG: Final = "plain.log"
"""What the program printed in its plain run."""

SCHEMA: Final = 2
_TOOL: Final = "nsysflow"


@dataclass(frozen=True, kw_only=True)
class GitState:
    """The commit that was checked out, and whether files differed from it."""

    commit: str
    changed: bool


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """What became of the ranges and steps that we put into a program by ourselves.

    Attributes:
        hooked: whether a Python process of the program loaded our hook.
        torch: whether torch was annotated in one.
        problem: why torch could not be annotated in one; None if it could wherever it was imported.
    """

    hooked: bool
    torch: bool
    problem: str | None = None

    @property
    def missing(self) -> str | None:
        """Why there are no such ranges and steps; None if there are."""
        if self.problem is not None:
            return self.problem
        if not self.hooked:
            return (
                "no Python process loaded nsysflow's hook (python -I, -E and -S keep it out, and so"
                " does a program that replaces PYTHONPATH)"
            )
        return None if self.torch else "no process of the program imported torch"


@dataclass(frozen=True, kw_only=True)
class PlainRun:
    """The run of the program without a profiler, before the recorded one.

    Attributes:
        step_ns: mean wall time of a step, of the slowest process; None where none was timed.
        wait_ns: how long such a step waited for batches of DataLoaders.
        problem: what was seen then, and what to do; None if steps were timed.
    """

    step_ns: int | None
    wait_ns: int | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One run. It keeps the command line and versions by name, but no environment.

    Attributes:
        name: the run's name.
        workload: the built-in workload; None for any other command.
        command: the program that was profiled, as it was typed.
        argv: what was started, with nsys and torchrun around the program.
        on: `cuda` or `cpu`.
        collector: `nsys` or `kineto`.
        capture: the window of steps, `wait:warmup:active`; None for the whole run.
        delay_s: for how long nothing was to be recorded at the start.
        duration_s: for how long to record; None for as long as the program ran.
        annotation: what became of the annotation; None if it was not asked for.
        stopped: whether we ended the program, because what was asked for was recorded.
        processes: how many ranks torchrun started; None without torchrun.
        trace: what nsys was asked to trace.
        sample_python: samples of the Python stack per second; 0 if none were asked for.
        gpu_metrics: whether GPU counters were asked for.
        flops_per_step: what one step of one rank computes, as typed; None if it was not.
        flops_dtype: the arithmetic of those FLOPs, as typed.
        backtraces: the CUDA calls whose Python lines were asked for.
        own: the packages and paths that are the program's own, as typed.
        plain_run: what the plain run gave; None without one.
        git: the state of the repository in the working folder; None outside git.
        versions: by name: nsysflow, nsys, driver, python, torch, …
        gpus: the names of the machine's GPUs.
        started: when, in UTC.
        wall_ns: how long the program ran, including nsys's import.
        exit_code: the program's exit code.
        interrupted: whether SIGINT or SIGTERM stopped it.
        reports: the files to analyse, one per rank, by name.
        children: what the program's processes reported.
    """

    name: str
    workload: str | None
    command: tuple[str, ...]
    argv: tuple[str, ...]
    on: Literal["cuda", "cpu"]
    collector: Collector
    capture: str | None
    processes: int | None
    trace: tuple[str, ...]
    gpu_metrics: bool
    git: GitState | None
    versions: Mapping[str, str]
    gpus: tuple[str, ...]
    started: str
    wall_ns: int
    exit_code: int
    interrupted: bool
    reports: tuple[str, ...]
    children: tuple[ChildStatus, ...]
    sample_python: int = 0
    flops_per_step: float | None = None
    flops_dtype: Unit | None = None
    delay_s: float | None = None
    duration_s: float | None = None
    annotation: Annotation | None = None
    stopped: bool = False
    backtraces: Backtrace = "none"
    own: tuple[str, ...] = ()
    plain_run: PlainRun | None = None

    def __post_init__(self) -> None:
        """Check what files and figures are made of.

        Raises:
            ValueError: a report cannot be the name of a file, or FLOPs are no number.
        """
        if any("\0" in report for report in self.reports):
            raise ValueError("reports: no name of a file has a NUL")
        if self.flops_per_step is not None and not math.isfinite(self.flops_per_step):
            raise ValueError(f"flops_per_step: {self.flops_per_step} is no number of operations")

    @property
    def plain_step_ns(self) -> int | None:
        """How long a step took in the plain run; None without one, or where it timed none."""
        return None if self.plain_run is None else self.plain_run.step_ns

    @property
    def later_step_ns(self) -> int | None:
        """How long a step took after the recording, of the slowest process; None where no process
        has timed that."""
        later = self._slowest_later
        return None if later is None else later.step_ns

    @property
    def unrecorded_wait_ns(self) -> int | None:
        """How long a step of the plain run waited for batches of DataLoaders, else one after the
        recording; None where that is not known."""
        if self.plain_run is not None and self.plain_run.step_ns is not None:
            return self.plain_run.wait_ns
        later = self._slowest_later
        return None if later is None else later.wait_ns

    @property
    def middle_later_step(self) -> float | None:
        """The number of the middle one of the steps after the recording; None if not known."""
        later = self._slowest_later
        return None if later is None else later.middle

    @property
    def _slowest_later(self) -> "_Later | None":
        timed = [one for one in map(_later, self.children) if one]
        return max(timed, key=lambda one: one.step_ns, default=None)

    @property
    def killed(self) -> bool:
        """Whether torch was annotated, and no process of the program ended as Python ends: by
        os._exit or a signal instead, on which nsys loses what it has not saved."""
        annotated = self.annotation is not None and self.annotation.torch
        return annotated and not any(child.at_end for child in self.children)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    document = {"schema": SCHEMA, "tool": _TOOL, **asdict(manifest)}
    with staged_file(folder / FILE) as scratch:
        scratch.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a run's folder; None if `folder` is not one.

    Raises:
        Damaged: the manifest is corrupt, or of another version of nsysflow.
        ReportError: it may not be read.
    """
    file = folder / FILE
    try:
        document = _document(file)
        return None if document is None else msgspec.convert(document, Manifest)
    except PermissionError:
        raise ReportError(
            f"{file} cannot be read: permission denied", "Allow it", f"chmod u+r {quote(str(file))}"
        ) from None
    except (ValueError, msgspec.ValidationError) as error:
        raise Damaged(
            f"{file} cannot be understood: {error}",
            "Name the report itself instead; it is one of these",
            f"ls {quote(str(folder))}",
        ) from error


def is_run(folder: Path) -> bool:
    """Whether some version of nsysflow wrote the manifest in `folder`."""
    try:
        return _document(folder / FILE) is not None
    except (OSError, ValueError):
        return False


def _document(file: Path) -> dict[str, Any] | None:
    """The JSON of a manifest of ours; None if there is none.

    Raises:
        PermissionError: it may not be read.
        ValueError: it is not JSON.
    """
    try:
        if not file.is_file():
            return None
    except PermissionError:  # in a folder that may not be entered; whoever needs it will say so
        return None
    document = json.loads(file.read_text(encoding="utf-8"))
    ours = isinstance(document, dict) and document.get("tool") == _TOOL
    return document if ours else None


def read_statuses(folder: Path) -> dict[Path, ChildStatus]:
    """The statuses that now lie in the run's folder, by file.

    A file that cannot be understood is left out: the run is worth more than what one process says.

    Raises:
        OSError: a file cannot be read.
    """
    statuses = {}
    for file in folder.glob(FILES):
        with suppress(ValueError, msgspec.ValidationError):
            status = json.loads(file.read_text(encoding="utf-8"))  # Python's own may hold a NaN
            statuses[file] = msgspec.convert(status, ChildStatus)
    return statuses


def take_statuses(folder: Path) -> list[ChildStatus]:
    """The statuses in the run's folder, by rank and process id; their files are removed, and what
    killed processes of the program left.

    Raises:
        OSError: a file cannot be read or removed.
    """
    statuses = read_statuses(folder)
    for file in (*statuses, *folder.glob(LOADER_FILES), *folder.glob(SCRATCH_FILES)):
        file.unlink()
    return sorted(statuses.values(), key=lambda status: (status.rank or 0, status.pid))


def take_annotation(folder: Path) -> Annotation:
    """What became of the annotation; the files that say so are removed.

    Raises:
        OSError: a file cannot be read or removed.
    """
    hooked, torch, problem = (
        _remove_text(folder / name) for name in (HOOKED, ANNOTATED, NOT_ANNOTATED)
    )
    return Annotation(hooked=hooked is not None, torch=torch is not None, problem=problem)


def _remove_text(file: Path) -> str | None:
    """The text of a file, which is then removed; None if it does not exist."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    file.unlink()
    return text


_LATER_STEPS: Final = 30
"""So many steps vary little in their mean."""

_WARM_UP: Final = 2
"""Steps before the window in which the profiler starts."""

_SETTLED: Final = 0.5
"""A program settles late if its later steps take less than this share of the steps timed first: by
then it has loaded the code for all of its shapes."""


class _Later(NamedTuple):
    """Steps of a process after the recording.

    Attributes:
        step_ns: their mean.
        middle: the number of the middle one; None if the steps were not numbered.
        settled: whether these are the steps after the process settled.
        wait_ns: how long they waited for batches of DataLoaders; None if not known.
    """

    step_ns: int
    middle: float | None
    settled: bool
    wait_ns: int | None = None


def _later(child: ChildStatus) -> _Later | None:
    """The steps that were timed first, or the later ones of a process that settled late; None if no
    step was timed."""
    later, timed_ns = child.later, child.plain_step_ns
    if not timed_ns:
        return None
    if later is None:
        return _Later(timed_ns, middle=None, settled=False, wait_ns=child.plain_wait_ns)
    timed = min(later.count, max(PLAIN_STEPS, -(-ENOUGH_NS // timed_ns)))
    rest, rest_ns = later.count - timed, later.total_ns - timed * timed_ns
    if rest >= _LATER_STEPS and 0 < rest_ns < _SETTLED * rest * timed_ns:
        return _Later(rest_ns // rest, middle=later.first + timed + rest / 2, settled=True)
    middle = later.first + timed / 2
    return _Later(timed_ns, middle=middle, settled=False, wait_ns=child.plain_wait_ns)


def command_for_later_steps(manifest: Manifest) -> str:
    """The command that records steps like those after the recording; empty if there were none. Of a
    program that settled late it records the last steps. It starts earlier if too few steps are left
    behind its start."""
    later = [child.later for child in manifest.children if child.later]
    if not later or manifest.workload is not None:
        return ""
    first = max(steps.first for steps in later)
    last = min(steps.first + steps.count for steps in later) - _WARM_UP - _LATER_STEPS
    settled = any(one.settled for one in map(_later, manifest.children) if one)
    wait = max(0, last if settled else min(first, last))
    window = Window(wait=wait, warmup=_WARM_UP, active=_LATER_STEPS)
    ranks = ["--nproc", str(manifest.processes)] if manifest.processes else []
    return join(["nsysflow", "profile", "--capture", str(window), *ranks, "--", *manifest.command])
