"""What was typed after `nsysflow profile`, as a `Request`."""

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from nsysflow.base.endings import say
from nsysflow.catalog.catalog import Workload, find
from nsysflow.catalog.options import workload_options
from nsysflow.runtime.protocol import Window

if TYPE_CHECKING:
    from nsysflow.nsys.argv import Backtrace
    from nsysflow.record.request import Request

YOUR_COMMAND: Final = "Your own command goes after --: nsysflow profile -- python train.py"

_LONGEST_NAME: Final = 40


def request_of(
    workload: str | None,
    after: tuple[str, ...],
    *,
    folder: Path | None,
    variant: str | None,
    precision: str | None,
    on: Literal["cuda", "cpu"],
    window: Window | None,
    nproc: int | None,
    backtrace: "Backtrace | None",
    sample_python: int | None,
    gpu_metrics: bool,
    osrt: bool,
    trace: str,
    no_annotate: bool,
    **others: Any,
) -> "Request":
    """What was typed, as a `Request`.

    Raises:
        UnknownWorkload: there is no workload or variant of that name.
        click.UsageError: there is nothing to run, or an option is only for workloads.
    """
    from nsysflow.record.plan import WINDOW_DEFAULT
    from nsysflow.record.request import Request, workload_command

    _check_period(workload, window, **others)
    lines = backtrace not in (None, "none")
    asked = {
        "--backtrace": lines,
        "--sample-python": sample_python,
        "--gpu-metrics": gpu_metrics,
    }
    if on == "cpu" and any(asked.values()):
        left_out = ", ".join(name for name, wanted in asked.items() if wanted)
        say(f"note: --on cpu records only ranges; it ignores {left_out}")
    if workload is not None:
        if workload.endswith(".py"):
            msg = f"{workload} is not a built-in workload. {YOUR_COMMAND}"
            raise click.UsageError(msg)
        name, command = workload_command(workload, variant, precision, on, window, after)
        nproc = nproc or find(workload).ranks
        if on == "cuda":
            window = window or WINDOW_DEFAULT
    else:
        _check_command(after, variant, precision)
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
        backtrace=backtrace if on == "cuda" else "none",
        sample_python=sample_python if on == "cuda" else 0,
        gpu_metrics=gpu_metrics and on == "cuda",
        annotate=workload is None and not no_annotate,  # workloads have ranges of their own
        **others,
    )


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


def _check_period(
    workload: str | None,
    window: Window | None,
    *,
    stop: bool,
    delay_s: float | None,
    duration_s: float | None,
    **_others: object,
) -> None:
    """Refuse what does not go together: a window of steps, and a time.

    Raises:
        click.UsageError: there are such options.
    """
    typed = {"--delay": delay_s, "--duration": duration_s}
    timed = [f"{name} {length:g}" for name, length in typed.items() if length is not None]
    if timed and workload:
        msg = f"{' '.join(timed)} is for commands; a workload records steps: --capture 3:2:5"
    elif timed and window:
        msg = f"--capture counts steps, and {' '.join(timed)} seconds. Give only one of them"
    elif stop and duration_s:
        msg = "--duration ends the program by itself: leave out --stop-after-capture"
    elif stop and not (window or workload):
        msg = "--stop-after-capture needs a window of steps: add --capture 3:2:5"
    else:
        return
    raise click.UsageError(msg)


def _traces(typed: str, *, osrt: bool, on: str) -> tuple[str, ...]:
    """The APIs that nsys traces, each once; without a GPU, CUDA is left out."""
    words = [word.strip() for word in typed.split(",")]
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
