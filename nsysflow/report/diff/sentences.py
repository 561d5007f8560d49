"""What a comparison says in words."""

from collections.abc import Iterable, Iterator, Sequence

from nsysflow.base.errors import SelectionError
from nsysflow.base.units import duration, significant
from nsysflow.compare.captures import Capture
from nsysflow.compare.change import Change
from nsysflow.compare.comparison import Comparison


def title(found: Comparison) -> str:
    """What is compared: names, GPUs, captures and steps."""
    first = found.base[0]
    gpus = ", ".join(dict.fromkeys(first.gpus))
    return " · ".join([f"{_names(found.base)} → {_names(found.new)}", gpus, _counts(found)])


def _names(side: Sequence[Capture]) -> str:
    if len(side) == 1:
        return side[0].name
    return f"{side[0].name} and {len(side) - 1} more"


def _counts(found: Comparison) -> str:
    """How many steps there are on each side."""
    if not found.has_steps:
        return "whole windows, no steps"
    steps = [sum(len(each.slowest.steps) for each in side) for side in (found.base, found.new)]
    ours, theirs = steps
    same = ours == theirs
    counted = f"{ours} step{'s' * (ours != 1)} each" if same else f"{ours} and {theirs} steps"
    captures = len(found.base), len(found.new)
    if captures == (1, 1):
        return counted
    alike = captures[0] == captures[1]
    of = f"{captures[0]} captures" if alike else f"{captures[0]} and {captures[1]} captures"
    return f"{of}, {counted}"


def headline(found: Comparison) -> str:
    """The verdict in a sentence."""
    change = found.change
    if change.verdict == "not enough steps":
        return _not_enough(found)
    how = f"{_by(change)} ({_interval(change)})"
    if change.verdict == "no significant change":
        return f"No significant change: a step takes {how}"
    if change.unit == "step":
        return f"These two captures differ: a step takes {how}"
    word = "Faster" if change.verdict == "better" else "Slower"
    return f"{word}: a step takes {how}"


def _not_enough(found: Comparison) -> str:
    change = found.change
    unit = "captures" if change.unit == "run" else "steps"
    if not found.has_steps and change.unit == "step":
        return (
            "Not enough to tell: no step is known, so each capture counts once; name the range that"
            " is one step with --step, or compare three captures a side"
        )
    counted = f"{change.base_count} and {change.new_count} {unit}"
    needed = "" if change.needed is None else f", {change.needed} a side are needed"
    return f"Not enough {unit} to tell: {counted}{needed}. Here a step takes {_by(change)}"


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


def remarks(found: Comparison) -> Iterator[str]:
    """What to keep in mind, a sentence each."""
    yield from (f"Forced in spite of {each}" for each in found.obstacles)
    change = found.change
    if change.unit == "step" and change.verdict in ("better", "worse"):
        yield (
            "Captures of an unchanged program differ, too. To tell a change from that, compare"
            " three a side: nsysflow diff --base A B C --new D E F"
        )
    if change.verdict == "no significant change" and change.detectable_pct is not None:
        unit = "captures" if change.unit == "run" else "steps"
        yield f"These {unit} cannot show a change below {_pct(change.detectable_pct)}"
    yield from found.remarks
    total = found.bridge.total
    if found.contradicts:
        mean, typical = ("longer", "shorter") if total.change_ns > 0 else ("shorter", "longer")
        yield (
            f"The mean step got {duration(abs(total.change_ns))} {mean}, the typical one {typical}:"
            " a few long steps count more in the mean"
        )


def not_comparable(found: Comparison) -> str:
    """What an error says of sides that should not be compared."""
    why = "; ".join(found.obstacles)
    return f"{_names(found.base)} and {_names(found.new)} cannot be compared: {why}"


def require_comparable(found: Iterable[Comparison | None], *, force: bool) -> None:
    """Check that nothing keeps the sides from being compared, unless we are forced.

    Raises:
        SelectionError: something does.
    """
    for each in found:
        if each is not None and each.obstacles and not force:
            raise SelectionError(not_comparable(each), "Add --force to compare them anyway")


def times(count: float) -> str:
    """How often something runs in a step: `4`, `1.6`."""
    return f"{count:.0f}" if abs(count - round(count)) < 0.005 else significant(count)
