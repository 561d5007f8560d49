"""Reasons not to compare two sides, and remarks on a comparison."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from nsysflow.base.units import duration
from nsysflow.compare.captures import Capture, Track

LEAST_COMMON_PCT: Final = 10
"""Two programs that share less of their kernel time run different kernels. Of the bundled pairs
those of one program share 27 % or more, unless their kernels were rewritten or compiled; of pairs
of different programs, 84 % share less (docs/facts.md)."""

LEAST_COMMON_PHASES: Final = 2
"""Sides that share this many phases, and half of all, are one program with other kernels."""

INFLATION_POINTS: Final = 10
"""A difference this large in what the profiler adds gets a remark."""

_AUTOMATIC: Final = {
    *("data", "forward", "loss", "backward", "clip_grad", "optimizer", "zero_grad", "save"),
    *("compile", "prefill", "decode"),
}
"""Phases that nsysflow puts into every program: they say nothing about which one it is."""

_GENERATED: Final = "triton"
"""Names of this class are generated anew with each change."""


def obstacles(base: Sequence[Capture], new: Sequence[Capture]) -> list[str]:
    """The reasons not to compare the sides, one sentence each."""
    return [*_other_machine(base, new), *_other_program(base, new), *_unsound([*base, *new])]


def _other_machine(base: Sequence[Capture], new: Sequence[Capture]) -> Iterator[str]:
    gpus = [sorted({gpu for each in side for gpu in each.gpus}) for side in (base, new)]
    if gpus[0] != gpus[1]:
        yield f"different GPUs: {', '.join(gpus[0])} and {', '.join(gpus[1])}"
    counts = [sorted({len(each.tracks) for each in side}) for side in (base, new)]
    if len(counts[0]) > 1 or counts[0] != counts[1]:
        ours, theirs = (" or ".join(map(str, count)) for count in counts)
        yield f"different numbers of ranks: {ours} and {theirs}"


def _other_program(base: Sequence[Capture], new: Sequence[Capture]) -> Iterator[str]:
    units = [{each.unit for each in side if each.unit} for side in (base, new)]
    if units[0] and units[1] and units[0] != units[1]:
        ours, theirs = (" and ".join(sorted(each)) for each in units)
        yield f"different precision: matrix products are mostly {ours} and {theirs}"
    parts = [{each.selection for each in side} for side in (base, new)]
    if parts[0] != parts[1]:
        ours, theirs = (
            " and ".join(text or "all of it" for text in sorted(each)) for each in parts
        )
        yield f"different parts of the recordings: {ours}, and {theirs}"
    ranges = [{each.slowest.step_name for each in side} for side in (base, new)]
    if not _same_steps(*ranges):
        ours, theirs = (_quoted(each) for each in ranges)
        yield f"different steps: {ours} and {theirs}; name the range that is one step with --step"
    common = common_kernels_pct(base[0].slowest, new[0].slowest)
    if common < LEAST_COMMON_PCT and not _same_phases(base[0].slowest, new[0].slowest):
        yield (
            f"different programs: {common:.0f} % of the kernel time is in kernels of the same name"
        )


def _same_steps(base: set[str | None], new: set[str | None]) -> bool:
    """Whether steps have the same names; ranges around them may differ."""

    def last(names: set[str | None]) -> set[str | None]:
        return {name and name.rpartition("/")[2] for name in names}

    return last(base) == last(new)


def _quoted(names: set[str | None]) -> str:
    return " and ".join(sorted("a whole window" if name is None else name for name in names))


def _unsound(captures: Sequence[Capture]) -> Iterator[str]:
    for each in captures:
        if each.invalid is not None:
            yield f"{each.name} cannot be judged: {each.invalid}"


def common_kernels_pct(base: Track, new: Track) -> float:
    """The share of kernel time that both sides spend in kernels of the same names."""
    shares = [_kernel_shares(track) for track in (base, new)]
    if not all(shares):
        return 100.0
    return 100 * sum(min(share, shares[1].get(name, 0.0)) for name, share in shares[0].items())


def _kernel_shares(track: Track) -> dict[str, float]:
    """The share of each name in the time of kernels."""
    sums: Counter[str] = Counter()
    for row in track.rows:
        if row.part in ("compute", "communication"):
            name = _GENERATED if row.kind == _GENERATED else row.name
            sums[name] += sum(row.duration_ns)
    total = sum(sums.values())
    return {name: ns / total for name, ns in sums.items()} if total else {}


def _same_phases(base: Track, new: Track) -> bool:
    """Whether half of the phases that the programs name themselves are in both."""
    ours, theirs = (
        {row.phase for row in track.rows if set(row.phase.split("/")) - _AUTOMATIC - {""}}
        for track in (base, new)
    )
    common = ours & theirs
    return len(common) >= LEAST_COMMON_PHASES and 2 * len(common) >= len(ours | theirs)


def remarks(base: Sequence[Capture], new: Sequence[Capture]) -> list[str]:
    """Remarks on the comparison, one sentence each."""
    return [*_profiled_otherwise(base, new)]


def _profiled_otherwise(base: Sequence[Capture], new: Sequence[Capture]) -> Iterator[str]:
    """A remark if the profiler slows one side more than the other."""
    sides = [_inflation(side) for side in (base, new)]
    if None in sides:
        return
    (ours_ns, ours_pct), (theirs_ns, theirs_pct) = sides  # type: ignore[misc]
    if abs(ours_pct - theirs_pct) > INFLATION_POINTS:
        change = 100 * (theirs_ns / ours_ns - 1)
        yield (
            f"Recorded steps differ from unprofiled ones by {ours_pct:+.0f} % in the base and"
            f" {theirs_pct:+.0f} % in the new captures; unprofiled, a step went from"
            f" {duration(round(ours_ns))} to {duration(round(theirs_ns))} ({change:+.0f} %)"
        )


def _inflation(side: Sequence[Capture]) -> tuple[float, float] | None:
    """An unprofiled step in ns, and how much longer a recorded one is, in percent: the medians of
    the runs. None where it was not measured."""
    found = []
    for capture in side:
        track = capture.slowest
        if track.unprofiled_step_ns:
            found.append((track.unprofiled_step_ns, median(track.duration_ns)))
    if not found:
        return None
    unprofiled_ns = median(ns for ns, _ in found)
    return unprofiled_ns, 100 * (median(of / ns for ns, of in found) - 1)
