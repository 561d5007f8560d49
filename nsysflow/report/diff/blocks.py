"""The blocks of a comparison: the bridge, phases, kernels, waits, ranks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.base.units import duration, percent, signed
from nsysflow.compare.bridge import Delta, Item, Part
from nsysflow.compare.comparison import Comparison, TrackChange
from nsysflow.report.diff.sentences import times
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words

ROWS: Final = 6
"""So many rows of a list fit on a screen."""

LEAST_PCT: Final = 0.1
"""What changes by less of a step is in the line of the rest."""

_BAR: Final = 20
_PARTS: Final = {"communication": "exposed communication", "copies": "exposed copies"}


def blocks(found: Comparison, *, full: bool) -> list[Block]:
    """All blocks that have rows."""
    rows = None if full else ROWS
    least_ns = 0.0 if full else least_of(found)
    things = [thing for part in found.bridge.parts for thing in part.things]
    waits = [each for each in things if each.what.part == "idle"]
    others = [each for each in things if each.what.part != "idle"]
    every = [
        _bridge(found, least_ns),
        _phases(found, rows),
        _things("Kernels and copies", others, least_ns, rows, _kernel),
        _things("Waits", waits, least_ns, rows, _wait),
        _ranks(found),
    ]
    return [without_empty_columns(each) for each in every if each.rows]


def least_of(found: Comparison) -> float:
    """The smallest change that a screen shows."""
    total = found.bridge.total
    return LEAST_PCT / 100 * max(total.base_ns, total.new_ns)


def label(part: Part) -> str:
    """What a part is called."""
    if part.part == "compute":
        return f"compute: {part.kind}"
    return f"idle: {CAUSES[part.kind].label}" if part.part == "idle" else _PARTS[part.part]


def _bridge(found: Comparison, least_ns: float) -> Block:
    """From the mean step of the base to that of the new side."""
    total, parts = found.bridge.total, found.bridge.parts
    shown, rest = large_and_small(parts, least_ns)
    widest = max((abs(each.change.change_ns) for each in parts), default=0)
    rows = [(label(each), *_cells(each.change), _bar(each.change, widest)) for each in shown]
    if rest:
        changed_ns = sum(each.change_ns for each in rest)
        base, new = (round(sum(getattr(each, f"{side}_ns") for each in rest)) for side in _SIDES)
        rows.append(
            (f"{len(rest)} more", duration(base), duration(new), signed(changed_ns), "", "")
        )
    rows.append(("step", *_cells(total), ""))
    return Block(
        title="Bridge",
        caption="what changed in the mean step; ± at 95 %; ~ within the noise; ? too few steps",
        columns=(words("part"), *_DELTA, Column(head="", drawn=True)),
        rows=tuple(rows),
    )


def large_and_small(parts: Sequence[Part], least_ns: float) -> tuple[list[Part], list[Delta]]:
    """The parts that changed by that much, and the changes of the others, which a line sums."""
    large = [each for each in parts if abs(each.change.change_ns) >= least_ns]
    return large, [each.change for each in parts if each not in large]


_SIDES: Final = ("base", "new")

_MARKS: Final = {True: "", False: "~ ", None: "? "}
"""What stands before a change that may be none."""


def marked(change: Delta) -> str:
    """A change, with what stands before one that may be none: `~ +12.3 us`."""
    return (_MARKS[change.clear] if change.change_ns else "") + signed(change.change_ns)


_DELTA: Final = (figure("base"), figure("new"), figure("change"), figure("±", spare=True))


def _cells(change: Delta) -> tuple[str, str, str, str]:
    """Base, new, change and how sure it is."""
    off = ""
    if change.low_ns is not None and change.high_ns is not None:
        off = duration(round((change.high_ns - change.low_ns) / 2))
    return (
        duration(round(change.base_ns)),
        duration(round(change.new_ns)),
        marked(change),
        off,
    )


def _bar(change: Delta, widest: int) -> str:
    """A change in proportion to the largest one; what is within the noise is drawn lightly."""
    length = round(_BAR * abs(change.change_ns) / widest) if widest else 0
    return ("█" if change.clear else "░") * length


def _phases(found: Comparison, rows: int | None) -> Block:
    """The same difference by phase."""
    changed = [(name, each) for name, each in found.bridge.phases.items() if each.change_ns]
    shown = changed[:rows]
    return Block(
        title="Phases",
        caption="the same change by phase",
        columns=(words("phase"), *_DELTA),
        rows=tuple((name or OUTSIDE, *_cells(each)) for name, each in shown),
        rest=_rest(len(changed) - len(shown)),
    )


def _things(
    name: str,
    things: Iterable[Item],
    least_ns: float,
    rows: int | None,
    cells: Callable[[Item], tuple[str, ...]],
) -> Block:
    """What changed, the largest change first: on a screen only what is more than noise."""
    changed = sorted(
        (each for each in things if each.change.change_ns), key=lambda t: -abs(t.change.change_ns)
    )
    large = [each for each in changed if abs(each.change.change_ns) >= least_ns]
    likely = [each for each in large if each.change.clear is not False]
    shown = changed if rows is None else likely[:rows]
    return Block(
        title=name,
        columns=(
            *(figure("change"), words("became")),
            *((words("each, base"), words("new")) if cells is _kernel else ()),
            words("what"),
            words("where"),
        ),
        rows=tuple((_cells(each.change)[2], each.status, *cells(each)) for each in shown),
        rest=_rest(len(changed) - len(shown)),
    )


def _rest(count: int) -> str:
    return f"{count} more: --full" if count > 0 else ""


def _kernel(thing: Item) -> tuple[str, ...]:
    """Calls and their length on both sides, name and grid, and class."""
    grid = f" {thing.what.grid}" if thing.what.grid else ""
    sides = (
        _calls(thing.base_count, thing.base_each_ns),
        _calls(thing.new_count, thing.new_each_ns),
    )
    return (*sides, f"{thing.short_name}{grid}", thing.what.kind)


def _calls(count: float, each_ns: float | None) -> str:
    return "" if each_ns is None or not count else f"{times(count)} x {duration(round(each_ns))}"


def _wait(thing: Item) -> tuple[str, ...]:
    """The cause with its call, and the line and phase."""
    cause = CAUSES[thing.what.kind].label
    what = f"{cause}: {thing.short_name}" if thing.short_name else cause
    moved = f" (was {thing.base_source})" if thing.base_source else ""
    where = [f"{thing.what.source}{moved}", thing.what.phase or OUTSIDE]
    return what, ", ".join(filter(None, where))


def _ranks(found: Comparison) -> Block:
    """The change of each rank; nothing where there is one."""
    several = found.tracks if len(found.tracks) > 1 else []
    return Block(
        title="Ranks",
        caption="the bridge compares the slowest rank of each side",
        columns=(words("rank"), figure("base"), figure("new"), figure("shift"), words("verdict")),
        rows=tuple(_rank(each) for each in several),
    )


def _rank(of: TrackChange) -> tuple[str, ...]:
    shift = of.change.shift_pct
    return (
        f"{of.new.report} GPU {of.new.device}",
        duration(round(of.base_ns)),
        duration(round(of.new_ns)),
        ("-" if shift < 0 else "+") + (percent(abs(shift)) or "0 %"),
        of.change.verdict,
    )
