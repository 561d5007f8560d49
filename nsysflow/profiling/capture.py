"""A run, end to end: start the program, export what nsys wrote, write the manifest."""

import platform
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

import nsysflow
from nsysflow.base.errors import ChildFailed, NsysflowError, OutputError
from nsysflow.base.progress import progress
from nsysflow.gpu import Gpus
from nsysflow.nsys import export
from nsysflow.profiling.ending import Ending
from nsysflow.profiling.failure import export_failed, no_report_error, program_failed
from nsysflow.profiling.folder import make_run_folder, traces_in
from nsysflow.profiling.plan import Plan
from nsysflow.profiling.program import ProgramEnd, run_program
from nsysflow.runs.manifest import LOG, GitState, Manifest, write_manifest
from nsysflow.runs.statuses import take_annotation, take_statuses
from nsysflow.runtime.child_status import ChildStatus


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
    started = datetime.now(UTC)
    end = run_program(plan.argv, plan.environment, folder / LOG, _ending(plan))
    # nsys ends before we end the program: its code then comes from an earlier failure
    failed_itself = bool(end.exit_code) and not (end.stopped and plan.collector == "kineto")
    try:
        children = take_statuses(folder)
        annotation = take_annotation(folder) if plan.request.annotate else None
        not_exported = _export(plan)  # the manifest is written all the same: there is a report
        manifest = replace(_manifest(plan, gpus, started, end, children), annotation=annotation)
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
        raise no_report_error(plan, end, children, annotation)
    failed = program_failed(plan, end, manifest.reports) if failed_itself else None
    return manifest, failed


def _export(plan: Plan) -> NsysflowError | None:
    """Export what nsys wrote; returns why it could not be exported."""
    try:
        _export_all(plan)
    except NsysflowError as error:
        return error
    return None


def _export_all(plan: Plan) -> None:
    for made in plan.exports:
        if plan.nsys is not None and made.report.exists():
            with progress(f"exporting {made.report.name}"):
                export(plan.nsys, made.report, made.sqlite, json=plan.request.needs_json)


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
    found = {
        "nsysflow": nsysflow.__version__,
        "os": f"{platform.system()} {platform.release()}",
    }
    if plan.nsys is not None:
        found["nsys"] = plan.nsys.version_text
    if gpus.driver:
        found["driver"] = gpus.driver
    for child in children:
        found |= child.versions
    return found


def _ending(plan: Plan) -> Ending | None:
    """What ends the program; None if it ends by itself."""
    if not plan.request.ends_program:
        return None
    folder, reports = plan.request.folder.resolve(), [made.report for made in plan.exports]
    return Ending(folder, plan.collector, reports)


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
