"""A run, end to end: who records it, the program, the exports, the manifest."""

import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import nsysflow
from nsysflow.catalog import workloads
from nsysflow.errors import CaptureError, ChildFailed, NsysflowError, NsysMissing, OutputError
from nsysflow.gpu import Gpus
from nsysflow.handshake import Told, take_told
from nsysflow.manifest import Manifest, write_manifest
from nsysflow.nsys import Nsys, export, find, importer_problem, too_old_for
from nsysflow.profiling.folder import LOG, make_run_folder, traces_in
from nsysflow.profiling.outcome import child_failed, export_failed, why_no_report
from nsysflow.profiling.plan import Plan, plan_kineto, plan_nsys
from nsysflow.profiling.request import Request
from nsysflow.profiling.run import Ended, run
from nsysflow.progress import progress

_LOST: Final = (
    "no nsys was found, so torch.profiler records this run: only a window of nsysflow.steps, and"
    " without source lines and GPU metrics (nsysflow doctor says how to get nsys)"
)


def require_program(request: Request) -> None:
    """Refuse a command that cannot be started.

    Raises:
        CaptureError: there is no such program.
    """
    first = request.command[0]
    if shutil.which(first) is not None:
        return
    if first in (workload.name for workload in workloads()):
        msg = f"{first} is a built-in workload, which goes before --:\n  nsysflow profile {first}"
    elif Path(first).is_file():
        msg = (
            f"{first} is not a program that can be started. If Python runs it:\n  -- python {first}"
        )
    else:
        msg = (
            f"there is no program {first!r} to profile: not in this folder and not on PATH. What"
            " follows -- is the command as one types it:\n  nsysflow profile -- python train.py"
        )
    raise CaptureError(msg)


def plan_of(request: Request, gpus: Gpus) -> tuple[Plan, tuple[str, ...]]:
    """What will be run on this machine, and what to say before it is.

    Raises:
        CaptureError: it cannot be recorded here.
    """
    if request.collector == "kineto":
        return plan_kineto(request), ()
    try:
        nsys = find(request.nsys)
    except NsysMissing:
        marks = request.workload or request.window  # a step that torch.profiler can begin at
        possible = marks if request.on == "cpu" else not gpus.problem
        if request.collector == "nsys" or not possible:
            raise
        return plan_kineto(request), (_LOST,)
    problem = importer_problem(nsys)
    if problem is not None:
        msg = (
            f"{nsys.path} (nsys {nsys.version_text}) would record and then write no report:"
            f" {problem}. What to install:\n  nsysflow doctor"
        )
        raise CaptureError(msg)
    return plan_nsys(request, nsys), _warnings(nsys, gpus)


def _warnings(nsys: Nsys, gpus: Gpus) -> tuple[str, ...]:
    if not too_old_for(nsys, gpus.cuda) or nsys.cupti is None or gpus.cuda is None:
        return ()
    knows, has = (".".join(map(str, version)) for version in (nsys.cupti, gpus.cuda))
    return (
        f"nsys {nsys.version_text} knows CUDA up to {knows} and this driver is CUDA {has}: it may"
        " record no kernels, without a word. Take a newer nsys (nsysflow doctor)",
    )


def require_gpu(request: Request, gpus: Gpus) -> None:
    """Refuse a run on a GPU where there is none, and ranks of a workload without a GPU each.

    Raises:
        CaptureError: there are too few.
    """
    if request.on == "cpu":
        return
    ranks = request.processes or 1
    if request.workload and not gpus.problem and ranks > len(gpus.names):
        msg = (
            f"--nproc {ranks} needs {ranks} GPUs, one per rank, and there are {len(gpus.names)}"
            f" here ({', '.join(gpus.names)}). Start fewer:\n  --nproc {len(gpus.names)}"
        )
        raise CaptureError(msg)
    if not gpus.problem:
        return
    instead = (
        f"nsysflow profile {request.workload} --on cpu"
        if request.workload
        else "nsysflow profile --on cpu -- COMMAND"
    )
    msg = (
        f"no NVIDIA GPU can be used here: {gpus.problem}. Profile where one is, or try the chain"
        f" without (NVTX ranges only):\n  {instead}\n"
        "What this machine can do, and what to install:\n  nsysflow doctor"
    )
    raise CaptureError(msg)


def capture(plan: Plan, gpus: Gpus, *, force: bool) -> tuple[Manifest, ChildFailed | None]:
    """Run a plan: its reports, exported, and manifest.json are in the run's directory afterwards.

    Returns:
        The manifest, and the program's failure if it failed but left something to analyse.

    Raises:
        OutputError: the directory cannot be used.
        CaptureError: nothing was captured, or it cannot be exported.
    """
    folder = plan.request.folder
    make_run_folder(folder, force=force)
    started = datetime.now(UTC)
    ended = run(plan.argv, plan.environment, folder / LOG)
    try:
        told = take_told(folder)
        broken = _export(plan)  # a report that cannot be exported is one all the same
        manifest = _manifest(plan, gpus, started, ended, told)
        write_manifest(folder, manifest)
    except OSError as error:
        msg = f"{folder} cannot be written: {error.strerror}. Make room, or see:\n  ls -l {folder}"
        raise OutputError(msg) from error
    if broken is not None:
        raise broken if not ended.exit_code else export_failed(plan, ended, broken)
    if not manifest.reports:
        raise why_no_report(plan, ended, told)
    failed = child_failed(plan, ended, manifest.reports) if ended.exit_code else None
    return manifest, failed


def _export(plan: Plan) -> NsysflowError | None:
    """Export what nsys wrote; why it could not be, if so."""
    try:
        _export_all(plan)
    except NsysflowError as error:
        return error
    return None


def _export_all(plan: Plan) -> None:
    for made in plan.exports:
        if plan.nsys is not None and made.report.exists():
            with progress(f"exporting {made.report.name}"):
                export(plan.nsys, made.report, made.sqlite, json=plan.request.wants_json)


def _manifest(
    plan: Plan, gpus: Gpus, started: datetime, ended: Ended, told: Sequence[Told]
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
        processes=request.processes,
        trace=request.trace,
        backtrace=request.backtrace,
        gpu_metrics=request.gpu_metrics,
        flops_per_step=request.flops_per_step,
        flops_dtype=request.flops_dtype,
        git=_git_state(Path.cwd()),
        versions=_versions(plan, gpus, told),
        gpus=gpus.names,
        started=started.isoformat(timespec="seconds"),
        wall_ns=ended.wall_ns,
        exit_code=ended.exit_code,
        interrupted=ended.interrupted,
        reports=tuple(report.name for report in _reports(plan)),
        told=tuple(told),
    )


def _reports(plan: Plan) -> list[Path]:
    """What the run left to analyse, by rank: under torch.profiler whatever its processes wrote,
    whoever started them."""
    if plan.collector == "kineto":
        return traces_in(plan.request.folder)
    return [report for report in plan.reports if report.exists()]


def _versions(plan: Plan, gpus: Gpus, told: Sequence[Told]) -> dict[str, str]:
    """Versions by name: the machine's, and what the program said that it had loaded."""
    found = {
        "nsysflow": nsysflow.__version__,
        "os": f"{platform.system()} {platform.release()}",
    }
    if plan.nsys is not None:
        found["nsys"] = plan.nsys.version_text
    if gpus.driver:
        found["driver"] = gpus.driver
    for process in told:
        found |= process.versions
    return found


def _git_state(folder: Path) -> Mapping[str, Any] | None:
    """The commit that is checked out, and whether files differ from it; None outside git."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):  # no git, no repository, or no commit yet
        return None
    return {"commit": commit, "changed": bool(changed)}


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
