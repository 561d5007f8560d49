"""Clocks, power and temperature over time, what a lower clock costs, and traffic (spec §25)."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from math import ceil
from typing import Any

from nsysflow.base.peaks import PER_CYCLE, Unit, peak_flops
from tests.oracle.accounting import Interval, Keep, parts
from tests.oracle.once import grouped_by
from tests.oracle.report import Report, Row
from tests.oracle.steps import Piece, pieces_of

HOLD_NS = 1_000_000_000

ORDER = ("thermal", "power_brake", "hardware", "power_cap", "sync_boost", "setting", "idle", "none")
"""§25.1: the first that applies."""

Held = list[tuple[Interval, Any]]
"""The times for which values hold, with the value."""


def held(report: Report, device: int, column: str) -> Held:
    """§25.2: a value holds until the next one, at most 1 s."""
    at: dict[int, list[Any]] = defaultdict(list)
    for state in report.trace.gpu_states:
        value = getattr(state, column)
        if state.device == device and value is not None:
            at[state.time_ns].append(value)
    times = sorted(at)
    found = []
    for index, start in enumerate(times):
        end = min([start + HOLD_NS, *times[index + 1 : index + 2]])
        values = at[start]
        value = min(values, key=ORDER.index) if column == "limit" else max(values)
        found.append(((start, end), value))
    return found


def within(of: Held, start_ns: int, end_ns: int) -> list[tuple[Any, int]]:
    """The values that hold in a stretch, each with how long."""
    shares = [(value, min(end, end_ns) - max(start, start_ns)) for (start, end), value in of]
    return [(value, ns) for value, ns in shares if ns > 0]


def mean(shares: Iterable[tuple[int, int]]) -> Fraction | None:
    """§25.2: weighed by time; None where nothing holds."""
    known = [*shares]
    whole = sum(ns for _, ns in known)
    return Fraction(sum(value * ns for value, ns in known), whole) if whole else None


def clocks(report: Report, keep: Keep | None = None) -> list[Row]:
    """§25.3: a row per step, and per window of a GPU without steps."""
    if not report.trace.gpu_states:
        return []
    rows = [row_of(report, piece) for piece in pieces_of(report, keep)]
    return [row for row in rows if row is not None]


def place_of(report: Report, piece: Piece) -> Row:
    """The columns of a row that say what it is of."""
    times = {"start_ns": piece.start_ns, "end_ns": piece.end_ns}
    return report.about(piece.process, device=piece.device, step=piece.step, **times)


def row_of(report: Report, piece: Piece) -> Row | None:
    """One row; None where no value holds."""
    device, start_ns, end_ns = piece.device, piece.start_ns, piece.end_ns
    shares = {
        column: within(held(report, device, column), start_ns, end_ns)
        for column in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "limit")
    }
    if not any(shares.values()):
        return None
    clock = mean(shares["sm_clock_mhz"])
    readings = [value for value, _ in shares["sm_clock_mhz"]]
    highest = max((mhz for _, mhz in held(report, device, "sm_clock_mhz")), default=None)
    limits: Counter[str] = Counter()
    for value, ns in shares["limit"]:
        limits[value] += ns
    limiting = {name: ns for name, ns in limits.items() if name not in ("idle", "none")}
    longest = max(limiting, key=lambda name: (limiting[name], -ORDER.index(name)), default=None)
    window = [(start_ns, end_ns)] if end_ns > start_ns else []
    return {
        **place_of(report, piece),
        "sm_clock_mhz": number(clock),
        "lowest_mhz": min(readings, default=None),
        "highest_mhz": max(readings, default=None),
        "clock_pct": number(100 * clock / highest) if clock is not None and highest else None,
        "memory_clock_mhz": number(mean(shares["memory_clock_mhz"])),
        "power_w": number(mean(shares["power_w"])),
        "temperature_c": number(mean(shares["temperature_c"])),
        "limited_by": longest,
        "limited_pct": 100 * sum(limiting.values()) / sum(limits.values()) if limits else None,
        "compute_ns": parts([report.ops[i] for i in report.on(device)], window)["compute_ns"],
    }


def rates_held(report: Report, device: int, column: str) -> Held:
    """§25.5: a rate holds for the time before its instant, back to the reading before."""
    at: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in report.trace.gpu_traffic:
        value = getattr(one, column)
        if one.device == device and value is not None:
            at[one.time_ns].append((value, one.time_ns - one.past_ns))
    found, before = [], None
    for end in sorted(at):
        start = min(begun for _, begun in at[end])
        start = start if before is None else max(start, before)
        found.append(((start, end), max(value for value, _ in at[end])))
        before = end
    return found


TRAFFIC = tuple(f"{link}_{way}_bytes_per_s" for link in ("pcie", "nvlink") for way in ("tx", "rx"))


def traffic(report: Report, keep: Keep | None = None) -> list[Row]:
    """§25.6: a row per step and window in which a rate holds."""
    rows = []
    for piece in pieces_of(report, keep):
        device, start_ns, end_ns = piece.device, piece.start_ns, piece.end_ns
        means = {
            column: mean(within(rates_held(report, device, column), start_ns, end_ns))
            for column in TRAFFIC
        }
        if all(value is None for value in means.values()):
            continue
        copied = dict.fromkeys(("htod", "dtoh"), 0)
        for op in report.ops:
            if op.copy is not None and op.device == device and start_ns <= op.start_ns < end_ns:
                way = op.copy.direction.removeprefix("UVM ").lower()
                if way in copied:
                    copied[way] += op.copy.bytes
        rows.append(
            {
                **place_of(report, piece),
                **{column: number(value) for column, value in means.items()},
                **{
                    f"{way}_bytes_per_s": number(Fraction(n * 10**9, end_ns - start_ns))
                    for way, n in copied.items()
                },
            }
        )
    return rows


def number(value: Fraction | None) -> float | None:
    """As a float."""
    return None if value is None else float(value)


def drops(rows: list[Row]) -> list[Row]:
    """§25.4: what a lower clock costs, of the rows of clocks of judged steps."""
    known = [r for r in rows if r["step"] is not None and r["sm_clock_mhz"] is not None]
    steps = grouped_by(lambda row: (row["report"], row["process"], row["device"]), known)
    found = []
    for (report, process, device), mine in sorted(steps.items()):
        mine.sort(key=lambda row: (row["compute_ns"], row["step"]))
        fast = mine[: ceil(len(mine) / 4)]
        r, c, d = (
            sum(map(Fraction, values)) / len(fast)
            for values in (
                [row["sm_clock_mhz"] for row in fast],
                [row["compute_ns"] for row in fast],
                [row["end_ns"] - row["start_ns"] for row in fast],
            )
        )
        slow, lost = [], []
        for row in mine:
            clock, compute = Fraction(row["sm_clock_mhz"]), row["compute_ns"]
            duration = row["end_ns"] - row["start_ns"]
            if clock <= Fraction(98, 100) * r and compute > c and duration > d:
                slow.append(row)
                share = 1 - clock / r if r else Fraction(0)
                lost.append(min(compute * share, compute - c, duration - d))
        if slow and len(mine) >= 5 and r > 0:
            by = Counter(row["limited_by"] for row in slow if row["limited_by"] is not None)
            found.append(
                {
                    "report": report,
                    "process": process,
                    "device": device,
                    "steps": len(mine),
                    "slow_steps": len(slow),
                    "fast_mhz": float(r),
                    "slow_mhz": sum(row["sm_clock_mhz"] for row in slow) / len(slow),
                    "lost_ns": float(sum(lost) / len(mine)),
                    "lost_pct": float(100 * sum(lost) / sum(row["compute_ns"] for row in slow)),
                    "limited_by": max(
                        by, key=lambda name: (by[name], -ORDER.index(name)), default=None
                    ),
                }
            )
    return found


def peak_of(report: Report, device: int, unit: Unit) -> float | None:
    """§24.6: the peak at the mean clock over the windows, where that is known; else the stated."""
    gpu, name = report.gpu(device), report.gpu_name(device) or ""
    stated = peak_flops(name, unit)
    shares = [
        share
        for window in report.windows.get(device, [])
        for share in within(held(report, device, "sm_clock_mhz"), *window)
    ]
    clock, rate = mean(shares), PER_CYCLE.get(name, {}).get(unit)
    if gpu is None or stated is None or not clock or not rate or not gpu.sm_count:
        return stated
    return float(clock * 1_000_000 * gpu.sm_count * rate)
