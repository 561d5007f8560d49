"""From what was asked to what will be run. Pure: `--dry-run` prints it, tests read it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nsysflow import handshake
from nsysflow.errors import CaptureError
from nsysflow.nsys import BY_CUDA, Capture, Nsys, export_argv, profile_argv
from nsysflow.profiling.request import Request
from nsysflow.torchrun import find_torchrun

WINDOW_DEFAULT: Final = handshake.Window(wait=3, warmup=2, active=5)
"""The steps that a built-in workload captures unless `--capture` says otherwise."""

_RANK: Final = "rank%q{LOCAL_RANK}"
"""nsys puts torchrun's variable in: a report per rank."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """A report of nsys and the SQLite file to be made of it."""

    report: Path
    sqlite: Path


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be run.

    Attributes:
        request: what was asked.
        collector: who records.
        nsys: the nsys that records; None for torch.profiler.
        argv: the program to start, with nsys and torchrun around it where they are used.
        environment: variables it is given besides the ones there are.
        exports: the reports that nsys writes, one per rank.
        window: the steps that are captured; None for the whole run.
    """

    request: Request
    collector: Literal["nsys", "kineto"]
    nsys: Nsys | None
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    exports: tuple[Export, ...] = ()
    window: handshake.Window | None = None

    @property
    def reports(self) -> tuple[Path, ...]:
        """What will be analysed of nsys, one per rank; torch.profiler's traces are as many as there
        are processes that write one."""
        return tuple(export.sqlite for export in self.exports)


def plan_nsys(request: Request, nsys: Nsys) -> Plan:
    """The run under nsys.

    Raises:
        CaptureError: what was asked for cannot be recorded together.
    """
    if request.processes is not None and request.gpu_metrics:
        msg = (
            "--gpu-metrics samples all GPUs, which only one nsys can do at a time, and --nproc"
            " starts one per rank. Put one nsys around all ranks:\n"
            "  nsysflow profile --gpu-metrics -- torchrun --nproc-per-node=N train.py"
        )
        raise CaptureError(msg)
    if request.window and request.on == "cuda" and "cuda" not in request.trace:
        msg = (
            f"--trace {','.join(request.trace)} leaves CUDA out, and the window of --capture opens"
            " by a CUDA call that nsys would not see. Add it:\n"
            f"  --trace cuda,{','.join(request.trace)}"
        )
        raise CaptureError(msg)
    folder = request.folder.resolve()
    names = _report_names(request)
    opener = BY_CUDA if request.on == "cuda" else f"{handshake.OPENING_RANGE}@{handshake.DOMAIN}"
    capture = Capture(
        out=folder / (_RANK if request.processes else names[0]),
        trace=request.trace,
        window=opener if request.window else None,
        backtrace=request.backtrace,
        gpu_metrics=request.gpu_metrics,
        graph_trace=request.graph_trace,
        extra=request.nsys_args,
    )
    argv = profile_argv(nsys, capture, [*request.command])
    reports = [folder / f"{name}.nsys-rep" for name in names]
    return Plan(
        request=request,
        collector="nsys",
        nsys=nsys,
        argv=tuple(_under_torchrun(request, argv)),
        environment=nsys.environment() | _environment(request, folder, "nsys"),
        exports=tuple(Export(report=r, sqlite=r.with_suffix(".sqlite")) for r in reports),
        window=request.window,
    )


def plan_kineto(request: Request) -> Plan:
    """The run with torch.profiler, which the program's own `steps` start and stop.

    Raises:
        CaptureError: something was asked for that only nsys records.
    """
    asked = {"--backtrace": request.backtrace, "--gpu-metrics": request.gpu_metrics}
    for option, wanted in asked.items():
        if wanted:
            msg = (
                f"{option} needs nsys, and torch.profiler would record this run. See which nsys"
                " there is, and what to do if there is none:\n  nsysflow doctor"
            )
            raise CaptureError(msg)
    window = request.window or WINDOW_DEFAULT
    folder = request.folder.resolve()
    return Plan(
        request=request,
        collector="kineto",
        nsys=None,
        argv=tuple(_under_torchrun(request, [*request.command])),
        environment=_environment(request, folder, "kineto") | {handshake.CAPTURE: str(window)},
        window=window,
    )


def shown(plan: Plan) -> str:
    """The commands of a plan, as one would type them."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in plan.environment.items()]
    folder = shlex.quote(str(plan.request.folder.resolve()))
    lines = [f"mkdir -p {folder}", " ".join([*variables, shlex.join(plan.argv)])]
    if plan.nsys is not None:
        lines += [
            shlex.join(
                export_argv(plan.nsys, export.report, export.sqlite, json=plan.request.wants_json)
            )
            for export in plan.exports
        ]
    return "\n".join(lines)


def _environment(request: Request, folder: Path, collector: str) -> dict[str, str]:
    told = {handshake.COLLECTOR: collector, handshake.RUN_FOLDER: str(folder)}
    if request.window:
        told[handshake.CAPTURE] = str(request.window)
        told[handshake.OPENER] = "cuda" if request.on == "cuda" else "nvtx"
    return told


def _report_names(request: Request) -> list[str]:
    if request.processes is None:
        return ["report"]
    return [f"rank{rank}" for rank in range(request.processes)]


def _under_torchrun(request: Request, argv: list[str]) -> list[str]:
    """`argv` once per rank.

    Raises:
        CaptureError: the command starts torchrun itself, or torchrun is nowhere to be found.
    """
    if request.processes is None:
        return argv
    first = Path(request.command[0]).name
    if first == "torchrun":
        msg = (
            "the command starts torchrun itself. Give nsysflow the script and --nproc, for a"
            " report per rank, or leave --nproc out, for one report of all of them"
        )
        raise CaptureError(msg)
    if first.startswith("python"):
        torchrun = [request.command[0], "-m", "torch.distributed.run"]
    else:
        found = find_torchrun()
        if found is None:
            msg = (
                "--nproc needs torchrun, which is not on PATH. Give the command as python and a"
                " script, or put torch's on PATH:\n  pip install torch"
            )
            raise CaptureError(msg)
        torchrun = [str(found)]
    ranks = f"--nproc-per-node={request.processes}"
    return [*torchrun, "--standalone", ranks, "--no-python", *argv]
