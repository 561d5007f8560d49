"""What repeats in the launches of a program that marks no steps (spec §8.25 to §8.28)."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

DECIDING = 1 << 16
LASTING = 5

Code = tuple[object, ...]


@dataclass(frozen=True)
class Launch:
    """§8.24: a launch of a process."""

    call: int
    name: tuple[bool, str]
    exact: Code
    backward: bool
    gpu_ns: int
    copies: bool
    solves: bool
    optimizer: bool
    exchange: bool

    @property
    def graph(self) -> bool:
        """Whether it launched a graph."""
        return self.name[0]


@dataclass(frozen=True, eq=False)
class Mark:
    """§8.25: what launches have in common, and where."""

    family: int
    code: Code
    places: tuple[int, ...]
    launches: tuple[Launch, ...]

    @cached_property
    def stretches(self) -> list[tuple[int, int]]:
        """From each place to the next one."""
        return list(pairwise(self.places))

    @cached_property
    def length(self) -> int:
        """The lower median."""
        return lower_median([b - a for a, b in self.stretches])

    @cached_property
    def regular(self) -> list[tuple[int, int]]:
        """The stretches that are about as long."""
        return [(a, b) for a, b in self.stretches if self.length <= 2 * (b - a) <= 4 * self.length]

    def most_hold(self, wanted: list[bool]) -> bool:
        """Whether four fifths of the regular stretches hold such a launch."""
        holding = sum(any(wanted[a:b]) for a, b in self.regular)
        return 5 * holding >= 4 * len(self.regular)

    @cached_property
    def optimizes(self) -> bool:
        """§8.26."""
        return self.most_hold([one.optimizer for one in self.launches])

    @property
    def always_optimizes(self) -> bool:
        """§8.27: whether all regular stretches hold an optimizer."""
        return all(any(one.optimizer for one in self.launches[a:b]) for a, b in self.regular)

    @cached_property
    def replays(self) -> bool:
        """§8.26."""
        return self.most_hold([one.graph for one in self.launches])

    @property
    def exchanges(self) -> bool:
        """§8.27: whether few names are enough."""
        return self.copies_or_waits or self.replays

    @cached_property
    def within_step(self) -> bool:
        """§8.26: whether an optimizer follows the first place, the backward pass follows the last
        one, or all is of that pass."""
        first, last = self.places[0], self.places[-1]
        backward = [one.backward for one in self.launches]
        inside, behind = sum(backward[first:last]), sum(backward[last:])
        undone = inside == 0 and behind >= len(self.stretches)
        updated = any(one.optimizer for one in self.launches[first + 1 :])
        return updated or undone or inside == last - first

    @property
    def exchanges_apart(self) -> bool:
        """§8.26: whether it exchanges, and lies within no step."""
        return self.copies_or_waits and not self.within_step

    @cached_property
    def copies_or_waits(self) -> bool:
        """§8.26: whether four fifths hold an exchange."""
        return self.most_hold([one.exchange for one in self.launches])

    @cached_property
    def reach_ns(self) -> int:
        """What was launched from the first to the last place."""
        return sum(one.gpu_ns for one in self.launches[self.places[0] : self.places[-1]])

    @cached_property
    def gpu_ns(self) -> int:
        """What the regular stretches launched."""
        return sum(self.launches[at].gpu_ns for a, b in self.regular for at in range(a, b))

    @cached_property
    def most_frequent(self) -> int:
        """How many regular stretches are of the most frequent sort."""
        sorts = Counter(self._sort(a, b) for a, b in self.regular)
        return max(sorts.values())

    @property
    def alike(self) -> Fraction:
        """How many of the others are as the first one of the most frequent sort."""
        most = max(self.most_frequent, self.most_updating)
        return Fraction(most - 1, len(self.regular) - 1)

    @property
    def most_updating(self) -> int:
        """How many regular stretches update in the most frequent way."""
        sorts = Counter(self._update(a, b) for a, b in self.regular)
        del sorts[frozenset()]  # no update
        return max(sorts.values(), default=0)

    def _update(self, a: int, b: int) -> frozenset[tuple[object, int]]:
        names = Counter(one.exact for one in self.launches[a:b] if one.optimizer)
        return frozenset(names.items())

    def _sort(self, a: int, b: int) -> frozenset[tuple[object, int]]:
        names = Counter(one.name for one in self.launches[a:b] if not one.copies)
        return frozenset(names.items())

    @property
    def left(self) -> int:
        """How many launches are left from the last place on."""
        return len(self.launches) - self.places[-1]

    @property
    def alone(self) -> bool:
        """§8.26: whether it counts where no other does."""
        all_regular = self.places[0] == 0 and len(self.regular) == len(self.stretches)
        whole = 10 * abs(self.left - self.length) <= self.length
        return all_regular and whole and self.ends_in_itself and not self.within_step

    @property
    def ends_in_itself(self) -> bool:
        """§8.26: whether the kernels that are left are how the last stretch begins."""
        left, stretch = self._kernels(self.places[-1], None), self._kernels(*self.places[-2:])
        return left == stretch[: len(left)]

    @property
    def of_passes(self) -> bool:
        """§8.26: whether its stretches are passes."""
        enough = len(self.places) >= (20 if self.holds_layers else 50)
        alike = self._changes(100) <= 2 or self._changes_slightly
        return enough and not self.within_step and self.ends_in_itself and alike

    @property
    def _changes_slightly(self) -> bool:
        """§8.27: whether few stretches differ, of those that hold layers, and slightly."""
        seldom = 13 * self._changes(100) <= 2 * len(self.stretches)
        return self.holds_layers and seldom and self._changes(20) <= 2

    def _changes(self, part: int) -> int:
        """How many stretches differ from the one before in more than one of `part` kernels."""
        changes = 0
        for one, other in pairwise(Counter(self._kernels(a, b)) for a, b in self.stretches):
            differing = (one - other).total() + (other - one).total()
            changes += part * differing > one.total() + other.total()
        return changes

    @property
    def holds_layers(self) -> bool:
        """§8.26: whether half of the launches are of something that comes again in a stretch."""
        names = [one.name for one in self.launches]
        last: dict[tuple[object, ...], int] = {}
        again = []
        for at in range(7, len(names)):
            eight = tuple(names[at - 7 : at + 1])
            if eight in last and 3 * (at - last[eight]) <= self.length:
                again.append(at)
            last[eight] = at
        first, end = self.places[0], self.places[-1]
        return 2 * sum(first <= at < end for at in again) >= end - first

    def _kernels(self, a: int, b: int | None) -> list[tuple[bool, str]]:
        return [one.name for one in self.launches[a:b] if not one.copies]

    @property
    def rich(self) -> bool:
        """§8.27: whether a step holds a graph, or enough names."""
        return self.has_graph or len(self.names) >= (3 if self.exchanges else 5)

    @property
    def updates(self) -> int:
        """How many stretches hold an optimizer, the one behind the last place too."""
        ends = [*self.places[1:], len(self.launches)]
        return sum(
            any(one.optimizer for one in self.launches[a:b])
            for a, b in zip(self.places, ends, strict=True)
        )

    @cached_property
    def until_optimizer(self) -> int:
        """How many launches it is from a place to the next optimizer; -1 where none follows."""
        optimizers = [at for at, one in enumerate(self.launches) if one.optimizer]
        ahead = [(a, [at for at in optimizers if at >= a]) for a, _ in self.stretches]
        known = [min(later) - a for a, later in ahead if later]
        return lower_median(known) if known else -1

    @property
    def names(self) -> set[object]:
        """The names of a step."""
        return {one.name for one in self._step}

    @property
    def has_graph(self) -> bool:
        """Whether a step holds a graph."""
        return any(one.graph for one in self._step)

    @property
    def _step(self) -> tuple[Launch, ...]:
        return self.launches[self.places[-1] - self.length : self.places[-1]]


def lower_median(values: list[int]) -> int:
    """Of two in the middle, the smaller."""
    return sorted(values)[(len(values) - 1) // 2]


Repetition = tuple[list[int], int, bool]
"""Where each step begins, where the last one ends, and whether that is cut off."""

NOTHING: Repetition = ([], 0, False)


def codes(launches: list[Launch]) -> list[list[Code | None]]:
    """§8.25: what each launch has in common with others."""
    names: list[Code | None] = [one.name for one in launches]
    pairs = [(a.name, b.name) for a, b in pairwise(launches)]
    return [names, [one.exact for one in launches], [*pairs, None]]


def good_marks(launches: list[Launch]) -> list[Mark]:
    """§8.25."""
    rows = [tuple(one.name for one in launches[at - 7 : at + 1]) for at in range(7, len(launches))]
    counts = Counter(rows)
    known = [one.graph for one in launches]
    for at, row in enumerate(rows, start=7):
        known[at] = known[at] or counts[row] > 1
    found = []
    for family, of_launches in enumerate(codes(launches)):
        places: dict[Code, list[int]] = defaultdict(list)
        for at, code in enumerate(of_launches):
            if code is not None:
                places[code].append(at)
        for code, where in places.items():
            if len(where) < 3:
                continue
            mark = Mark(family, code, tuple(where), tuple(launches))
            inside = [at for a, b in mark.regular for at in range(a, b)]
            if 3 * len(mark.regular) < 2 * len(mark.stretches):
                continue
            computes = mark.most_hold([not one.copies and not one.solves for one in launches])
            total_ns = sum(one.gpu_ns for one in launches)
            lasts = mark.replays or 12 * mark.gpu_ns >= total_ns
            if lasts and computes and 2 * sum(known[at] for at in inside) >= len(inside):
                found.append(mark)
    return found


def decided(launches: list[Launch]) -> tuple[Mark, bool] | None:
    """§8.26, §8.27: the mark where the steps begin, and whether much follows it that tells that
    these may be no steps."""
    marks = good_marks(launches)
    passes = [] if updating(marks) else [mark for mark in marks if len(mark.places) >= 20]
    passes = [mark for mark in passes if not mark.within_step]
    while passes:
        level = shortest_of(passes)
        mark = border(level)
        if mark.rich and mark.of_passes:
            return mark, False
        passes = longer_than(level, passes)
    while True:
        count = (
            updating(marks)
            or [mark for mark in marks if mark.exchanges_apart]
            or [mark for mark in marks if mark.optimizes or mark.replays]
            or [mark for mark in marks if mark.alone]
        )
        if not count:
            return None
        most = max(mark.gpu_ns for mark in count)
        count = [mark for mark in count if 2 * mark.gpu_ns >= most]
        steady = [mark for mark in count if 4 * len(mark.regular) >= 3 * len(mark.stretches)]
        count = steady or count
        best = max(mark.alike for mark in count)
        count = [mark for mark in count if 3 * mark.alike >= 2 * best]
        level = shortest_of(count)
        mark = border(level)
        if mark.rich:
            told = mark.optimizes or mark.replays
            return mark, not told and mark.left > 2 * mark.length
        marks = longer_than(level, marks)


def updating(marks: list[Mark]) -> list[Mark]:
    """§8.26: the marks that optimize and reach far."""
    told = [mark for mark in marks if mark.optimizes or mark.replays or mark.exchanges_apart]
    most = max((mark.gpu_ns for mark in told), default=0)
    return [mark for mark in told if mark.optimizes and 2 * mark.reach_ns >= most]


def shortest_of(marks: list[Mark]) -> list[Mark]:
    """§8.26: the level of these marks."""
    shortest = min(mark.length for mark in marks)
    return [mark for mark in marks if 2 * mark.length <= 3 * shortest]


def longer_than(level: list[Mark], marks: list[Mark]) -> list[Mark]:
    """§8.27: the marks that are longer than a level."""
    shortest = min(mark.length for mark in level)
    return [mark for mark in marks if 2 * mark.length > 3 * shortest]


def border(level: list[Mark]) -> Mark:
    """§8.27: the mark of a level where the steps begin."""
    level = [mark for mark in level if mark.always_optimizes] or level
    counts = Counter(len(mark.places) for mark in level)
    usual = max(counts, key=lambda places: (counts[places], places))
    if not any(mark.optimizes for mark in level):
        there = [mark for mark in level if len(mark.places) == usual]
        return min(there, key=lambda mark: (mark.places[0], mark.family))
    near = [mark for mark in level if abs(len(mark.places) - usual) <= 1]
    behind = [mark for mark in near if not mark.launches[mark.places[0]].optimizer]
    return min(
        behind or near,
        key=lambda mark: (-mark.updates, -mark.until_optimizer, mark.places[0], mark.family),
    )


def without_warm_up(places: list[int], length: int, end: int) -> tuple[list[int], int]:
    """§8.28: the loop, and where it ends, without one or two passes apart from it."""
    apart = [at for at, (a, b) in enumerate(pairwise(places), start=1) if 2 * (b - a) > 3 * length]
    if len(apart) != 1:
        return places, end
    before, behind = places[: apart[0]], places[apart[0] :]
    if len(before) < 3 <= len(behind):
        return behind, end
    if len(behind) < 3 <= len(before):
        return before, behind[0]
    return places, end


def repetition(launches: list[Launch]) -> Repetition:
    """§8.28: the steps of these launches."""
    return max(in_turn(launches), key=lambda loop: loop_ns(launches, loop), default=NOTHING)


def in_turn(launches: list[Launch]) -> list[Repetition]:
    """§8.28: their loops, one behind the other."""
    first = max(0, (len(launches) - DECIDING) // 2)
    deciding = launches[first : first + DECIDING]
    chosen = decided(deciding)
    if chosen is None:
        return []
    mark, followed = chosen
    found = steps_of(launches, mark)
    begins, end, _ = found
    if not begins:
        return []
    if mark.optimizes:
        return [found]
    borders = [at for at in [*begins, end] if at >= first - mark.length]
    borders = [at for at in borders if at <= first + len(deciding)]
    rounds = [running(launches[a:b]) for a, b in pairwise(borders)]
    related = sum(bool(one & other) for one, other in pairwise(map(set, rounds)))
    if 2 * related < len(rounds) - 1:
        return []
    last, behind = len(launches), []
    if followed:
        last, behind = end, lasting(launches, end, len(launches))
        if not behind or not lasts(launches, found):
            return []
        one, other, *_ = behind[0][0]
        if one - end > max(mark.length, other - one):
            return []
    others = {borders[at] for at in switches(rounds)}
    inside = [
        (a + mark.length, b)
        for a, b in pairwise(begins)
        if b - a > 2 * mark.length and lasting(launches, a + mark.length, b)
    ]
    others |= set(inside[0]) if len(inside) == 1 else set()
    parts = [lasting(launches, a, b) for a, b in pairwise([0, *sorted(others), last]) if others]
    known = [loop for part in parts for loop in part]
    return [*(known if len(known) > 1 else [found]), *behind]


def running(launches: list[Launch]) -> Counter[object]:
    """§8.28: the time of each kernel and graph of a round, by name."""
    spent: Counter[object] = Counter()
    for one in launches:
        if not one.copies:
            spent[one.name] += one.gpu_ns
    return spent


def switches(rounds: list[Counter[object]]) -> list[int]:
    """§8.28: the rounds with which another loop begins."""
    found, begun = [], Counter[object]()
    for at in range(LASTING, len(rounds) - LASTING + 1):
        before, now = rounds[at - 1], rounds[at]
        earlier, later = set().union(*rounds[at - 5 : at]), set().union(*rounds[at : at + 5])
        new = {name for name in now if name in rounds[at + 1] and name not in earlier}
        gone = {name for name in before if name in rounds[at - 2] and name not in later}
        differing_ns = sum(now[name] for name in new) + sum(before[name] for name in gone)
        other = 2 * len(new | gone) >= len({*before, *now})
        if other and 2 * differing_ns > before.total() + now.total():
            found.append(at)
            begun.update(new)
    return found if all(count == 1 for count in begun.values()) else []


def loop_ns(launches: list[Launch], loop: Repetition) -> int:
    """The time of all that its steps launched."""
    begins, end, _ = loop
    return sum(one.gpu_ns for one in launches[begins[0] : end])


def lasts(launches: list[Launch], loop: Repetition) -> bool:
    """§8.28, §8.30: whether it is none of a few passes, or of hardly any time."""
    total_ns = sum(one.gpu_ns for one in launches)
    return len(loop[0]) >= LASTING and 12 * loop_ns(launches, loop) >= total_ns


def moved(loop: Repetition, rows: int) -> Repetition:
    """The same where so many launches precede."""
    begins, end, cut = loop
    return [at + rows for at in begins], end + rows, cut


def lasting(launches: list[Launch], first: int, past: int) -> list[Repetition]:
    """§8.28: the loops that last from one row to another, as if that were all."""
    found = [moved(loop, first) for loop in in_turn(launches[first:past])]
    return [loop for loop in found if lasts(launches, loop)]


def steps_of(launches: list[Launch], mark: Mark) -> Repetition:
    """§8.28: the steps that begin at a mark."""
    places = [at for at, code in enumerate(codes(launches)[mark.family]) if code == mark.code]
    end = len(launches)
    if mark.optimizes:
        holds = [any(one.optimizer for one in launches[a:b]) for a, b in pairwise(places)]
        if True not in holds:
            return NOTHING
        last = max(at for at, one in enumerate(holds) if one)
        if last < len(holds) - 1:
            places, end = places[: last + 1], places[last + 1]
        places = places[holds.index(True) :]
    else:
        places, end = without_warm_up(places, mark.length, end)
    if len(places) < 3:
        return NOTHING
    middle, back = places[len(places) // 2], 0
    while back < min(places[0], mark.length - 1):
        before = launches[places[0] - back - 1]
        if before.name != launches[middle - back - 1].name or (mark.optimizes and before.optimizer):
            break
        back += 1
    begins = [place - back for place in places]
    end = end if end == len(launches) else end - back
    left = min(end - begins[-1], mark.length)
    shortest = min(b - a for a, b in mark.regular)
    updates = any(one.optimizer for one in launches[begins[-1] : end])
    cut = not updates if mark.optimizes else left < shortest
    names = [one.name for one in launches]
    if cut and names[begins[-1] :][:left] != names[begins[-2] :][:left]:
        end = min(begins[-1], begins[-2] + mark.length)
        begins, cut, left = begins[:-1], False, end - begins[-2]
    if len(begins) < 3:
        return NOTHING
    return begins, begins[-1] + left, cut
