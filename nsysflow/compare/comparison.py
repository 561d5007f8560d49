"""Two sides compared: the change of each GPU's steps, and the bridge that explains it."""

from collections.abc import Sequence
from dataclasses import dataclass

from nsysflow.compare.bridge import Bridge, bridge_between
from nsysflow.compare.captures import Capture, Track
from nsysflow.compare.changed import Change, change_of
from nsysflow.compare.comparable import obstacles, remarks
from nsysflow.compare.sides import Side


@dataclass(frozen=True, kw_only=True)
class OfTrack:
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
    tracks: Sequence[OfTrack]

    @property
    def contradicts(self) -> bool:
        """Whether the mean and the typical step changed in opposite directions."""
        return self.bridge.total.change_ns * self.change.shift_pct < 0

    @property
    def has_steps(self) -> bool:
        """Whether steps are compared, and not whole windows."""
        return all(each.slowest.has_steps for each in (*self.base, *self.new))


def compared(base: Sequence[Capture], new: Sequence[Capture]) -> Comparison:
    """Compare two sides, of one capture or more each."""
    sides = [Side([each.slowest for each in captures]) for captures in (base, new)]
    return Comparison(
        base=base,
        new=new,
        obstacles=obstacles(base, new),
        remarks=remarks(base, new),
        change=change_of(sides[0].runs, sides[1].runs),
        bridge=bridge_between(*sides),
        tracks=_by_track(base, new),
    )


def _by_track(base: Sequence[Capture], new: Sequence[Capture]) -> list[OfTrack]:
    """The change of each rank, in the order of the ranks."""
    counts = {len(each.tracks) for each in (*base, *new)}
    if len(counts) > 1:
        return []
    found = []
    for at in range(counts.pop()):
        sides = [Side([each.tracks[at] for each in captures]) for captures in (base, new)]
        found.append(
            OfTrack(
                base=base[0].tracks[at],
                new=new[0].tracks[at],
                base_ns=float(sides[0].mean_ns),
                new_ns=float(sides[1].mean_ns),
                change=change_of(sides[0].runs, sides[1].runs),
            )
        )
    return found
