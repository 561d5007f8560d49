"""`nsysflow whatif`: a report and changes in; step, window and idle time before and after out."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from nsysflow.base.errors import SelectionError
from nsysflow.base.progress import progress
from nsysflow.cli import completion
from nsysflow.cli.options import Command, option, own_option, step_options

if TYPE_CHECKING:
    from nsysflow.analysis.options import StepPart
    from nsysflow.analysis.replay.changes import CallKey, Removal

_PATH: Final = click.Path(path_type=Path, readable=False)  # the loader says it better: exit code 1
_CALL: Final = ("process", "thread", "start_ns")
_CHANGE: Final = "What to change"


def _removals(
    _ctx: click.Context, _param: click.Parameter, typed: tuple[str, ...]
) -> "tuple[Removal, ...]":
    """`sync@train.py:42` as what to remove, and where."""
    from nsysflow.analysis.replay.changes import Removal

    try:
        return tuple(map(Removal.parse, typed))
    except SelectionError as error:
        raise click.BadParameter(str(error)) from error


def _factors(
    _ctx: click.Context, _param: click.Parameter, typed: tuple[str, ...]
) -> tuple[tuple[str, float], ...]:
    """`NAME=0.5` as name and factor; a name may hold `=` itself."""
    return tuple(_factor(text) for text in typed)


def _factor(typed: str) -> tuple[str, float]:
    from nsysflow.analysis.replay.changes import is_factor

    name, _, factor = typed.rpartition("=")
    try:
        value = float(factor)
    except ValueError:
        value = -1.0
    if not name or not is_factor(value):
        msg = f"{typed!r} is not NAME=FACTOR, e.g. NAME=0.5 for half of the time"
        raise click.BadParameter(msg)
    return name, value


def _calls(
    _ctx: click.Context, _param: click.Parameter, file: Path | None
) -> "tuple[CallKey, ...]":
    """The calls that a CSV file names."""
    if file is None:
        return ()
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            missing = [name for name in _CALL if name not in (rows.fieldnames or ())]
            if missing:
                needed = ", ".join(_CALL)
                msg = f"{file} has no column {missing[0]}; it needs {needed}, as syncs.csv has"
                raise click.BadParameter(msg)
            return tuple(_call(row, file, rows.line_num) for row in rows)
    except (UnicodeDecodeError, csv.Error) as error:
        msg = f"{file} is not a CSV file: {error}"
        raise click.BadParameter(msg) from error


def _call(row: dict[str, str], file: Path, line: int) -> "CallKey":
    from nsysflow.analysis.replay.changes import CallKey

    msg = f"line {line} of {file} does not hold three whole numbers of 64 bits"
    try:
        process, thread, start_ns = (int(row[name]) for name in _CALL)
    except (TypeError, ValueError) as error:
        raise click.BadParameter(msg) from error
    if max(map(abs, (process, thread, start_ns))) >= 1 << 63:
        raise click.BadParameter(msg)
    return CallKey(process, thread, start_ns)


@click.command(cls=Command)
@click.argument("report", type=_PATH)
@option(
    "--remove",
    "removed",
    section=_CHANGE,
    multiple=True,
    callback=_removals,
    metavar="KIND[@PLACE]",
    help="Remove the waits of a KIND (sync, alloc, copy or all), everywhere or at a source line or"
    " in a phase (PHASE/. leaves out the phases inside it). The kind loop removes reads together"
    " with the loop that they stand in. The kind retry removes allocations that fail and what"
    " follows until they succeed; churn removes all other allocations.",
)
@option(
    "--remove-calls",
    "removed_calls",
    section=_CHANGE,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    callback=_calls,
    metavar="FILE",
    help="Remove these calls: a CSV with process, thread and start_ns, as syncs.csv has them.",
)
@option("--async-copies", section=_CHANGE, is_flag=True, help="Let no copy block the host.")
@option(
    "--graph",
    "graphs",
    section=_CHANGE,
    multiple=True,
    metavar="PHASE",
    shell_complete=completion.ranges,
    help="Launch a phase as a CUDA graph; '(outside ranges)' is a phase too.",
)
@option(
    "--scale",
    "scaled",
    section=_CHANGE,
    multiple=True,
    callback=_factors,
    metavar="KERNEL=FACTOR",
    help="Multiply the time of a kernel, or of copies (memcpy HtoD), by FACTOR.",
)
@option(
    "--faster-host",
    section=_CHANGE,
    multiple=True,
    callback=_factors,
    metavar="PHASE=FACTOR",
    help="Multiply the time of host code in a phase by FACTOR; '(outside ranges)' is a phase too.",
)
@option(
    "--no-profiler",
    section=_CHANGE,
    is_flag=True,
    help="Remove the profiler's own work, as far as the report records it.",
)
@option(
    "--no-gil",
    section=_CHANGE,
    is_flag=True,
    help="Let no thread wait for Python's lock (GIL), as far as profile --gil recorded it.",
)
@option(
    "--overlap-scheduling",
    "overlapped",
    section=_CHANGE,
    is_flag=True,
    help="Let the host of a serving engine prepare a step while the GPU runs the one before.",
)
@option(
    "--ranks",
    section=_CHANGE,
    type=click.IntRange(min=2),
    metavar="N",
    help="Run the program, which was recorded as one rank on one GPU, on N. Needs --collectives.",
)
@option(
    "--collectives",
    "curve",
    section=_CHANGE,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="How long collectives take on N GPUs, as was measured there with `torchrun"
    " --nproc-per-node N -m nsysflow.workloads.common.collectives FILE`.",
)
@step_options
@own_option
@option("--json", "as_json", section="What to print", is_flag=True, help="Print a JSON document.")
def whatif(
    report: Path,
    *,
    step: str | None,
    steps: "tuple[StepPart, ...]",
    skip: int | None,
    own: tuple[str, ...],
    as_json: bool,
    ranks: int | None,
    curve: Path | None,
    **changes: Any,
) -> None:
    """Show what a change to a program would save.

    Replays the report with the change: each call and operation begins as soon as what it waited
    for is done. Changes can be combined. Options that take a name can be repeated. The ranks of a
    run (its folder) are replayed together, each with the change.

    \b
    Example:
        nsysflow whatif report.sqlite --remove sync@train.py:42
        nsysflow whatif report.sqlite --graph step/forward
        nsysflow whatif report.sqlite --async-copies --faster-host data=0.5 --json
        nsysflow whatif report.sqlite --ranks 2 --collectives samples/collectives-h200.csv
    """
    from nsysflow.analysis.findings.run_saving import RunWhatIf
    from nsysflow.analysis.options import Options
    from nsysflow.analysis.replay.changes import Changes
    from nsysflow.report.whatif import (
        run_whatif_json,
        run_whatif_lines,
        whatif_json,
        whatif_lines,
    )
    from nsysflow.runs.questions import collectives_of, replay_path

    with progress("replaying"):
        options = Options(step=step, steps=steps, skip=skip, own=own)
        answer = replay_path(
            report, options, Changes(**changes, collectives=collectives_of(curve, ranks))
        )
    if isinstance(answer, RunWhatIf):
        text, lines = run_whatif_json(answer), run_whatif_lines(report.name, answer)
    else:
        result = answer.whatif, answer.next_finding
        text, lines = whatif_json(*result), whatif_lines(answer.report, *result)
    if as_json:
        click.echo(text)
        return
    for line in lines:
        click.echo(_wrapped(line))


def _wrapped(line: str) -> str:
    from nsysflow.base.names import printable
    from nsysflow.base.screen import line_width
    from nsysflow.base.units import wrapped

    return "\n  ".join(wrapped(printable(line), line_width() - 2))
