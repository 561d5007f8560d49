"""`nsysflow profile`: what is typed, as a `Request`; then run, analyse, print."""

import re
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from nsysflow.catalog import find
from nsysflow.cli_analyze import Look, look_of_settings
from nsysflow.errors import NsysflowError
from nsysflow.handshake import Window
from nsysflow.options import TABLES, flops_options
from nsysflow.settings import configured
from nsysflow.workload_options import check_workload_options

if TYPE_CHECKING:
    from nsysflow.errors import ChildFailed
    from nsysflow.profiling import Request

_PATH: Final = click.Path(path_type=Path, readable=False)

_LONGEST_NAME: Final = 40

_AFTER_DASHES: Final = "nsysflow.after_dashes"
"""Where the words after `--` are kept: click would mix them with those before it."""


_HINT: Final = "A command of your own goes after --: nsysflow profile -- python train.py"


class _ProfileCommand(click.Command):
    """A command that tells `WORKLOAD [-- its options]` from `-- COMMAND`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_AFTER_DASHES] = tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, args[:at])
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            raise click.UsageError(f"{error.message}. {_HINT}", ctx) from error


def _window(_ctx: click.Context, _param: click.Parameter, typed: str | None) -> Window | None:
    """`3:2:5` as a window."""
    if typed is None:
        return None
    try:
        return Window.parse(typed)
    except ValueError as error:
        msg = f"{typed!r} is not WAIT:WARMUP:ACTIVE, e.g. 3:2:5 to capture steps 6 to 10"
        raise click.BadParameter(msg) from error


@click.command(cls=configured(_ProfileCommand))
@click.argument("workload", required=False, metavar="[WORKLOAD] [-- ...]")
@click.option("-o", "--output", "folder", type=_PATH, metavar="DIR", help="The run's directory.")
@click.option("--force", is_flag=True, help="Replace an earlier run in DIR.")
@click.option("--variant", metavar="NAME", help="Which variant of the workload.")
@click.option("--precision", type=click.Choice(["float", "bf16"]), help="Of the workload.")
@click.option(
    "--on",
    type=click.Choice(["cuda", "cpu"]),
    default="cuda",
    show_default=True,
    help="cpu: a small smoke run, NVTX ranges only.",
)
@click.option(
    "--capture",
    "window",
    callback=_window,
    metavar="WAIT:WARMUP:ACTIVE",
    help="Capture these steps (workloads: 3:2:5; others: the whole run).",
)
@click.option(
    "--nproc",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start N ranks by torchrun (ddp: 2; others: one process without it).",
)
@click.option("--backtrace", is_flag=True, help="Record the Python line of each CUDA call.")
@click.option("--gpu-metrics", is_flag=True, help="Sample the GPU's counters.")
@click.option("--osrt", is_flag=True, help="Trace the OS runtime too (can be large).")
@click.option(
    "--graph-trace",
    type=click.Choice(["node", "graph"]),
    default="node",
    show_default=True,
    help="A CUDA graph's kernels, or the graph as one.",
)
@click.option("--trace", metavar="LIST", help="What nsys traces (default: cuda,nvtx).")
@click.option("--nsys", type=_PATH, metavar="PATH", help="The nsys to use.")
@click.option("--nsys-arg", "nsys_args", multiple=True, metavar="ARG", help="Passed to nsys.")
@click.option(
    "--collector",
    type=click.Choice(["nsys", "kineto"]),
    help="Who records (default: nsys; without one, torch.profiler).",
)
@flops_options
@click.option("--dry-run", is_flag=True, help="Print the commands, run nothing.")
@click.option("--no-analyze", is_flag=True, help="Stop after the export.")
@click.pass_context
def profile(ctx: click.Context, /, workload: str | None, **typed: Any) -> None:  # noqa: ANN401
    """Record a program under nsys and say what the GPU waited for.

    The program is a built-in WORKLOAD, with its own options after --, or any command after --.

    Writes the report, its export, a manifest and the tables to DIR, and prints the page. What the
    program prints goes to stderr and to DIR/output.log. Its exit code becomes this command's.
    `nsysflow list` shows the workloads, `nsysflow doctor` what this machine can do.

    \b
    Example:
        nsysflow profile nan_check --backtrace -o out
        nsysflow profile launch_bound --variant graph -- --kernels 200
        nsysflow profile -- python train.py --epochs 1
        nsysflow profile --capture 3:2:5 --nproc 2 -- python train.py
    """
    dry_run, no_analyze, force = (typed.pop(name) for name in ("dry_run", "no_analyze", "force"))
    after: tuple[str, ...] = ctx.meta[_AFTER_DASHES]
    request = _request(workload, after, **typed)
    if workload is not None:
        check_workload_options(find(workload), after, ctx)
    from nsysflow import profiling
    from nsysflow.gpu import gpus

    profiling.require_program(request)
    machine = gpus()
    if not dry_run:
        profiling.require_gpu(request, machine)
    plan, warnings = profiling.plan_of(request, machine)
    for warning in warnings:
        click.echo(f"note: {warning}", err=True)
    if dry_run:
        click.echo(profiling.shown(plan))
        return
    look = None if no_analyze else look_of_settings(ctx)  # before a long run
    if typed["folder"] is None:
        own = profiling.make_unused_folder(request.folder)
        plan, _ = profiling.plan_of(replace(request, folder=own), machine)
    folder = plan.request.folder
    manifest, failure = profiling.capture(plan, machine, force=force)
    made = ", ".join(("manifest.json", *manifest.reports))
    click.echo(f"wrote {folder}: {made}", err=True)
    if look is not None:
        _analyze(folder, look, failure)
    _end(failure)


def _end(failure: "ChildFailed | None") -> None:
    if failure is not None:
        click.echo(f"nsysflow: {failure}", err=True)
        sys.exit(failure.exit_code)


def _analyze(folder: Path, look: Look, failure: "ChildFailed | None") -> None:
    """The tables into the run's directory, the page to stdout. Where that fails the program's own
    failure comes after it, and says more."""
    try:
        _show(folder, look)
    except NsysflowError as error:
        again = f"The run is kept. To look at it again:\n  nsysflow analyze {quote(str(folder))}"
        click.echo(f"nsysflow: {error}\n{again}", err=True)
        if failure is None:
            sys.exit(error.exit_code)


def _show(folder: Path, look: Look) -> None:
    from nsysflow import flow, show
    from nsysflow.progress import progress

    with progress("analysing"):
        results = flow.analyze_reports([folder], look.options, tables=TABLES)
    with progress(f"writing {folder}"):
        flow.write_folder(results, folder, top=look.top, at_least_ns=look.at_least_ns)
    show.show_page(results, top=look.top, at_least_ns=look.at_least_ns)


def _request(
    workload: str | None,
    after: tuple[str, ...],
    *,
    folder: Path | None,
    variant: str | None,
    precision: str | None,
    on: Literal["cuda", "cpu"],
    window: Window | None,
    nproc: int | None,
    backtrace: bool,
    gpu_metrics: bool,
    osrt: bool,
    trace: str | None,
    **others: Any,  # noqa: ANN401
) -> "Request":
    """What was typed, as a `Request`.

    Raises:
        UnknownWorkload: there is no workload or variant of that name.
        click.UsageError: there is nothing to run, or options that only workloads have.
    """
    from nsysflow.profiling import WINDOW_DEFAULT, Request, command_of

    asked = {"--backtrace": backtrace, "--gpu-metrics": gpu_metrics}
    if on == "cpu" and any(asked.values()):
        left_out = ", ".join(option for option, wanted in asked.items() if wanted)
        click.echo(f"note: with --on cpu only ranges are recorded: not {left_out}", err=True)
    if workload is not None and workload.endswith(".py"):
        msg = f"{workload} is no built-in workload. {_HINT}"
        raise click.UsageError(msg)
    if workload is not None:
        name, command = command_of(workload, variant, precision, on, window, after)
        nproc = nproc or find(workload).ranks
        if on == "cuda":
            window = window or WINDOW_DEFAULT
    else:
        if not after:
            msg = "name a workload (nsysflow list), or a command after --"
            raise click.UsageError(msg)
        if variant or precision:
            msg = "--variant and --precision are for workloads; a command has its own options"
            raise click.UsageError(msg)
        name, command = _name_of(after), after
    return Request(
        command=command,
        name=name,
        workload=workload,
        on=on,
        folder=folder or Path(f"{name}-{datetime.now():%Y%m%d-%H%M%S}"),
        window=window,
        processes=nproc,
        trace=_traces(trace, osrt=osrt, on=on),
        backtrace=backtrace and on == "cuda",
        gpu_metrics=gpu_metrics and on == "cuda",
        **others,
    )


def _traces(typed: str | None, *, osrt: bool, on: str) -> tuple[str, ...]:
    """What nsys traces, each once; CUDA only where there is some."""
    words = [word.strip() for word in (typed or "cuda,nvtx").split(",")]
    wanted = [*filter(None, words), *(["osrt"] if osrt else [])]
    on_cpu = [name for name in wanted if name != "cuda"] or ["nvtx"]
    return tuple(dict.fromkeys(wanted if on == "cuda" else on_cpu))


def _name_of(command: tuple[str, ...]) -> str:
    """What to call a run of a command: the script's name, or the module's, or the program's."""
    words = [word for word in command[1:] if word.endswith(".py")]
    if "-m" in command[:-1]:
        words.append(command[command.index("-m") + 1].rpartition(".")[2])
    stem = Path((words or command)[0]).stem
    return re.sub(r"[^\w.-]+", "_", stem)[:_LONGEST_NAME] or "run"
