"""`nsysflow profile`: run a program under a profiler, analyse the report, print the page."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from nsysflow.analysis.tables.index import ABOUT
from nsysflow.base.endings import discard, message, say
from nsysflow.base.errors import NsysflowError
from nsysflow.catalog.catalog import find
from nsysflow.catalog.options import window
from nsysflow.cli import completion
from nsysflow.cli.analyze import options_of_settings
from nsysflow.cli.analyze_options import AnalyzeOptions, analyze_with_options
from nsysflow.cli.options import Command, flops_options, from_params, option, own_option
from nsysflow.cli.request import YOUR_COMMAND, ProfileOptions, check_workload_options, request_of
from nsysflow.cli.settings import configured
from nsysflow.runtime.protocol import Backtrace, Collector

if TYPE_CHECKING:
    from nsysflow.report.results import Results
    from nsysflow.runs.manifest import Manifest

_PATH: Final = click.Path(path_type=Path, readable=False)

_SECONDS: Final = click.FloatRange(min=0, min_open=True)

_AFTER_DASHES: Final = "nsysflow.after_dashes"
"""Where the words after `--` are kept: click would mix them with those before it."""

_MOST_HZ: Final = 2_000
"""nsys 2023.4 and 2025.3 sample Python no more often."""

_RUN: Final = "What to run"
_RECORD: Final = "What to record"
_WHEN: Final = "When to record"
_COLLECTOR: Final = "Who records it"
_WRITE: Final = "What to write"


class _ProfileCommand(Command):
    """A command that takes `WORKLOAD [-- its options]` or `-- COMMAND`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_AFTER_DASHES] = tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, args[:at])
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            raise click.UsageError(f"{error.message}. {YOUR_COMMAND}", ctx) from error


@click.command(cls=configured(_ProfileCommand))
@click.argument(
    "workload",
    required=False,
    metavar="[WORKLOAD] [-- ...]",
    shell_complete=completion.workloads,
)
@option(
    "--variant",
    section=_RUN,
    metavar="NAME",
    shell_complete=completion.variants,
    show_default="each workload has its own",
    help="Run this variant of the workload.",
)
@option(
    "--precision",
    section=_RUN,
    type=click.Choice(["float", "bf16"]),
    show_default="bf16",
    help="Let the workload compute in this precision.",
)
@option(
    "--on",
    section=_RUN,
    type=click.Choice(["cuda", "cpu"]),
    default="cuda",
    help="Run on a GPU, or with cpu try it without one: only NVTX ranges are recorded then.",
)
@option(
    "--nproc",
    section=_RUN,
    type=click.IntRange(min=1),
    metavar="N",
    show_default="2 for the workload ddp, else no torchrun",
    help="Start N ranks with torchrun.",
)
@option(
    "--plain-run/--no-plain-run",
    section=_RUN,
    default=None,
    show_default="only for workloads on a GPU",
    help="First run the program without the profiler, and end it after 30 timed steps. The page"
    " then shows how long a plain step takes. Off for your own programs, which would write files"
    " and logs twice.",
)
@option("--dry-run", section=_RUN, is_flag=True, help="Print the commands and run nothing.")
@option(
    "--backtrace",
    section=_RECORD,
    is_flag=False,
    flag_value="all",
    type=click.Choice(get_args(Backtrace)),
    show_default="waits where this nsys can",
    help="Record the Python lines of CUDA calls: of those that block the host, of all (each gets"
    " slower), or of none. Without a value: all.",
)
@option(
    "--sample-python",
    section=_RECORD,
    type=click.IntRange(0, _MOST_HZ),
    metavar="HZ",
    show_default="1000 where this nsys can",
    help="Sample what Python runs, HZ times a second in each thread; 0 for never.",
)
@option(
    "--gil",
    section=_RECORD,
    is_flag=True,
    help="Trace who holds Python's lock (GIL) and who waits for it, for programs with several"
    " threads of Python. Each time that a thread takes the lock gets slower.",
)
@option("--gpu-metrics", section=_RECORD, is_flag=True, help="Sample the GPU's counters.")
@option(
    "--memory",
    section=_RECORD,
    is_flag=True,
    help="Record what PyTorch's allocator and CUDA allocate on the GPUs, with the lines that ask"
    " for it. Each allocation gets slower.",
)
@option(
    "--shapes",
    section=_RECORD,
    is_flag=True,
    help="With torch.profiler: record the shapes of operators and the memory that PyTorch"
    " allocates, for the tables operators and memory.",
)
@option(
    "--no-readings",
    section=_RECORD,
    is_flag=True,
    help="Do not read clocks, power, temperature and traffic of the GPUs, nor how long the"
    " launching thread waits for a CPU.",
)
@option(
    "--graph-trace",
    section=_RECORD,
    type=click.Choice(["node", "graph"]),
    default="node",
    help="Record each kernel of a CUDA graph, or each graph as one operation.",
)
@option(
    "--trace",
    section=_RECORD,
    default="cuda,nvtx",
    metavar="LIST",
    help="Trace these APIs.",
)
@option(
    "--osrt",
    section=_RECORD,
    is_flag=True,
    help="Trace calls to the operating system too: the report can get large, and nsysflow does not"
    " read them.",
)
@option(
    "--no-annotate",
    section=_RECORD,
    is_flag=True,
    help="Do not give a PyTorch program steps and phases.",
)
@option(
    "--capture",
    "window",
    section=_WHEN,
    callback=window,
    metavar="WAIT:WARMUP:ACTIVE",
    show_default="3:2:5 for workloads and torch.profiler, else until there are enough steps",
    help="Record the ACTIVE steps that follow WAIT + WARMUP others: those of nsysflow.steps, else"
    " those found in a PyTorch program.",
)
@option(
    "--record-all",
    section=_WHEN,
    is_flag=True,
    help="Record a command to its end. Without it, recording ends after at least 30 steps and 2 s,"
    " at most 60 s, and the program goes on.",
)
@option(
    "--stop-after-capture",
    "stop",
    section=_WHEN,
    is_flag=True,
    help="End the program once enough, or the window of --capture, is recorded: send SIGTERM, and"
    " wait for its end.",
)
@option(
    "--delay",
    "delay_s",
    section=_WHEN,
    type=_SECONDS,
    metavar="S",
    help="Record nothing in the first S seconds.",
)
@option(
    "--duration",
    "duration_s",
    section=_WHEN,
    type=_SECONDS,
    metavar="S",
    help="Record S seconds, then end the program too. For programs without steps.",
)
@option(
    "--collector",
    section=_COLLECTOR,
    type=click.Choice(get_args(Collector)),
    show_default="nsys if there is one",
    help="Record with nsys, or with torch.profiler (kineto).",
)
@option(
    "--nsys",
    section=_COLLECTOR,
    type=_PATH,
    metavar="PATH",
    show_default="the first that nsysflow doctor finds",
    help="Use this nsys.",
)
@option(
    "--nsys-arg",
    "nsys_args",
    section=_COLLECTOR,
    multiple=True,
    metavar="ARG",
    help="Pass ARG to nsys. Can be repeated.",
)
@option(
    "-o",
    "--output",
    "folder",
    section=_WRITE,
    type=_PATH,
    metavar="DIR",
    show_default="NAME-DATE-TIME",
    help="Write the run to this folder.",
)
@option("--force", section=_WRITE, is_flag=True, help="Replace an earlier run in DIR.")
@option("--no-analyze", section=_WRITE, is_flag=True, help="Stop when the report is written.")
@flops_options
@own_option
@click.pass_context
def profile(ctx: click.Context, /, **params: Any) -> None:
    """Record a program and show what the GPU waited for.

    The program is a built-in WORKLOAD (its own options go after --), or any command after --.

    A PyTorch program needs no preparation: its steps, and the phases data, forward, backward and
    optimizer, are recorded in each of its Python processes.

    The report, its export, a manifest and the tables go to DIR, the page to stdout. What the
    program prints goes to stderr and to DIR/output.log; its exit code becomes this command's.
    `nsysflow list` shows the workloads, `nsysflow doctor` what works on this machine.

    \b
    Example:
        nsysflow profile -- python train.py --epochs 1
        nsysflow profile --capture 3:2:5 --stop-after-capture -- python train.py
        nsysflow profile --capture 3:2:5 --nproc 2 -- python train.py
        nsysflow profile --delay 60 --duration 5 -- python serve.py
        nsysflow profile nan_check --backtrace all -o out
        nsysflow profile launch_bound --variant graph -- --kernels 200
    """
    typed = from_params(ProfileOptions, params)
    after: tuple[str, ...] = ctx.meta[_AFTER_DASHES]
    request = request_of(typed, after)
    if typed.workload is not None:
        check_workload_options(find(typed.workload), after, ctx)
    from nsysflow.record.capture import capture, make_unused_folder
    from nsysflow.record.machine import gpus
    from nsysflow.record.plan import make_plan, shell_commands, without_ranges_of_xla
    from nsysflow.record.request import (
        choose_nsys,
        require_gil,
        require_gpu,
        require_program,
        with_sampling,
    )

    require_program(request)
    machine = gpus()
    if not typed.dry_run:
        require_gpu(request, machine)
    nsys, warnings = choose_nsys(request, machine, dry_run=typed.dry_run)
    require_gil(request, nsys)
    request, unsampled = with_sampling(request, nsys)
    request, without_ranges = without_ranges_of_xla(request, nsys)
    plan = make_plan(request, nsys)
    for warning in (*warnings, *unsampled, *without_ranges):
        say(f"note: {warning}")
    if typed.dry_run:
        click.echo(shell_commands(plan))
        return
    look = None if typed.no_analyze else options_of_settings(ctx)
    if look is not None:
        look.options()  # a mistake in them shows before a long run
    if typed.folder is None:
        plan = make_plan(replace(request, folder=make_unused_folder(request.folder)), nsys)
    folder = plan.request.folder
    manifest, failure = capture(plan, machine, force=typed.force)
    say(f"wrote {folder}: {', '.join(('manifest.json', *manifest.reports))}")
    try:
        if look is not None:
            _show(folder, look, manifest)
    except NsysflowError as error:
        if failure is None:
            raise
        say(message(error))
    if failure is not None:
        raise failure


def _show(folder: Path, look: AnalyzeOptions, manifest: "Manifest") -> None:
    """Write the tables to the run's folder and the page to stdout, and keep what recording cost."""
    from nsysflow.cli.answers import ReportAnswers, likely_answers
    from nsysflow.cli.output import page_printout

    answers = ReportAnswers([folder], look)
    with _kept(folder):
        results = analyze_with_options([folder], look, tables=tuple(ABOUT), folder=folder)
    answers.keep(lambda: likely_answers(results, look))
    keep_cost_of(manifest, results)
    page = page_printout(results, full=False, top=look.top, at_least_ns=look.at_least_ns)
    try:
        page.show()
    except BrokenPipeError:  # the run is recorded: the exit code stays the program's
        discard(sys.stdout)


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Add to an error of the analysis that the run is kept."""
    try:
        yield
    except (NsysflowError, KeyboardInterrupt) as error:
        again = f"nsysflow analyze {quote(str(folder))}"
        error.add_note(f"The run is kept. Analyse it again:\n  {again}")
        raise


def keep_cost_of(manifest: "Manifest", results: "Results") -> None:
    """Keep what the recording of a run took, where a step was timed without it and shows that."""
    from nsysflow.analysis.findings.judged_report import JudgedReport
    from nsysflow.analysis.findings.saving import Replays
    from nsysflow.runs.costs import keep_cost

    if manifest.plain_step_ns is None and manifest.later_step_ns is None:
        return
    slowest = results.found.report
    (analysis,) = (each for each in results.analyses if each.trace.report == slowest)
    pct = Replays(JudgedReport(analysis)).recorded_pct
    if pct is not None:
        keep_cost(manifest, pct)
