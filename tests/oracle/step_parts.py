"""What each step consists of (spec §19)."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from tests.oracle.accounting import covered, is_comm, is_compute, is_copy
from tests.oracle.comm import started_order
from tests.oracle.gap_tables import blamed
from tests.oracle.gaps import CAUSES, Gap
from tests.oracle.gpu_metrics import class_of
from tests.oracle.idle_places import name_of, places_in
from tests.oracle.model import Op
from tests.oracle.report import Report, Row, joined
from tests.oracle.steps import Piece, pieces_of

PARTS = (("compute", is_compute), ("communication", is_comm), ("copies", is_copy))
"""§2: in this order, each hides those after it."""


@dataclass(frozen=True)
class Key:
    """§19.3: what has these in common is one row of a step."""

    part: str
    kind: str
    name: str
    grid: str | None
    phase: str
    source: str | None = None
    via: str | None = None


@dataclass
class Took:
    """What a row took of a step."""

    ns: int = 0
    duration_ns: int = 0
    count: int = 0


def step_parts(report: Report) -> list[Row]:
    """§19: one row per step and key."""
    short_names: dict[str, str] = {}
    for op in report.ops:
        short_names[op.name] = min(op.short_name, short_names.get(op.name, op.short_name))
    keys = [key_of(report, index, short_names[op.name]) for index, op in enumerate(report.ops)]
    owned = {device: owners(report, device) for device in report.devices}
    rows: list[Row] = []
    for piece in pieces_of(report):
        took: dict[Key, Took] = defaultdict(Took)
        for start_ns, end_ns, index in reaching(owned[piece.device], piece):
            took[keys[index]].ns += piece.part_of(start_ns, end_ns)
        for index in report.starting_in(piece.device, piece.start_ns, piece.end_ns):
            op = report.ops[index]
            took[keys[index]].duration_ns += op.end_ns - op.start_ns
            took[keys[index]].count += 1
        for gap in report.gaps_in(piece.device, piece.start_ns, piece.end_ns):
            if piece.holds(gap.start_ns):
                for key, ns in parts_of(report, gap):
                    took[key].ns += ns
                    took[key].count += 1
        about = report.about(piece.process, device=piece.device, step=piece.step)
        for key, row in took.items():
            if row.ns or row.count:
                short_name = key.name if key.part == "idle" else short_names[key.name]
                rows.append(about | vars(key) | vars(row) | {"short_name": short_name})
    return rows


def owners(report: Report, device: int) -> list[tuple[int, int, int]]:
    """§19.5: each stretch in which the same operations run, and the one that it belongs to."""
    ops = [index for index in report.on(device) if covered([report.ops[index]])]
    order = {index: (part_of(report.ops[index]), started_order(report, index)) for index in ops}
    starts, ends = defaultdict(set), defaultdict(set)
    for index in ops:
        starts[report.ops[index].start_ns].add(index)
        ends[report.ops[index].end_ns].add(index)
    found, running = [], set[int]()
    for border_ns, next_ns in pairwise(sorted({*starts, *ends})):
        running = (running - ends[border_ns]) | starts[border_ns]
        if running:
            found.append((border_ns, next_ns, min(running, key=order.__getitem__)))
    return found


def reaching(owned: list[tuple[int, int, int]], piece: Piece) -> list[tuple[int, int, int]]:
    """The stretches, which are in order, that lie partly in a piece."""
    first = bisect_right(owned, piece.start_ns, key=lambda stretch: stretch[1])
    return owned[first : bisect_left(owned, piece.end_ns, key=lambda stretch: stretch[0])]


def part_of(op: Op) -> int:
    """§19.4: the place of an operation's part in `PARTS`."""
    return next(place for place, (_, belongs) in enumerate(PARTS) if belongs(op))


def key_of(report: Report, index: int, short_name: str) -> Key:
    """§19.4."""
    op = report.ops[index]
    return Key(
        part=PARTS[part_of(op)][0],
        kind=op.short_name if is_copy(op) else class_of(replace(op, short_name=short_name)),
        name=op.name,
        grid=grid_of(op),
        phase=joined(report.op_place(index).path),
    )


def grid_of(op: Op) -> str | None:
    if op.shape is None:
        return None
    return f"{op.shape.grid_x}x{op.shape.grid_y}x{op.shape.grid_z}"


def parts_of(report: Report, gap: Gap) -> Iterator[tuple[Key, int]]:
    """§19.7: the parts of a gap, as gap_summary has them."""
    for cause in filter(gap.causes.__getitem__, CAUSES):
        for spot, ns in places_in(report, gap, cause).items():
            culprit, lines = blamed(report, gap, cause, spot)
            yield Key("idle", cause, culprit, None, name_of(spot), *lines), ns
