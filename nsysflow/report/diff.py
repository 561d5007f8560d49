"""A comparison in sentences and blocks, as lines for a terminal and as Markdown."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any, Final

from rich.text import Text

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.errors import SelectionError
from nsysflow.base.names import OUTSIDE, printable
from nsysflow.base.units import duration, percent, signed, significant
from nsysflow.compare.bridge import Delta, Item, Part
from nsysflow.compare.captures import Capture
from nsysflow.compare.change import Change
from nsysflow.compare.comparison import Comparison, Stage, TrackChange
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.text import block_lines, escaped, sentence_lines, set_block


def title(comparison: Comparison) -> str:
    """What is compared: names, GPUs, captures and steps."""
    first = comparison.base[0]
    gpus = ", ".join(dict.fromkeys(first.gpus))
    return " · ".join(
        [f"{_names(comparison.base)} → {_names(comparison.new)}", gpus, _counts(comparison)]
    )


def _names(side: Sequence[Capture]) -> str:
    if len(side) == 1:
        return side[0].name
    return f"{side[0].name} and {len(side) - 1} more"


def _counts(comparison: Comparison) -> str:
    """How many steps there are on each side."""
    if not comparison.has_steps:
        return "whole windows, no steps"
    steps = [
        sum(len(capture.slowest.steps) for capture in side)
        for side in (comparison.base, comparison.new)
    ]
    ours, theirs = steps
    same = ours == theirs
    counted = f"{ours} step{'s' * (ours != 1)} each" if same else f"{ours} and {theirs} steps"
    captures = len(comparison.base), len(comparison.new)
    if captures == (1, 1):
        return counted
    alike = captures[0] == captures[1]
    counted_captures = (
        f"{captures[0]} captures" if alike else f"{captures[0]} and {captures[1]} captures"
    )
    return f"{counted_captures}, {counted}"


def headline(comparison: Comparison) -> str:
    """The verdict in a sentence."""
    change = comparison.change
    if change.verdict == "not enough steps":
        return _not_enough(comparison)
    how = f"{_by(change)} ({_interval(change)})"
    if change.verdict == "no significant change":
        return f"No significant change: a step takes {how}"
    if change.unit == "step":
        return f"These two captures differ: a step takes {how}"
    word = "Faster" if change.verdict == "better" else "Slower"
    return f"{word}: a step takes {how}"


def _not_enough(comparison: Comparison) -> str:
    change = comparison.change
    unit = "captures" if change.unit == "run" else "steps"
    if not comparison.has_steps and change.unit == "step":
        return (
            "Not enough to tell: no step is known, so each capture counts once; name the range that"
            " is one step with --step, or compare three captures a side"
        )
    counted = f"{change.base_count} and {change.new_count} {unit}"
    needed = "" if change.needed is None else f", {change.needed} a side are needed{_more(change)}"
    return f"Not enough {unit} to tell: {counted}{needed}. Here a step takes {_by(change)}"


def _more(change: Change) -> str:
    """` (2 more of the base, 1 more of the new side)`: what is missing, of captures."""
    sides = (("the base", change.base_count), ("the new side", change.new_count))
    missing = [
        f"{change.needed - count} more of {side}"
        for side, count in sides
        if change.needed is not None and change.unit == "run" and count < change.needed
    ]
    return f" ({', '.join(missing)})" if missing else ""


def _by(change: Change) -> str:
    """By how much, as one says it."""
    if abs(change.shift_pct) < 0.05:
        return "as long as before"
    return f"{_pct(abs(change.shift_pct))} {'longer' if change.shift_pct > 0 else 'less time'}"


def _interval(change: Change) -> str:
    if change.low_pct is None or change.high_pct is None:
        return "interval unknown"
    return f"{signed_pct(change.low_pct)} to {signed_pct(change.high_pct)}"


def _pct(value: float) -> str:
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def signed_pct(value: float) -> str:
    """A change: `+3.2 %`, `-38 %`."""
    return f"{'-' if value < 0 else '+'}{_pct(abs(value))}"


def remarks(comparison: Comparison) -> Iterator[str]:
    """What to keep in mind, a sentence each."""
    yield from (f"Forced in spite of {each}" for each in comparison.obstacles)
    change = comparison.change
    if change.unit == "step" and change.verdict in ("better", "worse"):
        yield (
            "Captures of an unchanged program differ, too. To tell a change from that, compare"
            " three a side: nsysflow diff --base A B C --new D E F"
        )
    if change.verdict == "no significant change" and change.detectable_pct is not None:
        unit = "captures" if change.unit == "run" else "steps"
        yield f"These {unit} cannot show a change below {_pct(change.detectable_pct)}"
    yield from comparison.remarks
    total = comparison.bridge.total
    if not comparison.contradicts:
        yield from _mean_and_typical(comparison)
    if comparison.contradicts:
        mean, typical = ("longer", "shorter") if total.change_ns > 0 else ("shorter", "longer")
        yield (
            f"The mean step got {duration(abs(total.change_ns))} {mean}, the typical one {typical}:"
            " a few long steps count more in the mean"
        )


def _mean_and_typical(comparison: Comparison) -> Iterator[str]:
    """Why the headline and the bridge say something else, where they do."""
    if comparison.apart:
        ours, theirs = signed_pct(comparison.change.shift_pct), signed_pct(comparison.mean_pct)
        yield (
            f"The headline is of typical steps ({ours}), the bridge of mean ones ({theirs}): long"
            " steps count more in the mean"
        )
    elif comparison.blurred:
        yield (
            "The bridge is of mean steps, which differ more from capture to capture than typical"
            " ones: hence its wide ±"
        )


def not_comparable(comparison: Comparison) -> str:
    """What an error says of sides that should not be compared."""
    why = "; ".join(comparison.obstacles)
    return f"{_names(comparison.base)} and {_names(comparison.new)} cannot be compared: {why}"


def require_comparable(comparisons: Iterable[Comparison | None], *, force: bool) -> None:
    """Check that nothing keeps the sides from being compared, unless we are forced.

    Raises:
        SelectionError: something does.
    """
    for comparison in comparisons:
        if comparison is not None and comparison.obstacles and not force:
            raise SelectionError(not_comparable(comparison), "Add --force to compare them anyway")


def times(count: float) -> str:
    """How often something runs in a step: `4`, `1.6`."""
    return f"{count:.0f}" if abs(count - round(count)) < 0.005 else significant(count)


ROWS: Final = 6
"""So many rows of a list fit on a screen."""

LEAST_PCT: Final = 0.1
"""What changes by less of a step is in the line of the rest."""

_BAR: Final = 20
_PARTS: Final = {"communication": "exposed communication", "copies": "exposed copies"}


def blocks(comparison: Comparison, *, full: bool) -> list[Block]:
    """All blocks that have rows."""
    rows = None if full else ROWS
    least_ns = 0.0 if full else least_of(comparison)
    things = [thing for part in comparison.bridge.parts for thing in part.things]
    waits = [each for each in things if each.what.part == "idle"]
    others = [each for each in things if each.what.part != "idle"]
    every = [
        _bridge(comparison, least_ns),
        _phases(comparison, rows),
        _things("Kernels and copies", others, least_ns, rows, _kernel),
        _things("Waits", waits, least_ns, rows, _wait),
        _ranks(comparison),
    ]
    return [without_empty_columns(each) for each in every if each.rows]


def least_of(comparison: Comparison) -> float:
    """The smallest change that a screen shows."""
    total = comparison.bridge.total
    return LEAST_PCT / 100 * max(total.base_ns, total.new_ns)


def label(part: Part) -> str:
    """What a part is called."""
    if part.part == "compute":
        return f"compute: {part.kind}"
    return f"idle: {CAUSES[part.kind].label}" if part.part == "idle" else _PARTS[part.part]


def _bridge(comparison: Comparison, least_ns: float) -> Block:
    """From the mean step of the base to that of the new side."""
    total, parts = comparison.bridge.total, comparison.bridge.parts
    large, small = large_and_small(parts, least_ns)
    widest = max((abs(each.change.change_ns) for each in parts), default=0)
    rows = [(label(each), *_cells(each.change), _bar(each.change, widest)) for each in large]
    if small:
        changed_ns = sum(each.change_ns for each in small)
        base, new = (round(sum(getattr(each, f"{side}_ns") for each in small)) for side in _SIDES)
        rows.append(
            (f"{len(small)} more", duration(base), duration(new), signed(changed_ns), "", "")
        )
    rows.append(("step", *_cells(total), ""))
    return Block(
        title="Bridge",
        caption="what changed in the mean step; ± at 95 %; ~ within the noise; ? too few steps",
        columns=(words("part"), *_DELTA, Column(head="", spare=True, drawn=True)),
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


def _phases(comparison: Comparison, rows: int | None) -> Block:
    """The same difference by phase."""
    changed = [(name, each) for name, each in comparison.bridge.phases.items() if each.change_ns]
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


def _ranks(comparison: Comparison) -> Block:
    """The change of each rank; nothing where there is one."""
    several = comparison.tracks if len(comparison.tracks) > 1 else []
    return Block(
        title="Ranks",
        caption="the bridge compares the slowest rank of each side",
        columns=(words("rank"), figure("base"), figure("new"), figure("shift"), words("verdict")),
        rows=tuple(_rank(each) for each in several),
    )


def _rank(track: TrackChange) -> tuple[str, ...]:
    shift = track.change.shift_pct
    return (
        f"{track.new.report} GPU {track.new.device}",
        duration(round(track.base_ns)),
        duration(round(track.new_ns)),
        ("-" if shift < 0 else "+") + (percent(abs(shift)) or "0 %"),
        track.change.verdict,
    )


def page(comparison: Comparison, *, width: int, full: bool) -> Iterator[Text]:
    """The lines of a terminal.

    Args:
        comparison: the comparison.
        width: columns to fill.
        full: whether to show all rows.
    """
    yield from sentence_lines(printable(title(comparison)), width)
    yield Text()
    yield from sentence_lines(printable(headline(comparison)), width, style="bold")
    for remark in remarks(comparison):
        yield from sentence_lines(printable(remark), width)
    for block in blocks(comparison, full=full):
        yield from set_block(block, width)


_HEADING: Final = "####"
"""Of a block, below the verdict."""

MARK: Final = "<!-- nsysflow diff -->"
"""The first line of the Markdown: a comment in a pull request is found by it, and updated."""


def markdown(comparison: Comparison) -> str:
    """The same for a pull request: the verdict and the bridge, the rest folded."""
    first, *rest = blocks(comparison, full=False)
    lines = [MARK, f"### {escaped(headline(comparison))}", "", escaped(title(comparison)), ""]
    lines += [line for remark in remarks(comparison) for line in (f"- {escaped(remark)}",)]
    lines += ["", *block_lines(first, heading=_HEADING)]
    folded = [line for block in rest for line in block_lines(block, heading=_HEADING)]
    if folded:
        lines += [
            "<details>",
            "<summary>Phases, kernels, waits</summary>",
            "",
            *folded,
            "</details>",
        ]
    return "\n".join(lines).rstrip() + "\n"


_WORDS: Final = {
    "better": "faster",
    "worse": "slower",
    "no significant change": "no significant change",
    "not enough steps": "not enough steps",
}


def table(stages: Sequence[Stage]) -> Block:
    """A row per capture."""
    return Block(
        title="Steps over time",
        caption="captures of an unchanged program differ, too",
        columns=(
            words("capture"),
            figure("steps"),
            figure("step"),
            figure("since first"),
            figure("since last"),
            words("verdict since last"),
            words("mostly"),
        ),
        rows=tuple(_over_time_cells(stage) for stage in stages),
    )


def rows(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "capture": stage.capture.name,
            "steps": len(stage.capture.slowest.steps),
            "median_ns": _median_ns(stage),
            "mean_ns": stage.capture.step_ns,
            "since_first_pct": _shift(stage.since_first),
            "verdict_since_first": stage.since_first and stage.since_first.change.verdict,
            "since_last_pct": _shift(stage.since_last),
            "verdict_since_last": stage.since_last and stage.since_last.change.verdict,
        }
        for stage in stages
    ]


def _over_time_cells(stage: Stage) -> tuple[str, ...]:
    first, last = stage.since_first, stage.since_last
    return (
        stage.capture.name,
        str(len(stage.capture.slowest.steps)),
        duration(stage.capture.step_ns),
        signed_pct(first.change.shift_pct) if first else "",
        signed_pct(last.change.shift_pct) if last else "",
        _WORDS[last.change.verdict] if last else "",
        _mostly(last) if last else "",
    )


def _median_ns(stage: Stage) -> int:
    return round(median(stage.capture.slowest.duration_ns))


def _shift(comparison: Comparison | None) -> float | None:
    return None if comparison is None else round(comparison.change.shift_pct, 6)


def _mostly(comparison: Comparison) -> str:
    """The part that changed most, in words; empty if nothing changed."""
    first = next(iter(comparison.bridge.parts), None)
    if first is None or not first.change.change_ns:
        return ""
    return f"{signed(first.change.change_ns)} {label(first)}"
