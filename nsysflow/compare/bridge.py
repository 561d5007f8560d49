"""The bridge: what explains the difference between the means of two sides' steps, to the ns."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, log
from typing import Final, Literal, TypeAlias, TypeVar

from nsysflow.base.names import SourceLine
from nsysflow.compare.captures import Key, PartName, Series, Side
from nsysflow.compare.statistics import mean_change_interval

K = TypeVar("K", bound=Hashable)


def apportioned(parts: Mapping[K, Fraction], total: int) -> dict[K, int]:
    """The parts as whole numbers that sum to `total`, by the largest remainder.

    Args:
        parts: exact; their sum is less than 1 away from `total`.
        total: what they sum to. Of equal remainders the first gets more.
    """
    whole = {key: floor(part) for key, part in parts.items()}
    missing = total - sum(whole.values())
    by_remainder = sorted(parts, key=lambda key: floor(parts[key]) - parts[key])
    for key in by_remainder[:missing]:
        whole[key] += 1
    return whole


Status: TypeAlias = Literal[
    "new",
    "gone",
    "called more often",
    "called less often",
    "slower",
    "faster",
    "less overlapped",
    "more overlapped",
    "longer",
    "shorter",
    "same",
]
"""How it changed. Only waits are called longer or shorter."""

SAME_PCT: Final = 1.0
"""Smaller changes count as none: GPU clocks vary as much."""

_FAR: Final = 1e9
"""Stands for the ratio of something to nothing."""


@dataclass(frozen=True)
class Total:
    """What something took on one side.

    Attributes:
        ns: its part of a step.
        count: how often it ran per step.
        each_ns: how long each took, overlapped or not; 0 where it did not run.
        exposed: the share of that time that is its part of the step.
    """

    ns: float
    count: float
    each_ns: float
    exposed: float

    @classmethod
    def of(cls, series: Series, side: Side) -> "Total":
        """What `series` sums to in a step of a side."""
        ns, duration_ns, count = (
            sum(map(sum, figure)) for figure in (series.ns, series.duration_ns, series.count)
        )
        return cls(
            ns=ns / side.steps,
            count=count / side.steps,
            each_ns=duration_ns / count if count else 0.0,
            exposed=ns / duration_ns if duration_ns else 0.0,
        )


def of_wait(base: Total, new: Total) -> Status:
    """How idle time changed."""
    if base.ns == new.ns:
        return "same"
    if not base.ns or not new.ns:
        return "gone" if base.ns else "new"
    if abs(new.ns / base.ns - 1) * 100 <= SAME_PCT:
        return "same"
    return "longer" if new.ns > base.ns else "shorter"


def of_operation(base: Total, new: Total) -> Status:
    """How a kernel or a copy changed: the factor that changed its part of the step most."""
    if not base.count or not new.count:
        return "new" if new.count else "gone" if base.count else "same"
    factors: dict[tuple[Status, Status], float] = {
        ("called more often", "called less often"): new.count / base.count,
        ("slower", "faster"): _ratio(base.each_ns, new.each_ns),
        ("less overlapped", "more overlapped"): _ratio(base.exposed, new.exposed),
    }
    (more, less), factor = max(factors.items(), key=lambda item: abs(log(item[1])))
    if abs(factor - 1) * 100 <= SAME_PCT:
        return "same"
    return more if factor > 1 else less


def _ratio(base: float, new: float) -> float:
    """`new` as a multiple of `base`."""
    if base and new:
        return new / base
    return 1.0 if base == new else _FAR if new else 1 / _FAR


Pair = tuple[Key | None, Key | None]
"""A row of the base and of the new side; None where a side does not have it."""


def matched(base: Iterable[Key], new: Iterable[Key]) -> list[Pair]:
    """The rows of both sides in pairs, those of the base first.

    Equal rows belong together. Of the others, those that differ in their line alone: first of the
    same file and function, then of the same function. Several of one function go by their lines.
    """
    base_keys, new_keys = list(base), list(new)
    both = set(base_keys) & set(new_keys)
    pairs: dict[Key, Key] = {key: key for key in both}
    left = [key for key in base_keys if key not in both]
    right = [key for key in new_keys if key not in both]
    for identity in (_in_same_function, _in_function_of_name):
        pairs |= _paired(left, right, identity)
        left = [key for key in left if key not in pairs]
        taken = set(pairs.values())
        right = [key for key in right if key not in taken]
    return [(key, pairs.get(key)) for key in base_keys] + [(None, key) for key in right]


def _paired(
    left: Sequence[Key], right: Sequence[Key], identity: Callable[[Key], Key | None]
) -> dict[Key, Key]:
    """The rows that have the same identity, in the order of their lines."""
    groups: dict[Key, tuple[list[Key], list[Key]]] = defaultdict(lambda: ([], []))
    for side, keys in enumerate((left, right)):
        for key in sorted(keys, key=_line_number):
            same = identity(key)
            if same is not None:
                groups[same][side].append(key)
    return {
        mine: other
        for ours, theirs in groups.values()
        for mine, other in zip(ours, theirs)  # noqa: B905
    }


def _in_same_function(key: Key) -> Key | None:
    """What a row is, whatever the number of its line; None without a function."""
    line = SourceLine.of(key.source)
    if line is None or not line.function:
        return None
    return replace(key, source=_without_number(line), via=_same_via(key.via))


def _in_function_of_name(key: Key) -> Key | None:
    """What a row is, whatever its line and file; None without a function."""
    line = SourceLine.of(key.source)
    if line is None or not line.function:
        return None
    return replace(key, source=line.function, via="")


def _same_via(text: str) -> str:
    line = SourceLine.of(text)
    return text if line is None else _without_number(line)


def _without_number(line: SourceLine) -> str:
    return f"{line.file} {line.function}"


def _line_number(key: Key) -> int:
    line = SourceLine.of(key.source)
    return 0 if line is None else line.number


Group = TypeVar("Group", str, tuple[PartName, str], Pair)


@dataclass(frozen=True, kw_only=True)
class Delta:
    """What something took per step on both sides.

    Attributes:
        base_ns: in the mean of the base's steps.
        new_ns: in the mean of the new ones.
        change_ns: the difference; the changes of a list sum to that of what they are parts of.
        low_ns: the interval of the difference at 95 %; None where there are too few steps.
        high_ns: its other end.
    """

    base_ns: float
    new_ns: float
    change_ns: int
    low_ns: float | None
    high_ns: float | None

    @property
    def clear(self) -> bool | None:
        """Whether the change exceeds the noise; None if there are too few steps to tell."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return self.low_ns > 0 or self.high_ns < 0


@dataclass(frozen=True, kw_only=True)
class Item:
    """A kernel, a copy, or a wait of one cause, place and line, on both sides.

    Attributes:
        what: of the new side; of the base where it is gone.
        base_source: its line on the base's side, where that is another one.
        short_name: as screens show it.
        status: how it changed.
        change: of its part of the step.
        base_count: how often it ran per step.
        new_count: the same of the new side.
        base_each_ns: how long each took, overlapped or not; None where it is not there.
        new_each_ns: the same of the new side.
    """

    what: Key
    base_source: str | None
    short_name: str
    status: Status
    change: Delta
    base_count: float
    new_count: float
    base_each_ns: float | None
    new_each_ns: float | None


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the bridge: a class of kernels, communication, copies, or a cause of idle time.

    Attributes:
        part: which of the four.
        kind: the class or cause; empty for communication and copies.
        change: of all of it.
        phases: of it by phase; they sum to it.
        things: of it by kernel, copy or wait; they sum to it.
    """

    part: PartName
    kind: str
    change: Delta
    phases: dict[str, Delta]
    things: Sequence[Item]


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """From the mean step of the base to that of the new side.

    Attributes:
        total: of the whole step.
        parts: they sum to it; the largest change first.
        phases: of the whole step by phase; they sum to it.
    """

    total: Delta
    parts: Sequence[Part]
    phases: dict[str, Delta]


@dataclass(frozen=True)
class _Both:
    """What one thing took on both sides."""

    pair: Pair
    base: Series
    new: Series

    @property
    def key(self) -> Key:
        """What it is. Of a row on both sides, the new side's name."""
        key = self.pair[1] or self.pair[0]
        assert key is not None  # a pair has one of the two
        return key


def bridge_between(base: Side, new: Side) -> Bridge:
    """What explains the difference of two sides' mean steps."""
    rows = [
        _Both(
            pair,
            base.nothing if pair[0] is None else base.rows[pair[0]],
            new.nothing if pair[1] is None else new.rows[pair[1]],
        )
        for pair in matched(base.rows, new.rows)
    ]
    compare = _Compare(base, new)
    total = compare.change(rows, round(new.mean_ns - base.mean_ns))
    parts = [
        compare.part(part, kind, some, change)
        for (part, kind), (some, change) in compare.split(rows, _part_of, total.change_ns).items()
    ]
    by_size = sorted(parts, key=lambda part: -abs(part.change.change_ns))
    phases = compare.split(rows, lambda row: row.key.phase, total.change_ns)
    return Bridge(
        total=total, parts=by_size, phases={name: change for name, (_, change) in phases.items()}
    )


def _part_of(row: _Both) -> tuple[PartName, str]:
    """The part of the bridge that a row belongs to: communication and copies are one part each."""
    key = row.key
    return key.part, key.kind if key.part in ("compute", "idle") else ""


def _thing_of(row: _Both) -> Pair:
    """The thing that a row belongs to: kernels and copies are summed over all phases."""

    def everywhere(key: Key | None) -> Key | None:
        if key is None or key.part == "idle":
            return key
        return Key(
            part=key.part, kind=key.kind, name=key.name, grid=key.grid, phase="", source="", via=""
        )

    pair = everywhere(row.pair[0]), everywhere(row.pair[1])
    return pair if row.key.part == "idle" else (pair[0] or pair[1], pair[1] or pair[0])


@dataclass(frozen=True)
class _Compare:
    """Sums and differences of rows of two sides."""

    base: Side
    new: Side

    def difference(self, rows: Sequence[_Both]) -> Fraction:
        """The exact difference of the two means."""
        base, new = (
            sum(sum(map(sum, series.ns)) for series in side)
            for side in ([row.base for row in rows], [row.new for row in rows])
        )
        return Fraction(new, self.new.steps) - Fraction(base, self.base.steps)

    def split(
        self, rows: Sequence[_Both], by: Callable[[_Both], Group], total: int
    ) -> dict[Group, tuple[list[_Both], Delta]]:
        """The rows in groups, with changes that sum to `total`; the largest change first."""
        groups: dict[Group, list[_Both]] = {}
        for row in rows:
            groups.setdefault(by(row), []).append(row)
        exact = {name: self.difference(some) for name, some in groups.items()}
        whole = apportioned(exact, total)
        order = sorted(groups, key=lambda name: -abs(whole[name]))
        return {name: (groups[name], self.change(groups[name], whole[name])) for name in order}

    def change(self, rows: Sequence[_Both], change_ns: int) -> Delta:
        """The change of several rows together."""
        base = Series.sum_of([row.base for row in rows] or [self.base.nothing]).ns
        new = Series.sum_of([row.new for row in rows] or [self.new.nothing]).ns
        low_ns, high_ns = mean_change_interval(base, new) or (None, None)
        return Delta(
            base_ns=float(self.base.per_step(base)),
            new_ns=float(self.new.per_step(new)),
            change_ns=change_ns,
            low_ns=low_ns,
            high_ns=high_ns,
        )

    def part(self, part: PartName, kind: str, rows: Sequence[_Both], change: Delta) -> Part:
        """A part with its phases, and its kernels, copies or waits."""
        phases = self.split(rows, lambda row: row.key.phase, change.change_ns)
        things = self.split(rows, _thing_of, change.change_ns)
        return Part(
            part=part,
            kind=kind,
            change=change,
            phases={name: of_phase for name, (_, of_phase) in phases.items()},
            things=[self.thing(pair, some, delta) for pair, (some, delta) in things.items()],
        )

    def thing(self, pair: Pair, rows: Sequence[_Both], change: Delta) -> Item:
        """A kernel, a copy or a wait on both sides."""
        base = Series.sum_of([row.base for row in rows])
        new = Series.sum_of([row.new for row in rows])
        totals = Total.of(base, self.base), Total.of(new, self.new)
        what = pair[1] or pair[0]
        assert what is not None  # a pair has one of the two
        names = self.base.short_names | self.new.short_names
        moved = pair[0] is not None and pair[0].source != what.source
        return Item(
            what=what,
            base_source=pair[0].source if moved and pair[0] is not None else None,
            short_name=names[what.name],
            status=of_wait(*totals) if what.part == "idle" else of_operation(*totals),
            change=change,
            base_count=totals[0].count,
            new_count=totals[1].count,
            base_each_ns=totals[0].each_ns if totals[0].count else None,
            new_each_ns=totals[1].each_ns if totals[1].count else None,
        )
