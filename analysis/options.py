"""The choices of a caller: the command line's options, in ns, and what is refused of them."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from shlex import join, quote
from typing import Final

from nsysflow.base.errors import SelectionError
from nsysflow.base.peaks import Unit
from nsysflow.base.units import POSSIBLE_NS


@dataclass(frozen=True)
class StepPart:
    """Some steps, by their numbers: one part of what `--steps` selects.

    Attributes:
        first: the first of them.
        end: the one after the last; None takes all that follow.
        out: whether these are left out.
    """

    first: int = 0
    end: int | None = None
    out: bool = False

    @classmethod
    def parse(cls, typed: str) -> "StepPart":
        """`2:5`, `2:`, `7` or `!7` as a part.

        Raises:
            SelectionError: it is none, or selects nothing.
        """
        first, colon, end = typed.removeprefix("!").partition(":")
        known = all(side.isdecimal() or (colon and not side) for side in (first, end or first))
        if not known:
            seen = f"{typed!r} is not A:B, a number, or either with ! to leave it out"
            raise SelectionError(f"{seen}, e.g. 2:5, 7 or !3")
        begin = int(first or 0)
        past = begin + 1 if not colon else int(end) if end else None
        if past is not None and past <= begin:
            raise SelectionError(f"{typed!r} selects no step: B must be greater than A")
        if max(begin, past or 0) >= 2**63:
            raise SelectionError(f"{typed!r}: no program has so many steps")
        return cls(begin, past, typed.startswith("!"))

    def __str__(self) -> str:
        """As it is typed: `2:5`, `2:`, `7` or `!7`."""
        is_one_step = self.end == self.first + 1
        end = "" if self.end is None else self.end
        return f"{'!' if self.out else ''}{self.first if is_one_step else f'{self.first}:{end}'}"


def typed_steps(parts: tuple[StepPart, ...]) -> str:
    """The `--steps` options that select these, as one types them in a shell."""
    return " ".join(f"--steps {quote(str(part))}" for part in parts)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to analyse; by default all of a report.

    Attributes:
        framework_gap_ns: the longest time between two calls that counts as the framework's own
            (spec §3); longer ones are the application's code.
        domains_added: NVTX domains to count as phases although libraries own them (spec §7).
        domains_removed: further NVTX domains whose ranges are not phases.
        device: the one physical GPU to select; None selects all.
        range: NVTX range that narrows the window to its instances' projections (spec §2).
        from_ns: start of the window, on the report's clock.
        to_ns: end of the window, exclusive.
        step: name of the range that is one step; None finds it (spec §8).
        skip: leading steps that are never steady; None takes spec §8's default.
        steps: the steps to select; where it only leaves out, all others.
        whole: whether all that is selected is judged, not only the typical steps in it (spec §8).
        flops_per_step: FLOPs of one step of each process; None takes what programs declare.
        flops_dtype: the arithmetic of these FLOPs, of `nsysflow.base.peaks.UNITS`; None takes what
            programs declare, else bf16.
        own: names of packages, and paths of files and folders, that are the program's own although
            they are installed ones (spec §11).
        kernel_classes: further (class, pattern) rules on short names, tried before ours (spec §6).
        unrecorded_step_ns: how long a step of the same program takes that is not recorded; None
            where that is not known. Savings are then of recorded steps (spec §14.15).
        unrecorded_wait_ns: how long such a step waits for batches of DataLoaders; None where that
            is not known.
        unrecorded_middle: the number of the middle one of those steps; None where it is not known.
        recording_pct: what share of the host's time recording takes on this machine, at least and
            at most, in whole percent; None takes the usual ones (spec §14.16).
        command: the command line of the program, for advice on how to record it again; empty where
            that is not known.
    """

    framework_gap_ns: int = 50_000
    domains_added: tuple[str, ...] = ()
    domains_removed: tuple[str, ...] = ()
    device: int | None = None
    range: str | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    step: str | None = None
    skip: int | None = None
    steps: tuple[StepPart, ...] = ()
    whole: bool = False
    flops_per_step: float | None = None
    flops_dtype: Unit | None = None
    own: tuple[str, ...] = ()
    kernel_classes: tuple[tuple[str, str], ...] = ()
    unrecorded_step_ns: int | None = None
    unrecorded_wait_ns: int | None = None
    unrecorded_middle: float | None = None
    recording_pct: tuple[int, int] | None = None
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that time goes forward.

        Raises:
            SelectionError: the window ends before it starts.
        """
        if self.from_ns is not None and self.to_ns is not None and self.from_ns > self.to_ns:
            raise SelectionError(
                f"--from {self.from_ns / 1e9:g} is later than --to {self.to_ns / 1e9:g}",
                "Give the earlier time to --from",
            )

    def recording(self, options: str = "", program: str = "python train.py") -> str:
        """How to record the program again with these options of `nsysflow profile`, as typed;
        `program` stands for one whose command is not known."""
        command = join(self.command) if self.command else program
        return " ".join(filter(None, ["nsysflow profile", options, "--", command]))


_COUNTED: Final = ("framework_gap_ns", "skip")
"""Options that cannot be negative."""

_TIMES: Final = ("framework_gap_ns", "from_ns", "to_ns")


def require_valid(options: Options) -> None:
    """Check the options before anything is computed.

    Raises:
        SelectionError: an option has the wrong type, or a value that it cannot have.
    """
    import msgspec  # not above: `nsysflow -h` and completion start without it

    try:
        msgspec.convert(asdict(options), Options)
    except msgspec.ValidationError as error:
        expected, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`") or "options"
        expected = f"{expected[:1].lower()}{expected[1:]}"
        raise SelectionError(
            f"Options({name}=…): {expected}", "See help(nsysflow.Options)"
        ) from error
    for name, problem in _problems(options):
        raise SelectionError(f"Options({name}=…): {problem}", "See help(nsysflow.Options)")


def _problems(options: Options) -> Iterator[tuple[str, str]]:
    """Each option with a value that it cannot have, and what is wrong with it."""
    values = asdict(options)
    for name in _TIMES:
        if values[name] is not None and values[name] not in POSSIBLE_NS:
            yield name, f"{values[name]} ns is no time in a report"
    for name in _COUNTED:
        if values[name] is not None and values[name] < 0:
            yield name, f"{values[name]} is negative"
    for part in options.steps:
        if part.first < 0:
            yield "steps", f"{part}: steps are counted from 0"
        if part.end is not None and part.end <= part.first:
            yield "steps", f"{part}: selects no step"
        if max(part.first, part.end or 0) >= 2**63:
            yield "steps", f"{part}: no program has so many steps"
    flops = options.flops_per_step
    if flops is not None and not (math.isfinite(flops) and 0 < flops < 2**63):
        yield "flops_per_step", f"{flops} is not a number of operations"
    for _, pattern in options.kernel_classes:
        if not _is_regular_expression(pattern):
            yield "kernel_classes", f"{pattern!r} is not a regular expression"


def _is_regular_expression(pattern: str) -> bool:
    """Whether polars can search for a pattern."""
    import polars as pl  # not above: `nsysflow -h` and completion start without it

    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.ComputeError:
        return False
    return True
