"""`nsysflow profile`: turn what is typed into a `Request`, run it, analyse it, print the page."""

import os
import re
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, get_args

import click

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.catalog import find
from nsysflow.cli.analyze import Look, look_of_settings
from nsysflow.cli.options import flops_options
from nsysflow.cli.settings import configured
from nsysflow.cli.workload import check_workload_options
from nsysflow.errors import NsysflowError
from nsysflow.runtime.collectors import Collector
from nsysflow.runtime.protocol import Window

if TYPE_CHECKING:
    from nsysflow.profiling.request import Request

_PATH: Final = click.Path(path_type=Path, readable=False)

_LONGEST_NAME: Final = 40

_AFTER_DASHES: Final = "nsysflow.after_dashes"
"""Where the words after `--` are kept: click would mix them with those before it."""

_INTERRUPTED: Final = 130
_READER_LEFT: Final = 141
"""What shells give a command that ended because of Ctrl-C, or because `| head` has read enough."""

_HINT: Final = "Your own command goes after --: nsysflow profile -- python train.py"


class _ProfileCommand(click.Command):
    """A command that takes `WORKLOAD [-- its options]` or `-- COMMAND`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_AFTER_DASHES] = tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, args[:at])
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            raise click.UsageError(f"{error.message}. {_HINT}", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("nsysflow: interrupted", err=True)
            sys.exit(_INTERRUPTED)
        except BrokenPipeError:
            _discard(sys.stdout)
            sys.exit(_READER_LEFT)


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
@click.option("-o", "--output", "folder", type=_PATH, metavar="DIR", help="Folder for the run.")
@click.option("--force", is_flag=True, help="Replace an earlier run in DIR.")
@click.option("--variant", metavar="NAME", help="Run this variant of the workload.")
@click.option(
    "--precision", type=click.Choice(["float", "bf16"]), help="Arithmetic of the workload."
)
@click.option(
    "--on",
    type=click.Choice(["cuda", "cpu"]),
    default="cuda",
    show_default=True,
    help="cpu: a small test run without a GPU; records NVTX ranges only.",
)
@click.option(
    "--capture",
    "window",
    callback=_window,
    metavar="WAIT:WARMUP:ACTIVE",
    help="Record only these steps (default: 3:2:5 for workloads, else the whole run).",
)
@click.option(
    "--nproc",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start N ranks with torchrun (default: 2 for ddp, else one process).",
)
@click.option("--backtrace", is_flag=True, help="Record the Python line of each CUDA call.")
@click.option("--gpu-metrics", is_flag=True, help="Sample the GPU's counters.")
@click.option("--osrt", is_flag=True, help="Trace OS calls too (the report can get large).")
@click.option(
    "--graph-trace",
    type=click.Choice(["node", "graph"]),
    default="node",
    show_default=True,
    help="Record each kernel of a CUDA graph, or the graph as one.",
)
@click.option("--trace", metavar="LIST", help="APIs that nsys traces (default: cuda,nvtx).")
@click.option("--nsys", type=_PATH, metavar="PATH", help="Use this nsys.")
@click.option("--nsys-arg", "nsys_args", multiple=True, metavar="ARG", help="Pass ARG to nsys.")
@click.option(
    "--collector",
    type=click.Choice(get_args(Collector)),
    help="Record with nsys or torch.profiler (default: nsys if there is one).",
)
@flops_options
@click.option("--dry-run", is_flag=True, help="Print the commands without running them.")
@click.option("--no-analyze", is_flag=True, help="Only record and export.")
@click.pass_context
def profile(ctx: click.Context, /, workload: str | None, **typed: Any) -> None:  # noqa: ANN401
    """Record a program under nsys and say what the GPU waited for.

    The program is a built-in WORKLOAD (its own options go after --), or any command after --.

    The report, its export, a manifest and the tables go to DIR, the page to stdout. What the
    program prints goes to stderr and to DIR/output.log; its exit code becomes this command's.
    `nsysflow list` shows the workloads, `nsysflow doctor` what works on this machine.

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
    from nsysflow.gpu import gpus
    from nsysflow.profiling.capture import capture
    from nsysflow.profiling.folder import make_unused_folder
    from nsysflow.profiling.plan import make_plan, shell_commands
    from nsysflow.profiling.preflight import choose_nsys, require_gpu, require_program

    require_program(request)
    machine = gpus()
    if not dry_run:
        require_gpu(request, machine)
    nsys, warnings = choose_nsys(request, machine, dry_run=dry_run)
    plan = make_plan(request, nsys)
    for warning in warnings:
        click.echo(f"note: {warning}", err=True)
    if dry_run:
        click.echo(shell_commands(plan))
        return
    look = None if no_analyze else look_of_settings(ctx)  # a mistake in it shows before a long run
    if typed["folder"] is None:
        plan = make_plan(replace(request, folder=make_unused_folder(request.folder)), nsys)
    folder = plan.request.folder
    manifest, failure = capture(plan, machine, force=force)
    made = ", ".join(("manifest.json", *manifest.reports))
    _say(f"wrote {folder}: {made}")
    code = _analyze(folder, look) if look is not None else 0
    if failure is not None:
        _say(f"nsysflow: {failure}")
        code = failure.exit_code
    sys.exit(code)


def _analyze(folder: Path, look: Look) -> int:
    """Write the tables to the run's folder and the page to stdout; returns the exit code. If the
    analysis fails, or is interrupted, the run is kept."""
    again = f"The run is kept. Analyse it again:\n  nsysflow analyze {quote(str(folder))}"
    try:
        _show(folder, look)
    except NsysflowError as error:
        _say(f"nsysflow: {error}\n{again}")
        return error.exit_code
    except KeyboardInterrupt:
        _say(f"nsysflow: interrupted. {again}")
        return _INTERRUPTED
    return 0


def _show(folder: Path, look: Look) -> None:
    from nsysflow.cli.output import show_page
    from nsysflow.progress import progress
    from nsysflow.runs.analyze import analyze_reports
    from nsysflow.runs.files import write_folder

    with progress("analysing"):
        results = analyze_reports([folder], look.options, tables=tuple(TABLES))
    with progress(f"writing {folder}"):
        write_folder(results, folder, top=look.top, at_least_ns=look.at_least_ns)
    try:
        show_page(results, top=look.top, at_least_ns=look.at_least_ns)
    except (BrokenPipeError, SystemExit):  # `| head` has read enough; rich then exits by itself
        _discard(sys.stdout)


def _say(text: str) -> None:
    """Print to stderr. If its reader has left, as with `2>&1 | head`, the rest is still done."""
    try:
        click.echo(text, err=True)
    except BrokenPipeError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Drop what is still buffered, whose reader has left: Python would fail to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
        click.UsageError: there is nothing to run, or an option is only for workloads.
    """
    from nsysflow.profiling.plan import WINDOW_DEFAULT
    from nsysflow.profiling.request import Request
    from nsysflow.profiling.workload import workload_command

    asked = {"--backtrace": backtrace, "--gpu-metrics": gpu_metrics}
    if on == "cpu" and any(asked.values()):
        left_out = ", ".join(option for option, wanted in asked.items() if wanted)
        click.echo(f"note: --on cpu records only ranges; it ignores {left_out}", err=True)
    if workload is not None and workload.endswith(".py"):
        msg = f"{workload} is not a built-in workload. {_HINT}"
        raise click.UsageError(msg)
    if workload is not None:
        name, command = workload_command(workload, variant, precision, on, window, after)
        nproc = nproc or find(workload).ranks
        if on == "cuda":
            window = window or WINDOW_DEFAULT
    else:
        if not after:
            msg = "give a workload (nsysflow list shows them), or a command after --"
            raise click.UsageError(msg)
        if variant or precision:
            msg = "--variant and --precision are for workloads, and this is a command"
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
    """The APIs that nsys traces, each once; without a GPU, CUDA is left out."""
    words = [word.strip() for word in (typed or "cuda,nvtx").split(",")]
    wanted = [*filter(None, words), *(["osrt"] if osrt else [])]
    on_cpu = [name for name in wanted if name != "cuda"] or ["nvtx"]
    return tuple(dict.fromkeys(wanted if on == "cuda" else on_cpu))


def _name_of(command: tuple[str, ...]) -> str:
    """The name of a command's run: that of its script, its module or its program."""
    words = [word for word in command[1:] if word.endswith(".py")]
    if "-m" in command[:-1]:
        words.append(command[command.index("-m") + 1].rpartition(".")[2])
    stem = Path((words or command)[0]).stem
    return re.sub(r"[^\w.-]+", "_", stem)[:_LONGEST_NAME] or "run"
