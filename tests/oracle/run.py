"""The ledger of the recorded time (spec §8.17, §8.18), and what is judged (§8.16)."""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, factorial
from statistics import median

from tests.oracle.accounting import Interval, Keep, common, length, parts, union
from tests.oracle.gap_tables import blamed
from tests.oracle.gaps import CAUSES, Gap
from tests.oracle.idle_places import NOT_RECORDED, name_of, places_in
from tests.oracle.loops import loops_of
from tests.oracle.once import grouped_by
from tests.oracle.phases import end_of_trace, lasting
from tests.oracle.report import Path, Report, Row, joined
from tests.oracle.steps import Step, compiles_much, instances_of, kinds_of, loads_much, track_of

PARTS = ("start-up", "typical", "recurring", "longer", "loop", "between", "end")


@dataclass
class Piece:
    """A step, an instance of a loop, or what lies around them, as far as the window holds it."""

    part: str
    step: Step | None
    inside: list[Interval]
    whole: bool
    idle: list[Gap]
    excess_ns: int | None = None
    rhythm: int | None = None
    every: int | None = None

    def kind(self) -> tuple[object, ...]:
        """What those of one row have in common."""
        return self.part, self.rhythm, self.part == "loop" and self.step and self.step.loop


def judged(report: Report, keep: Keep | None, name: str | None, taken: set[int] | None) -> Keep:
    """§8.16: the windows of the steps that are judged; `taken` are the numbers of `--steps`."""
    found: Keep = {}
    for step, kind in kinds_of(report, name).items():
        span = [(step.start_ns, step.end_ns)]
        of_whole = kind.name not in ("cut-off", "incomplete")
        wanted = kind.name == "steady" if taken is None else step.index in taken and of_whole
        window = report.windows[step.device] if keep is None else keep.get(step.device, [])
        if wanted and (common(span, union(window)) == span or span[0][0] == span[0][1]):
            found.setdefault(step.device, []).extend(span)
    return {device: union(spans) for device, spans in found.items() if union(spans)}


def run(report: Report, keep: Keep | None = None, name: str | None = None) -> list[Row]:
    """§8.17: the rows, of each process with steps on a device."""
    rows = []
    tracks = grouped_by(track_of, instances_of(report, name))
    for (process, device), mine in sorted(tracks.items()):
        pieces = _pieces(report, mine, keep, name)
        _find_rhythms(report, pieces, mine, keep, name)
        groups = grouped_by(Piece.kind, pieces).values()
        rows += [_row(report, process, device, group, keep, name) for group in groups]
    return rows


def recorded(report: Report, process: int) -> Interval:
    """§8.17: from the first start to the last end of a process's events."""
    mine = [row for row in lasting(report.trace) if row.process == process]
    ends = (end_of_trace(report.trace) if row.end_ns is None else row.end_ns for row in mine)
    return min(row.start_ns for row in mine), max(ends)


def _pieces(
    report: Report, instances: list[Step], keep: Keep | None, name: str | None
) -> list[Piece]:
    device = instances[0].device
    kinds = kinds_of(report, name)
    first_ns, last_ns = recorded(report, instances[0].process)
    spans: list[tuple[str, Step | None, int, int]] = []
    starting: set[tuple[int, int]] = set()
    before = first_ns
    for at, one in enumerate(instances):
        kind = "loop" if one.loop else kinds[one].name
        begins = not at or kind == "start-up"
        spans.append(("start-up" if begins else "between", None, before, one.start_ns))
        if one.loop:
            leads = not one.index or (one.loop, one.index - 1) in starting
            if leads and (loads_much(report, one) or compiles_much(report, one)):
                starting.add((one.loop, one.index))
                kind = "start-up"
        if kind in ("cut-off", "incomplete"):
            kind = "end" if at == len(instances) - 1 else "between"
        part = {"steady": "typical", "one-off": "longer"}.get(kind, kind)
        counts = part == "loop" or not one.loop
        spans.append((part, one if counts else None, one.start_ns, one.end_ns))
        before = one.end_ns
    spans.append(("end", None, before, last_ns))
    pieces = []
    for part, step, start, end in spans:
        if start >= end:
            continue
        inside = [(start, end)]
        if keep is not None:
            inside = common(inside, union(keep.get(device, [])))
        if not inside:
            continue
        idle = [gap for gap in report.gaps_on(device) if start <= gap.start_ns < end]
        excess_ns = kinds[step].excess_ns if step and not step.loop else None
        pieces.append(Piece(part, step, inside, inside == [(start, end)], idle, excess_ns))
    return pieces


def _idle_by_place(
    report: Report, pieces: list[Piece], keep: Keep | None, causes: tuple[str, ...]
) -> dict[Path | None, int]:
    """The idle time of these pieces and causes by place."""
    sums: dict[Path | None, int] = {}
    for piece in pieces:
        for gap in piece.idle:
            for cause in causes:
                for spot, ns in places_in(report, gap, cause, keep).items():
                    sums[spot] = sums.get(spot, 0) + ns
    return sums


def _most(sums: dict[Path | None, int]) -> Path | None:
    """The place with most; ties go to the first, compared name by name, outside ranges first."""
    return min(sums, key=lambda spot: (-sums[spot], spot or ()), default=None)


def _find_rhythms(
    report: Report, pieces: list[Piece], instances: list[Step], keep: Keep | None, name: str | None
) -> None:
    """§8.18: mark the pauses that come back."""
    kinds = kinds_of(report, name)
    steps = [one for one in instances if not one.loop]
    run_of = [one for one in steps if kinds[one].name != "start-up"]
    steady = [one.end_ns - one.start_ns for one in steps if kinds[one].name == "steady"]
    unit = max(1, round(median(steady))) if steady else 1
    longer = [piece for piece in pieces if piece.part == "longer" and piece.step]
    at_place = grouped_by(
        lambda piece: _most(_idle_by_place(report, [piece], keep, CAUSES)), longer
    )
    for pauses in at_place.values():
        for left in _of_each_size(pauses):
            _mark_rows(left, run_of, unit)


def _of_each_size(pauses: list[Piece]) -> list[list[Piece]]:
    """§8.18: four or more that are far longer than all others are apart from these."""
    if any(piece.excess_ns is None for piece in pauses):
        return [pauses]
    order = sorted(pauses, key=lambda piece: -(piece.excess_ns or 0))
    for count in range(4, len(order)):
        if (order[count - 1].excess_ns or 0) > 4 * (order[count].excess_ns or 0):
            longer = [piece for piece in pauses if piece in order[:count]]
            shorter = [piece for piece in pauses if piece in order[count:]]
            return [longer, *_of_each_size(shorter)]
    return [pauses]


def _mark_rows(left: list[Piece], run_of: list[Step], unit: int) -> None:
    """§8.18: the rows among pauses of one place and size."""
    while left and (row := _best_row(left, run_of, unit)) is not None:
        members, every = row
        for piece in members:
            piece.part, piece.rhythm, piece.every = "recurring", id(members[0]), every
        left = [piece for piece in left if piece not in members]


def _best_row(pauses: list[Piece], run_of: list[Step], unit: int) -> tuple[list[Piece], int] | None:
    """§8.18: the row that is least expected by chance."""
    numbers = [piece.step.index for piece in pauses if piece.step]
    starts = [piece.inside[0][0] for piece in pauses]
    found = []
    for places, by_number in ((numbers, True), ([start / unit for start in starts], False)):
        tried = max(8, min(60, int((2_000_000 / len(pauses)) ** 0.5)))
        for first in range(min(len(pauses), tried)):
            for second in range(first + 1, min(len(pauses), first + tried)):
                row = _row_from(places, first, second, by_number=by_number)
                if len(row) >= 4:
                    found.append((*_expected(places, numbers, row, run_of, by_number), row))
    if not found:
        return None
    chance, every, row = min(found, key=lambda one: (one[0], one[1], one[2][0]))
    return ([pauses[at] for at in row], every) if chance <= 1e-3 else None


def _row_from(
    places: list[int] | list[float], first: int, second: int, *, by_number: bool
) -> list[int]:
    distance = places[second] - places[first]
    if distance < 2:
        return []
    reach = 2 if by_number else 10 * distance / 100
    row = [first, second]
    for sign in (1, -1):
        while True:
            end = row[-1] if sign > 0 else row[0]
            due = places[end] + sign * distance
            near = [
                at
                for at in range(len(places))
                if due - reach <= places[at] <= due + reach
                and (at > end) == (sign > 0)
                and at != end
            ]
            if not near:
                break
            nearest = min(near, key=lambda at: (abs(places[at] - due), at))
            row = [*row, nearest] if sign > 0 else [nearest, *row]
    return row


def _expected(
    places: list[int] | list[float],
    numbers: list[int],
    row: list[int],
    run_of: list[Step],
    by_number: bool,
) -> tuple[float, int]:
    """How often as regular a row is expected by chance, and its usual distance in steps."""
    distances = [places[b] - places[a] for a, b in pairwise(row)]
    usual = median(distances)
    slots = 2 * max(abs(distance - usual) for distance in distances) + 1
    count = run_of[-1].index - run_of[0].index + 1
    if not by_number:
        count = max(count, ceil(places[-1] - places[0]) + 1)
    members, pauses = len(row), len(places)
    rows = sum(count - (members - 1) * k for k in range(2, (count - 1) // (members - 1) + 1))
    taken = factorial(pauses) / factorial(pauses - members)
    all_ways = factorial(count) // factorial(count - members)
    chance = rows * slots ** (members - 2) * taken / all_ways
    steps = [numbers[b] - numbers[a] for a, b in pairwise(row)]
    widest = max(steps) + 2
    spans = numbers[row[0]] - run_of[0].index <= widest and (
        run_of[-1].index - numbers[row[-1]] <= widest
    )
    return chance * (usual / count if spans else 1), round(median(steps))


def _row(
    report: Report,
    process: int,
    device: int,
    pieces: list[Piece],
    keep: Keep | None,
    name: str | None,
) -> Row:
    first = pieces[0]
    idle = {cause: sum(_idle_by_place(report, pieces, keep, (cause,)).values()) for cause in CAUSES}
    most = max(CAUSES, key=lambda cause: (idle[cause], -CAUSES.index(cause)))
    cause = most if idle[most] else None
    place = _most(_idle_by_place(report, pieces, keep, (cause,))) if cause else None
    lines = _lines(report, pieces, keep, cause, place) if cause else (None, None, None)
    phase = name_of(place) if cause != "unknown" else NOT_RECORDED
    if first.part == "loop" and first.step:
        phase = joined(loops_of(report, process, name)[first.step.loop - 1].path)
    steps = {(piece.step.loop, piece.step.index) for piece in pieces if piece.step}
    long = first.part in ("longer", "recurring") and all(piece.whole for piece in pieces)
    ops = [report.ops[index] for index in report.on(device)]
    spans = union(span for piece in pieces for span in piece.inside)
    split = parts(ops, spans)
    return {
        **report.about(process, device=device),
        "part": first.part,
        "steps": "" if first.part == "loop" else listed(sorted(index for _, index in steps)),
        "count": len(steps),
        "start_ns": min(piece.inside[0][0] for piece in pieces),
        "end_ns": max(piece.inside[-1][1] for piece in pieces),
        "time_ns": sum(length(piece.inside) for piece in pieces),
        "busy_ns": split["compute_ns"] + split["comm_exposed_ns"] + split["copy_exposed_ns"],
        "cause": cause,
        "cause_ns": idle[most] if cause else None,
        "phase": phase if cause or first.part == "loop" else None,
        "source": lines[0],
        "via": lines[1],
        "culprit": lines[2],
        "every": first.every,
        "excess_ns": sum(max(piece.excess_ns or 0, 0) for piece in pieces) if long else None,
    }


def _lines(
    report: Report, pieces: list[Piece], keep: Keep | None, cause: str, place: Path | None
) -> tuple[str | None, str | None, str]:
    """The line and the call with most of a cause at a place."""
    sums: dict[tuple[str | None, str | None, str], int] = {}
    for piece in pieces:
        for gap in piece.idle:
            for spot, ns in places_in(report, gap, cause, keep).items():
                if spot == place:
                    culprit, lines = blamed(report, gap, cause, spot)
                    sums[*lines, culprit] = sums.get((*lines, culprit), 0) + ns

    def order(key: tuple[str | None, str | None, str]) -> tuple[object, ...]:
        return -sums[key], *((text is not None, text or "") for text in key)

    return min(sums, key=order)


def listed(numbers: list[int]) -> str:
    """§8.17: the numbers by runs, four at most."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join([*texts[:4], *(["…"] if len(runs) > 4 else [])])
