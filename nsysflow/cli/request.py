"""What was typed after `nsysflow profile`, as a `Request`."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from nsysflow.base.endings import say
from nsysflow.catalog.catalog import Workload, find
from nsysflow.catalog.options import workload_options
from nsysflow.runtime.protocol import Window

if TYPE_CHECKING:
    from nsysflow.base.peaks import Unit
    from nsysflow.record.request import Request
    from nsysflow.runtime.protocol import Backtrace, Collector

YOUR_COMMAND: Final = "Your own command goes after --: nsysflow profile -- python train.py"

_LONGEST_NAME: Final = 40


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """What was typed after `nsysflow profile`, and how it is recorded.

    Attributes:
        workload: the built-in workload; None for a command.
        variant: of the workload.
        precision: in which the workload computes.
        nproc: how many ranks torchrun starts.
        trace: the APIs to trace, separated by commas.
        osrt: trace the operating system too.
        no_annotate: give a PyTorch program no steps and phases.
        memory: record what is allocated on the GPUs.
        shapes: record the shapes of operators and their memory.
        no_readings: read neither clocks, power, temperature and traffic nor waits for a CPU.
        dry_run: print the commands and run nothing.
        no_analyze: stop when the report is written.
        force: replace an earlier run.

    The others are those of `Request`.
    """

    workload: str | None
    variant: str | None
    precision: str | None
    on: Literal["cuda", "cpu"]
    nproc: int | None
    dry_run: bool
    backtrace: "Backtrace | None"
    sample_python: int | None
    gil: bool
    gpu_metrics: bool
    graph_trace: Literal["node", "graph"]
    trace: str
    osrt: bool
    no_annotate: bool
    memory: bool
    shapes: bool
    no_readings: bool
    window: Window | None
    record_all: bool
    plain_run: bool | None
    stop: bool
    delay_s: float | None
    duration_s: float | None
    collector: "Collector | None"
    nsys: Path | None
    nsys_args: tuple[str, ...]
    folder: Path | None
    force: bool
    no_analyze: bool
    flops_per_step: float | None
    flops_dtype: "Unit | None"
    own: tuple[str, ...]


def request_of(typed: ProfileOptions, after: tuple[str, ...]) -> "Request":
    """What was typed, as a `Request`.

    Args:
        typed: the options.
        after: the words after `--`.

    Raises:
        UnknownWorkload: there is no workload or variant of that name.
        click.UsageError: there is nothing to run, or an option is only for workloads.
    """
    from nsysflow.record.plan import WINDOW_DEFAULT
    from nsysflow.record.request import Request, workload_command

    _check_period(typed)
    on_gpu = typed.on == "cuda"
    if not on_gpu:
        _note_ignored(typed)
    window, nproc = typed.window, typed.nproc
    if typed.workload is not None:
        if typed.workload.endswith(".py"):
            msg = f"{typed.workload} is not a built-in workload. {YOUR_COMMAND}"
            raise click.UsageError(msg)
        name, command = workload_command(
            typed.workload, typed.variant, typed.precision, typed.on, window, after
        )
        nproc = nproc or find(typed.workload).ranks
        if on_gpu:
            window = window or WINDOW_DEFAULT
    else:
        _check_command(after, typed.variant, typed.precision)
        name, command = _name_of(after), after
    return Request(
        command=command,
        name=name,
        workload=typed.workload,
        on=typed.on,
        folder=typed.folder or Path(f"{name}-{datetime.now():%Y%m%d-%H%M%S}"),
        window=window,
        record_all=typed.record_all,
        plain_run=on_gpu and typed.workload is not None
        if typed.plain_run is None
        else typed.plain_run,
        stop=typed.stop,
        delay_s=typed.delay_s,
        duration_s=typed.duration_s,
        annotate=typed.workload is None and not typed.no_annotate,  # workloads have their own
        collector=typed.collector,
        trace=_traces(typed.trace, osrt=typed.osrt, gil=typed.gil, on=typed.on),
        graph_trace=typed.graph_trace,
        backtrace=typed.backtrace if on_gpu else "none",
        sample_python=typed.sample_python if on_gpu else 0,
        gpu_metrics=typed.gpu_metrics and on_gpu,
        memory=typed.memory and on_gpu,
        shapes=typed.shapes,
        readings=not typed.no_readings,
        processes=nproc,
        nsys=typed.nsys,
        nsys_args=typed.nsys_args,
        flops_per_step=typed.flops_per_step,
        flops_dtype=typed.flops_dtype,
        own=typed.own,
    )


def _note_ignored(typed: ProfileOptions) -> None:
    """Say which options `--on cpu` ignores."""
    asked = {
        "--backtrace": typed.backtrace not in (None, "none"),
        "--sample-python": typed.sample_python,
        "--gil": typed.gil,
        "--gpu-metrics": typed.gpu_metrics,
        "--memory": typed.memory,
    }
    ignored = ", ".join(name for name, wanted in asked.items() if wanted)
    if ignored:
        say(f"note: --on cpu records only ranges; it ignores {ignored}")


def check_workload_options(workload: Workload, typed: tuple[str, ...], ctx: click.Context) -> None:
    """Refuse options that the workload would not take. `-h` prints its options and exits.

    Args:
        workload: which one.
        typed: the words after `--`.
        ctx: the context of the command that will run it.

    Raises:
        click.UsageError: an option is unknown or has an invalid value.
    """
    command = click.Command(workload.name, params=workload_options(workload), help=workload.summary)
    try:
        command.make_context(f"{workload.name} --", [*typed], parent=ctx)
    except click.NoSuchOption as error:
        near = f"; did you mean {error.possibilities[0]}?" if error.possibilities else "."
        msg = (
            f"{workload.name} has no option {error.option_name}{near} See what it has:\n"
            f"  nsysflow profile {workload.name} -- -h"
        )
        raise click.UsageError(msg, ctx) from error
    except click.UsageError as error:
        msg = f"{workload.name}: {error.format_message()}"
        raise click.UsageError(msg, ctx) from error


def _check_command(command: tuple[str, ...], variant: str | None, precision: str | None) -> None:
    """Refuse what only a workload can do.

    Raises:
        click.UsageError: there is no command, or it has options of a workload.
    """
    if not command:
        msg = "give a workload (nsysflow list shows them), or a command after --"
        raise click.UsageError(msg)
    if variant or precision:
        msg = "--variant and --precision are for workloads, and this is a command"
        raise click.UsageError(msg)


def _check_period(typed: ProfileOptions) -> None:
    """Refuse what does not go together: a window of steps, and a time.

    Raises:
        click.UsageError: there are such options.
    """
    lengths = {"--delay": typed.delay_s, "--duration": typed.duration_s}
    timed = [f"{name} {length:g}" for name, length in lengths.items() if length is not None]
    if timed and typed.workload:
        msg = f"{' '.join(timed)} is for commands; a workload records steps: --capture 3:2:5"
    elif timed and typed.window:
        msg = f"--capture counts steps, and {' '.join(timed)} seconds. Give only one of them"
    elif typed.stop and typed.duration_s:
        msg = "--duration ends the program by itself: leave out --stop-after-capture"
    elif typed.stop and typed.record_all:
        msg = "--record-all records the program to its end: leave out --stop-after-capture"
    elif typed.record_all and (typed.window or typed.workload or timed):
        msg = (
            "--record-all records a command to its end; leave out --capture, --delay and"
            " --duration, or the workload"
        )
    else:
        return
    raise click.UsageError(msg)


def _traces(typed: str, *, osrt: bool, gil: bool, on: str) -> tuple[str, ...]:
    """What nsys traces, each once; without a GPU, CUDA and Python's lock are left out."""
    from nsysflow.nsys.program import GIL

    words = [word.strip() for word in typed.split(",")]
    asked = {"osrt": osrt, GIL: gil}
    wanted = [*filter(None, words), *(name for name, wanted in asked.items() if wanted)]
    on_cpu = [name for name in wanted if name not in ("cuda", GIL)] or ["nvtx"]
    return tuple(dict.fromkeys(wanted if on == "cuda" else on_cpu))


def _name_of(command: tuple[str, ...]) -> str:
    """The name of a command's run: that of its script, its module or its program."""
    words = [word for word in command[1:] if word.endswith(".py")]
    if "-m" in command[:-1]:
        words.append(command[command.index("-m") + 1].rpartition(".")[2])
    stem = Path((words or command)[0]).stem
    return re.sub(r"[^\w.-]+", "_", stem)[:_LONGEST_NAME] or "run"
