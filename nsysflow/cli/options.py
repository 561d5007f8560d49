"""Options as they are typed and as the help page groups them: times, steps, tables, workers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from nsysflow.analysis.options import StepPart
from nsysflow.analysis.tables.index import declaration
from nsysflow.base.errors import SelectionError, near_or_all
from nsysflow.base.peaks import UNITS
from nsysflow.base.units import POSSIBLE_NS
from nsysflow.cli import completion

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from nsysflow.runs.engine import Choice, Executor


_NS_PER_S: Final = 1_000_000_000
_NS_PER_US: Final = 1_000
_MOST_FLOPS: Final = 1e18
"""As many an H200 does in a quarter of an hour."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Asked = TypeVar("Asked", bound="DataclassInstance")


class Command(click.Command):
    """A command whose help page has a section for each `section` of its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[completion.TYPED] = tuple(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class Option(click.Option):
    """An option in a section of the help page.

    Attributes:
        section: the heading above it.
    """

    def __init__(self, *args: Any, section: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> "click.types.OptionHelpExtra":
        extra = super().get_help_extra(ctx)
        if isinstance(self.show_default, str):
            extra["default"] = self.show_default  # click puts it in parentheses
        return extra


def option(*names: str, section: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """A decorator that adds an `Option`."""
    return click.option(*names, cls=Option, section=section, **attributes)


def seconds(_ctx: click.Context, _param: click.Parameter, typed: str | None) -> int | None:
    """`1.5` seconds as ns."""
    return None if typed is None else _scaled(typed, _NS_PER_S, "seconds")


def microseconds(_ctx: click.Context, _param: click.Parameter, typed: str) -> int:
    """`1.5` microseconds as ns: a length, so not below 0."""
    length_ns = _scaled(typed, _NS_PER_US, "microseconds")
    if length_ns < 0:
        msg = f"{typed!r} is negative, which a length of time cannot be"
        raise click.BadParameter(msg)
    return length_ns


def step_parts(
    _ctx: click.Context, _param: click.Parameter, typed: tuple[str, ...]
) -> tuple[StepPart, ...]:
    """`2:5`, `7` and `!3` as parts."""
    return tuple(map(step_part, typed))


def step_part(typed: str) -> StepPart:
    """One part of what `--steps` selects.

    Raises:
        click.BadParameter: it is none, or selects nothing.
    """
    try:
        return StepPart.parse(typed)
    except SelectionError as error:
        raise click.BadParameter(str(error)) from error


def split_domains(domains: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`(added, removed)`: those without and those with a leading `-`."""
    added = tuple(name for name in domains if not name.startswith("-"))
    removed = tuple(name.removeprefix("-") for name in domains if name.startswith("-"))
    return added, removed


def _scaled(typed: str, ns: int, unit: str) -> int:
    try:
        # Decimal: a float would lose the last ns of a long report's clock
        time_ns = round(Decimal(typed) * ns)
    except (InvalidOperation, ValueError, OverflowError) as error:
        msg = f"{typed!r} is not a number of {unit}"
        raise click.BadParameter(msg) from error
    if time_ns not in POSSIBLE_NS:
        msg = f"{typed!r} {unit} are longer than any recording"
        raise click.BadParameter(msg)
    return time_ns


def _flops(_ctx: click.Context, _param: click.Parameter, typed: float | None) -> float | None:
    """A number of operations: above 0, and fit for 64 bits."""
    if typed is None or 0 < typed <= _MOST_FLOPS:
        return typed
    msg = f"{typed:g} cannot be the FLOPs of a step; a large model needs about 1e15 on each GPU"
    raise click.BadParameter(msg)


_WHAT: Final = "What to look at"
_HOW: Final = "How to judge it"
HOW_TO_RUN: Final = "How to run it"

_STEP: Final = option(
    "--step",
    section=_WHAT,
    metavar="NVTX",
    shell_complete=completion.ranges,
    show_default="the outermost range that repeats",
    help="Take this range as one step.",
)
_SKIP: Final = option(
    "--skip",
    section=_WHAT,
    type=click.IntRange(min=0),
    metavar="N",
    show_default="2, of 6 steps 1, of 5 none; none where --capture chose the steps",
    help="Count the first N steps as warm-up.",
)
_STEPS: Final = option(
    "--steps",
    section=_WHAT,
    multiple=True,
    callback=step_parts,
    metavar="[!]A:B",
    help="Look at the steps from A to before B, e.g. 2:5, or at one; with ! leave them out. Can be"
    " repeated.",
)

_WINDOW: Final = (
    option("--device", section=_WHAT, type=int, metavar="N", help="Look at one GPU."),
    option(
        "--range",
        section=_WHAT,
        metavar="NVTX",
        shell_complete=completion.ranges,
        help="Look at the instances of this NVTX range, by its name or its path.",
    ),
    _STEP,
    _STEPS,
    _SKIP,
    option(
        "--whole",
        section=_WHAT,
        is_flag=True,
        help="Judge all that is selected, with start-up and one-off steps.",
    ),
    option(
        "--from",
        "from_ns",
        section=_WHAT,
        callback=seconds,
        metavar="S",
        help="Start at this second of the report's clock; each of several reports has its own.",
    ),
    option("--to", "to_ns", section=_WHAT, callback=seconds, metavar="S", help="Stop there."),
    option(
        "--domain",
        "domains",
        section=_WHAT,
        multiple=True,
        metavar="[-]NAME",
        help="Take the ranges of this NVTX domain as phases too, or with - leave them out. Can be"
        " repeated.",
    ),
    option(
        "--framework-gap-us",
        "framework_gap_ns",
        section=_HOW,
        callback=microseconds,
        default="50",
        metavar="US",
        help="Count a pause of up to US microseconds between two calls as the framework's own, and"
        " a longer one as the program's code.",
    ),
)

_FLOPS: Final = (
    option(
        "--flops-per-step",
        section=_HOW,
        type=float,
        callback=_flops,
        metavar="F",
        show_default="those of the workload",
        help="Compute MFU with F FLOPs per step of one rank, e.g. 4.1e12.",
    ),
    option(
        "--flops-dtype",
        section=_HOW,
        type=click.Choice(UNITS),
        show_default="bf16",
        help="Compare with the GPU's peak in this type.",
    ),
)


_OWN: Final = option(
    "--own",
    section=_HOW,
    multiple=True,
    metavar="PACKAGE|PATH",
    help="Count the lines of this installed package, file or folder as the program's own. Can be"
    " repeated.",
)


def own_option(command: Decorated) -> Decorated:
    """Add the option that says what else is the program's own code."""
    return _OWN(command)


def flops_options(command: Decorated) -> Decorated:
    """Add the options that say what a step computes."""
    return add_options(_FLOPS, command)


def step_option(command: Decorated) -> Decorated:
    """Add the option that names the range that is one step."""
    return _STEP(command)


def step_options(command: Decorated) -> Decorated:
    """Add the options that say what a step is."""
    return add_options((_STEP, _STEPS, _SKIP), command)


def window_options(command: Decorated) -> Decorated:
    """Add the options that choose what is analysed."""
    return add_options(_WINDOW, command)


def from_params(kind: type[Asked], params: Mapping[str, Any]) -> Asked:
    """A dataclass from the parameters that its fields name."""
    return kind(**{field.name: params[field.name] for field in fields(kind)})


def add_options(
    options: Sequence[Callable[[Decorated], Decorated]], command: Decorated
) -> Decorated:
    """Add options to a command, the first one on top of its help page."""
    for add in reversed(options):
        command = add(command)
    return command


_WHO: Final = "Many reports"

_OPTIONS: Final = (
    option(
        "--executor",
        section=_WHO,
        type=click.Choice(["threads", "processes", "dask"]),
        show_default="processes; dask with --scheduler",
        help="Analyse more than 8 reports in threads, in processes, or on workers of Dask.",
    ),
    option(
        "--workers",
        section=_WHO,
        type=click.IntRange(min=1),
        metavar="N",
        show_default="as cores and memory allow; 8 of Slurm",
        help="Open N reports at once.",
    ),
    option(
        "--scheduler",
        section=_WHO,
        metavar="ADDRESS|slurm",
        help="Use the Dask cluster with this scheduler, e.g. tcp://node1:8786, or let Slurm start"
        " the workers.",
    ),
    option(
        "--strict",
        section=_WHO,
        is_flag=True,
        help="End with an error if any report cannot be read, instead of leaving it out.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who analyses many reports, and where large tables are kept, as typed."""

    executor: "Executor | None" = None
    workers: int | None = None
    scheduler: str | None = None
    strict: bool = False
    low_memory: bool = False

    def choice(self) -> "Choice":
        """Who analyses them.

        Raises:
            click.UsageError: the options do not go together.
        """
        from nsysflow.runs.engine import Choice

        try:
            return Choice(executor=self.executor, workers=self.workers, scheduler=self.scheduler)
        except SelectionError as error:
            raise click.UsageError(str(error)) from error


def worker_options(command: Decorated) -> Decorated:
    """Add the options that say who analyses many reports."""
    return add_options(_OPTIONS, command)


Form = Literal["table", "csv", "md", "parquet"]


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a table is printed.

    Attributes:
        form: for people (`table`, `md`) or for programs.
        columns: the columns to print; None for those that matter most.
        wide: all columns, and no name shortened.
        top: how many rows; None for a screen of them on a terminal, elsewhere all.
    """

    form: Form = "table"
    columns: tuple[str, ...] | None = None
    wide: bool = False
    top: int | None = None

    @property
    def for_people(self) -> bool:
        """Whether it is printed as text, and not as a file for programs."""
        return self.form in ("table", "md")


def style_of(
    table: str, *, columns: str | None, wide: bool, form: Form | None, top: int | None
) -> Style:
    """What was typed, as a `Style`.

    Raises:
        click.UsageError: the table has no such column.
    """
    chosen = None if columns is None else _columns_of(table, columns)
    return Style(form=form or "table", columns=chosen, wide=wide, top=top)


def _columns_of(name: str, typed: str) -> tuple[str, ...] | None:
    """The columns of a table in a list such as `gaps,total_ns`; None where the list is empty.

    Raises:
        click.UsageError: the table has no such column.
    """
    known = [*declaration(name).schema]
    wanted = tuple(word.strip() for word in typed.split(",") if word.strip())
    for word in wanted:
        if word not in known:
            msg = f"{name} has no column {word!r}. {near_or_all(word, known, where='--wide')}"
            raise click.UsageError(msg)
    return wanted or None
