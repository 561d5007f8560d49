"""Two sides compared, reasons not to compare them, and captures one after the other."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from nsysflow.base.units import duration
from nsysflow.compare.bridge import Bridge, bridge_between
from nsysflow.compare.captures import Capture, Side, Track
from nsysflow.compare.change import Change, change_of

LEAST_COMMON_PCT: Final = 10
"""Two programs that share less of their kernel time run different kernels. Of the bundled pairs
those of one program share 27 % or more, unless their kernels were rewritten or compiled; of pairs
of different programs, 84 % share less (docs/facts.md)."""

LEAST_COMMON_PHASES: Final = 2
"""Sides that share this many phases, and half of all, are one program with other kernels."""

INFLATION_POINTS: Final = 10
"""A difference this large in what the profiler adds gets a remark."""

LEAST_CLOCK: Final = 0.02
"""Clocks go by steps of 15 MHz, and vary by one or two without a reason (spec §25.4)."""

LEAST_COMPUTE: Final = 0.01
"""Kernels whose time changed by less need no reason."""

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
    gpus = [sorted({gpu for capture in side for gpu in capture.gpus}) for side in (base, new)]
    if gpus[0] != gpus[1]:
        yield f"different GPUs: {', '.join(gpus[0])} and {', '.join(gpus[1])}"
    counts = [sorted({len(capture.tracks) for capture in side}) for side in (base, new)]
    if len(counts[0]) > 1 or counts[0] != counts[1]:
        ours, theirs = (" or ".join(map(str, count)) for count in counts)
        yield f"different numbers of ranks: {ours} and {theirs}"


def _other_program(base: Sequence[Capture], new: Sequence[Capture]) -> Iterator[str]:
    units = [{capture.unit for capture in side if capture.unit} for side in (base, new)]
    if units[0] and units[1] and units[0] != units[1]:
        ours, theirs = (" and ".join(sorted(names)) for names in units)
        yield f"different precision: matrix products are mostly {ours} and {theirs}"
    parts = [{capture.selection for capture in side} for side in (base, new)]
    if parts[0] != parts[1]:
        ours, theirs = (
            " and ".join(text or "all of it" for text in sorted(texts)) for texts in parts
        )
        yield f"different parts of the recordings: {ours}, and {theirs}"
    ranges = [{capture.slowest.step_name for capture in side} for side in (base, new)]
    if not _same_steps(*ranges):
        ours, theirs = (_quoted(names) for names in ranges)
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
    for capture in captures:
        if capture.invalid is not None:
            yield f"{capture.name} cannot be judged: {capture.invalid}"


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


def other_clock(base: Sequence[Capture], new: Sequence[Capture], bridge: Bridge) -> Iterator[str]:
    """A remark if kernels took another time at another clock: what that explains (spec §18.21)."""
    ours, theirs = (_clock_mhz(side) for side in (base, new))
    compute = [part.change for part in bridge.parts if part.part == "compute"]
    base_ns, new_ns = (sum(getattr(one, side) for one in compute) for side in ("base_ns", "new_ns"))
    change_ns = sum(one.change_ns for one in compute)
    if not ours or not theirs or abs(theirs / ours - 1) <= LEAST_CLOCK:
        return
    if abs(change_ns) < LEAST_COMPUTE * base_ns:
        return
    differ = f"Runs differ by their clock: {ours:.0f} and {theirs:.0f} MHz"
    how = "longer" if change_ns > 0 else "shorter"
    explained_ns = round(new_ns * (1 - theirs / ours))
    if (explained_ns > 0) == (change_ns > 0):
        explained_ns = min(abs(explained_ns), abs(change_ns))
        left_ns = abs(change_ns) - explained_ns
        yield (
            f"{differ}. That explains up to {duration(explained_ns)} of the"
            f" {duration(abs(change_ns))} by which kernels take {how}; {duration(left_ns)} are left"
        )
    else:
        at_one_ns = abs(change_ns) + abs(explained_ns)
        yield (
            f"{differ}. Kernels take {duration(abs(change_ns))} {how} in spite of it; at one clock"
            f" that would be up to {duration(at_one_ns)}"
        )


def _clock_mhz(side: Sequence[Capture]) -> float | None:
    """The median of the runs' mean clocks; None where none is known."""
    known = [capture.slowest.sm_clock_mhz for capture in side]
    clocks = [mhz for mhz in known if mhz is not None]
    return median(clocks) if clocks else None


def _profiled_otherwise(base: Sequence[Capture], new: Sequence[Capture]) -> Iterator[str]:
    """A remark if the profiler slows one side more than the other."""
    sides = [_inflation(side) for side in (base, new)]
    if None in sides:
        return
    (ours_ns, ours_pct), (theirs_ns, theirs_pct) = sides  # type: ignore[misc]
    if abs(ours_pct - theirs_pct) > INFLATION_POINTS:
        change = 100 * (theirs_ns / ours_ns - 1)
        yield (
            f"Recorded steps differ from those before the window by {ours_pct:+.0f} % in the base"
            f" and {theirs_pct:+.0f} % in the new captures; before it, a step went from"
            f" {duration(round(ours_ns))} to {duration(round(theirs_ns))} ({change:+.0f} %)"
        )


def _inflation(side: Sequence[Capture]) -> tuple[float, float] | None:
    """A step before the window in ns, and how much longer a recorded one is, in percent: the
    medians of the runs. None where it was not measured."""
    durations = []
    for capture in side:
        track = capture.slowest
        if track.unprofiled_step_ns:
            durations.append((track.unprofiled_step_ns, capture.step_ns))
    if not durations:
        return None
    unprofiled_ns = median(ns for ns, _ in durations)
    return unprofiled_ns, 100 * (median(recorded_ns / ns for ns, recorded_ns in durations) - 1)


@dataclass(frozen=True, kw_only=True)
class TrackChange:
    """The change of one process on one GPU, its captures side by side.

    Attributes:
        base: the side's first track, which names it.
        new: the same of the other side.
        base_ns: its mean step.
        new_ns: the same of the other side.
        change: of its steps.
    """

    base: Track
    new: Track
    base_ns: float
    new_ns: float
    change: Change


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sides, compared.

    Attributes:
        base: its captures.
        new: the captures of the other side.
        obstacles: why they should not be compared; see `comparable.obstacles`.
        remarks: what to keep in mind.
        change: of the step of the slowest rank.
        bridge: what explains the difference of the means of these steps.
        tracks: the change of each rank; empty where the numbers of ranks differ.
    """

    base: Sequence[Capture]
    new: Sequence[Capture]
    obstacles: Sequence[str]
    remarks: Sequence[str]
    change: Change
    bridge: Bridge
    tracks: Sequence[TrackChange]

    @property
    def contradicts(self) -> bool:
        """Whether the mean and the typical step changed in opposite directions."""
        return self.bridge.total.change_ns * self.change.shift_pct < 0

    @property
    def mean_pct(self) -> float:
        """By how much the mean step changed, of that of the base."""
        total = self.bridge.total
        return float(100 * total.change_ns / total.base_ns) if total.base_ns else 0.0

    @property
    def apart(self) -> bool:
        """Whether the mean step, which the bridge is of, changed otherwise than the typical one, by
        a tenth of that and a point or more."""
        shift = self.change.shift_pct
        return abs(self.mean_pct - shift) >= max(1.0, abs(shift) / 10)

    @property
    def blurred(self) -> bool:
        """Whether the typical step changed clearly, and the mean one not."""
        return self.change.verdict in ("better", "worse") and self.bridge.total.clear is False

    @property
    def has_steps(self) -> bool:
        """Whether steps are compared, and not whole windows."""
        return all(capture.slowest.has_steps for capture in (*self.base, *self.new))


def compared(base: Sequence[Capture], new: Sequence[Capture]) -> Comparison:
    """Compare two sides, of one capture or more each."""
    sides = [Side([capture.slowest for capture in captures]) for captures in (base, new)]
    bridge = bridge_between(*sides)
    return Comparison(
        base=base,
        new=new,
        obstacles=obstacles(base, new),
        remarks=[*remarks(base, new), *other_clock(base, new, bridge)],
        change=change_of(sides[0].runs, sides[1].runs),
        bridge=bridge,
        tracks=_by_track(base, new),
    )


def _by_track(base: Sequence[Capture], new: Sequence[Capture]) -> list[TrackChange]:
    """The change of each rank, in the order of the ranks."""
    counts = {len(capture.tracks) for capture in (*base, *new)}
    if len(counts) > 1:
        return []
    changes = []
    for at in range(counts.pop()):
        sides = [Side([capture.tracks[at] for capture in captures]) for captures in (base, new)]
        changes.append(
            TrackChange(
                base=base[0].tracks[at],
                new=new[0].tracks[at],
                base_ns=float(sides[0].mean_ns),
                new_ns=float(sides[1].mean_ns),
                change=change_of(sides[0].runs, sides[1].runs),
            )
        )
    return changes


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One capture of a row.

    Attributes:
        capture: itself.
        since_first: what changed since the first one; None for the first.
        since_last: what changed since the one before; None for the first.
    """

    capture: Capture
    since_first: Comparison | None
    since_last: Comparison | None


def over_time(captures: Sequence[Capture]) -> list[Stage]:
    """Each capture, compared with the first and with the one before."""
    return [
        Stage(
            capture=capture,
            since_first=compared(captures[:1], [capture]) if at else None,
            since_last=compared(captures[at - 1 : at], [capture]) if at else None,
        )
        for at, capture in enumerate(captures)
    ]
