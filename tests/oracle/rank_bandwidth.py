"""Bandwidth and slow links, and ranks far from the others (spec §9.16 to §9.18)."""

import re
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction

from tests.oracle.rank_tables import in_window, message
from tests.oracle.ranks import Collective, Run
from tests.oracle.report import Row
from tests.oracle.stats import percentile, whole

OPERATIONS = (
    ("ncclAllReduce", "all_?reduce", lambda n: Fraction(2 * (n - 1), n), False),
    ("ncclAllGather", "all_?gather", lambda n: Fraction(n - 1, n), True),
    ("ncclReduceScatter", "reduce_?scatter", lambda n: Fraction(n - 1, n), True),
    ("ncclAlltoAll", "all_?(to|2)_?all", lambda n: Fraction(n - 1, n), True),
    ("ncclBroadcast", "broadcast|bcast", lambda n: Fraction(1), False),
    ("ncclReduce", "reduce", lambda n: Fraction(1), False),
    ("ncclSend", "send|recv", lambda n: Fraction(1), False),
)
"""§9.17: an operation, the share that crosses the bus, whether it moves each rank's message."""


Key = tuple[int | None, str, int | None]
"""A group, an operation and a size."""

Transfer = tuple[int | None, int, int, int, int, int | None]
"""Message, duration, time of its kernels, of that overlapped, how many ranks, the first step."""


def operation(kernel: Collective) -> str:
    """§9.17: by NCCL's operation, else by the kernel's name."""
    for text in (kernel.operation or "", kernel.name):
        for name, pattern, _, _ in OPERATIONS:
            if re.search(pattern, text.lower()):
                return name
    return kernel.name


def size_of(size: int | None) -> int | None:
    """§9.17: rounded down to a power of two."""
    return 1 << (size.bit_length() - 1) if size else size


def bandwidth(run: Run, kinds: Mapping[int, str]) -> dict[Key, Row]:
    """§9.17, without the peak, by group, operation and size; `kinds` are of the groups."""
    found: dict[Key, list[Transfer]] = defaultdict(list)
    for met in in_window(run):
        kernels = list(met.of.values())
        key: Key = (met.group, operation(met.of[min(met.of)]), size_of(message(met)))
        lasts = sum(one.lasts_ns for one in kernels), sum(one.overlapped_ns for one in kernels)
        step = min((one.step for one in kernels if one.step is not None), default=None)
        done_ns = met.ended_ns - met.all_there_ns
        found[key].append((message(met), done_ns, *lasts, len(kernels), step))
    for one in run.alone:
        if one.in_window:
            found[None, operation(one), size_of(one.bytes)].append(
                (one.bytes, one.lasts_ns, one.lasts_ns, one.overlapped_ns, 0, one.step)
            )
    rows = {key: speed(key[1], of) for key, of in found.items()}
    for key, row in rows.items():
        row["slow_ns"] = None if key[0] is None else slow_ns(key, rows, found, kinds)
    return rows


def slow_ns(
    key: Key, rows: Mapping[Key, Row], found: Mapping[Key, list[Transfer]], kinds: Mapping[int, str]
) -> int | None:
    """§9.18."""

    def alike(other: Key) -> bool:
        same = other[1:] == key[1:] and rows[other]["ranks"] == rows[key]["ranks"]
        return same and kind(other) == kind(key)

    def kind(of: Key) -> str | None:
        return None if of[0] is None else kinds[of[0]]

    groups = [rows[other]["done_ns"] for other in rows if alike(other)]
    mine = rows[key]["done_ns"]
    if len(groups) >= 3:
        usual = whole(percentile(groups, 50)) or 0
        taken = sum(done for _, done, *_ in found[key])
        return taken - len(found[key]) * usual if is_slow(mine, groups) else None
    steps: dict[int, list[int]] = defaultdict(list)
    for _, done, *_, step in found[key]:
        if step is not None:
            steps[step].append(done)
    medians = {step: whole(percentile(of, 50)) or 0 for step, of in steps.items()}
    if len(steps) < 3:
        return None
    usual = whole(percentile([*medians.values()], 50)) or 0
    slow = [step for step, done in medians.items() if is_slow(done, [*medians.values()])]
    return sum(done - usual for step in slow for done in steps[step]) if slow else None


def is_slow(value: int, of: list[int]) -> bool:
    """§9.18: an outlier above the median, by a tenth."""
    usual = whole(percentile(of, 50)) or 0
    z = robust_z(value, of)
    return (z is None or z > 3.5) and value > usual and 10 * (value - usual) >= usual


def robust_z(value: int, of: list[int]) -> float | None:
    """§9.16."""
    usual = percentile(of, 50) or Fraction(0)
    away = percentile([abs(each - usual) for each in of], 50)  # type: ignore[misc]
    return float(0.6745 * float(value - usual) / float(away)) if away else None


def outliers(parts: Mapping[int, Mapping[str, list[int]]], order: list[str]) -> list[Row]:
    """§9.16: by rank and part, each judged step's time; the first in `order` is the whole step."""
    means = {
        rank: {part: round(Fraction(sum(of), len(of))) for part, of in own.items()}
        for rank, own in parts.items()
    }
    rows: list[tuple[tuple[int, int, int], Row]] = []
    step_ns = whole(percentile([own[order[0]] for own in means.values()], 50)) or 0
    for at, part in enumerate(order):
        values = [own[part] for own in means.values()]
        usual = whole(percentile(values, 50)) or 0
        for rank, own in means.items():
            z, away = robust_z(own[part], values), abs(own[part] - usual)
            if (z is None or abs(z) > 3.5) and away > 0 and 100 * away >= step_ns:
                row = {"rank": rank, "part": part, "ns": own[part], "median_ns": usual, "z": z}
                rows.append(((-away, rank, at), row))
    return [row for _, row in sorted(rows, key=lambda row: row[0])]


def speed(name: str, of: list[Transfer]) -> Row:
    ranks = of[0][4] or None
    done_ns = whole(percentile([done for _, done, *_ in of], 50))
    size = whole(percentile([each for each, *_ in of if each is not None], 50))
    known = [each for each in OPERATIONS if each[0] == name]
    if size is not None and known and known[0][3]:
        size = size * ranks if ranks else None
    per_s = 1e9 * size / done_ns if size is not None and done_ns else None
    crosses = known[0][2](ranks) if known and ranks else None
    if known and known[0][0] in ("ncclBroadcast", "ncclReduce", "ncclSend"):
        crosses = Fraction(1)
    lasts = sum(ns for _, _, ns, *_ in of)
    return {
        "ranks": ranks,
        "count": len(of),
        "bytes": size,
        "done_ns": done_ns,
        "algorithm_bytes_per_s": per_s,
        "bus_bytes_per_s": per_s * float(crosses) if per_s is not None and crosses else None,
        "overlapped_pct": 100 * sum(ns for *_, ns, _, _ in of) / lasts if lasts else None,
    }
