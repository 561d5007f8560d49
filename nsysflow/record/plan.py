"""The plan of a run: a request becomes commands. Pure: `--dry-run` prints it, tests read it."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from shlex import join, quote
from typing import Final

from nsysflow.base.errors import CaptureError
from nsysflow.nsys.program import (
    BY_CUDA,
    WITHOUT_XLA_RANGES,
    Nsys,
    Recording,
    export_argv,
    profile_argv,
)
from nsysflow.record.machine import find_torchrun
from nsysflow.record.request import Request
from nsysflow.runtime import protocol
from nsysflow.runtime.inject import FOLDER
from nsysflow.runtime.protocol import Collector, Window

WINDOW_DEFAULT: Final = Window(wait=3, warmup=2, active=5)
"""The steps that a built-in workload captures without `--capture`."""

_RANK: Final = "rank%q{LOCAL_RANK}"
"""A report per rank: nsys fills in torchrun's variable."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """A report that nsys writes, and the SQLite file to export it to."""

    report: Path
    sqlite: Path


@dataclass(frozen=True, kw_only=True)
class PlainCommand:
    """The program without a profiler: what to start, and the variables to set for it."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be run.

    Attributes:
        request: what was asked.
        collector: who records.
        nsys: the nsys that records; None for torch.profiler.
        argv: the program to start, with nsys and torchrun around it if they are used.
        environment: the variables to set for it.
        plain: what runs before it, without a profiler; None if nothing does.
        sessions: the names by which the recording is stopped once it holds enough; none where it is
            not.
        exports: the reports that nsys will write, one per rank.
        window: the steps to capture; None for the whole run.
    """

    request: Request
    collector: Collector
    nsys: Nsys | None
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    plain: PlainCommand | None = None
    sessions: tuple[str, ...] = ()
    exports: tuple[Export, ...] = ()
    window: Window | None = None


def make_plan(request: Request, nsys: Nsys | None) -> Plan:
    """What will be run.

    Args:
        request: what was asked.
        nsys: the nsys that records; None for torch.profiler.

    Raises:
        CaptureError: what was asked for cannot be recorded together, or not by torch.profiler.
    """
    return plan_kineto(request) if nsys is None else plan_nsys(request, nsys)


def plan_nsys(request: Request, nsys: Nsys) -> Plan:
    """The run under nsys.

    Raises:
        CaptureError: what was asked for cannot be recorded together.
    """
    _check_together(request)
    name = f"nsysflow-{os.getpid()}-{token_hex(3)}"
    sessions = _sessions(request, nsys, name)
    if request.backtrace is None:
        request = replace(request, backtrace="waits" if nsys.exports_frames else "none")
    folder = request.folder.resolve()
    names = _report_names(request)
    opener = BY_CUDA if request.on == "cuda" else f"{protocol.OPENING_RANGE}@{protocol.DOMAIN}"
    recording = Recording(
        out=folder / (_RANK if request.processes else names[0]),
        trace=request.trace,
        window=opener if request.window else None,
        shutdown=request.stop and request.window is not None,
        session=f"{name}-{_RANK_IN_SESSION}" if len(sessions) > 1 else next(iter(sessions), None),
        delay_s=request.delay_s,
        duration_s=request.duration_s,
        backtrace=request.backtrace or "none",
        python_hz=request.sample_python or 0,
        gpu_metrics=request.gpu_metrics,
        memory=request.memory,
        graph_trace=request.graph_trace,
        extra=request.nsys_args,
    )
    argv = profile_argv(nsys, recording, [*request.command])
    reports = [folder / f"{name}.nsys-rep" for name in names]
    return Plan(
        request=request,
        collector="nsys",
        nsys=nsys,
        argv=tuple(_under_torchrun(request, argv)),
        environment=nsys.environment()
        | _environment(request, folder, "nsys")
        | ({protocol.BOUND: "1"} if sessions else {}),
        plain=_plain_command(request, folder),
        sessions=sessions,
        exports=tuple(Export(report=r, sqlite=r.with_suffix(".sqlite")) for r in reports),
        window=request.window,
    )


def plan_kineto(request: Request) -> Plan:
    """The run with torch.profiler, which the program's own `steps` start and stop.

    Raises:
        CaptureError: something was asked for that only nsys records.
    """
    request = replace(request, backtrace=request.backtrace or "none")
    only_nsys = {
        "--backtrace": request.backtrace != "none",
        "--gpu-metrics": request.gpu_metrics,
        "--delay": request.delay_s is not None,
        "--duration": request.duration_s is not None,
    }
    for option, wanted in only_nsys.items():
        if wanted:
            raise CaptureError(
                f"{option} needs nsys, and torch.profiler would record this run",
                "See which nsys is here, or how to get one",
                "nsysflow doctor",
            )
    window = request.window or WINDOW_DEFAULT
    folder = request.folder.resolve()
    asked = {protocol.CAPTURE: str(window)}
    if request.sample_python:
        asked[protocol.STACKS] = "1"
    if request.shapes:
        asked[protocol.SHAPES] = "1"
    return Plan(
        request=request,
        collector="kineto",
        nsys=None,
        argv=tuple(_under_torchrun(request, [*request.command])),
        environment=_environment(request, folder, "kineto") | asked,
        plain=_plain_command(request, folder),
        window=window,
    )


def shell_commands(plan: Plan) -> str:
    """The commands of a plan, as one would type them."""
    folder = quote(str(plan.request.folder.resolve()))
    before = [] if plan.plain is None else [_with_variables(plan.plain)]
    lines = [f"mkdir -p {folder}", *before, _with_variables(plan)]
    if plan.nsys is not None:
        json = plan.request.needs_json
        lines += [
            join(export_argv(plan.nsys, export.report, export.sqlite, json=json))
            for export in plan.exports
        ]
    return "\n".join(lines)


def _with_variables(run: Plan | PlainCommand) -> str:
    variables = [f"{name}={quote(value)}" for name, value in run.environment.items()]
    return " ".join([*variables, join(run.argv)])


def _check_together(request: Request) -> None:
    """Refuse options that nsys cannot follow, or not together.

    Raises:
        CaptureError: there are such options.
    """
    if request.shapes:
        raise CaptureError(
            "--shapes needs torch.profiler, and nsys would record this run",
            "Let torch.profiler record it",
            f"nsysflow profile --collector kineto --shapes -- {join(request.command)}",
        )
    if request.processes is not None and request.gpu_metrics:
        torchrun = ["torchrun", f"--nproc-per-node={request.processes}", *_script(request)]
        raise CaptureError(
            "--nproc starts one nsys per rank, and --gpu-metrics samples all GPUs, which only one"
            " nsys can do at a time",
            "Put one nsys around all ranks",
            f"nsysflow profile --gpu-metrics -- {join(torchrun)}",
        )
    if request.window and request.on == "cuda" and "cuda" not in request.trace:
        trace = ",".join(request.trace)
        raise CaptureError(
            f"--trace {trace} leaves out CUDA, and a CUDA call opens the window of --capture",
            f"Add it: --trace cuda,{trace}",
        )


def _script(request: Request) -> tuple[str, ...]:
    """The command as torchrun takes it: a Python script without `python`."""
    python = Path(request.command[0]).name.startswith("python")
    return request.command[1:] if python else ("--no-python", *request.command)


def _environment(request: Request, folder: Path, collector: Collector) -> dict[str, str]:
    variables = {protocol.COLLECTOR: collector, protocol.RUN_FOLDER: str(folder)}
    if request.window:
        variables[protocol.CAPTURE] = str(request.window)
        variables[protocol.OPENER] = "cuda" if request.on == "cuda" else "nvtx"
    if request.readings:
        variables[protocol.READINGS] = "1"
    if request.memory:
        variables[protocol.MEMORY] = "1"
    return variables | _annotating(request)


def _annotating(request: Request) -> dict[str, str]:
    """The variables that bring our hook into each Python of the program."""
    if not request.annotate:
        return {}
    rest = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(FOLDER), *([rest] if rest else [])])
    return {protocol.ANNOTATE: "1", "PYTHONPATH": path}


def _plain_command(request: Request, folder: Path) -> PlainCommand | None:
    if not request.plain_run:
        return None
    variables = {protocol.PLAIN: "1", protocol.RUN_FOLDER: str(folder)}
    return PlainCommand(
        argv=tuple(_under_torchrun(request, [*request.command])),
        environment=variables | _annotating(request),
    )


_RANK_IN_SESSION: Final = "%q{LOCAL_RANK}"
"""nsys fills in torchrun's variable here too."""


def _sessions(request: Request, nsys: Nsys, name: str) -> tuple[str, ...]:
    """The sessions of a recording that ends once it holds enough.

    Their name is used once: an nsys that crashed leaves its own in use, and in a container the next
    process may have the same id.
    """
    if not request.is_bounded or not nsys.offers("--session-new"):
        return ()
    ranks = request.processes
    return (name,) if ranks is None else tuple(f"{name}-{rank}" for rank in range(ranks))


def _report_names(request: Request) -> list[str]:
    if request.processes is None:
        return ["report"]
    return [f"rank{rank}" for rank in range(request.processes)]


def _under_torchrun(request: Request, argv: list[str]) -> list[str]:
    """`argv`, started once per rank if ranks were asked for.

    Raises:
        CaptureError: the command starts torchrun itself, or there is no torchrun.
    """
    if request.processes is None:
        return argv
    first = Path(request.command[0]).name
    if first == "torchrun":
        raise CaptureError(
            "the command starts torchrun, and so does --nproc",
            "Give --nproc and the script without torchrun, for a report per rank; or leave out"
            " --nproc, for one report of all ranks",
        )
    if first.startswith("python"):
        torchrun = [request.command[0], "-m", "torch.distributed.run"]
    else:
        script = find_torchrun()
        if script is None:
            raise CaptureError(
                "--nproc needs torchrun, which is not on PATH",
                "Give the command as python and a script, or install torch",
                "pip install torch",
            )
        torchrun = [str(script)]
    ranks = f"--nproc-per-node={request.processes}"
    return [*torchrun, "--standalone", ranks, "--no-python", *argv]


_IMPORTS: Final = re.compile(r"^\s*(?:import|from)\s+(?:jax|flax|equinox|haiku)\b", re.MULTILINE)


def without_ranges_of_xla(request: Request, nsys: Nsys | None) -> tuple[Request, tuple[str, ...]]:
    """The request, without XLA's own ranges where the script imports JAX, and a note on it.

    With them nsys 2025.3 cannot import what it recorded (docs/facts.md). `--backtrace none` keeps
    them: small programs are recorded whole.
    """
    script = next((word for word in request.command if word.endswith(".py")), None)
    option = WITHOUT_XLA_RANGES.partition("=")[0]
    asked = [word for word in request.nsys_args if word.startswith("--nvtx-domain-")]
    if (
        script is None
        or nsys is None
        or request.backtrace == "none"
        or "nvtx" not in request.trace
        or asked
        or not nsys.offers(option)
        or not _imports_jax(script)
    ):
        return request, ()
    note = (
        f"{script} imports JAX, so XLA's own ranges are not recorded: with them nsys 2025.3 loses"
        " events. Name parts of a step by nvtx.annotate; to record XLA's ranges: --backtrace none"
    )
    return replace(request, nsys_args=(WITHOUT_XLA_RANGES, *request.nsys_args)), (note,)


def _imports_jax(script: str) -> bool:
    """Whether it does so itself; what it imports is not looked at."""
    try:
        text = Path(script).read_text(errors="replace")
    except OSError:  # the program will say so
        return False
    return _IMPORTS.search(text) is not None
