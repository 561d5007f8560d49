"""Launch overhead and starvation (spec §5)."""

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import groupby, pairwise

from tests.oracle.account_table import causes_in, inside_ns, share
from tests.oracle.accounting import Keep, common, length, union
from tests.oracle.gaps import Gap
from tests.oracle.phase_table import Phase, begins, graph_estimate_ns, phases_of
from tests.oracle.report import Path, Report, Row, joined, prefixes
from tests.oracle.stats import mean, percentile, whole

STARVED_GAP_NS = 2_000
STARVED_OPS = 8
STARVED_PAUSE_NS = 50_000


def run_ahead(report: Report) -> dict[int, int]:
    """§5.2: per launch, how many operations had been launched before and had not started."""
    calls = report.calls.calls
    in_order = sorted(report.calls.launched, key=lambda launch: calls[launch].start_ns)
    found = {}
    for process in {call.process for call in calls}:
        earlier: list[int] = []  # starts of the operations launched before, in order
        mine = [launch for launch in in_order if calls[launch].process == process]
        for now, together in groupby(mine, key=lambda launch: calls[launch].start_ns):
            launches_now = list(together)
            for launch in launches_now:
                found[launch] = len(earlier) - bisect_right(earlier, now)
            for launch in launches_now:
                for op in report.calls.launched[launch]:
                    insort(earlier, report.ops[op].start_ns)
    return found


def launches(report: Report, keep: Keep | None = None) -> list[Row]:
    """§5.1 to §5.3, §5.9: one row per process and path (inclusive) that launches anything."""
    by_path: dict[tuple[int, Path], list[int]] = defaultdict(list)
    for launch, ops in report.calls.launched.items():
        first_op = min((report.ops[i] for i in ops), key=lambda op: (op.start_ns, op.device))
        if begins(first_op, keep):
            for path, _ in prefixes(report.place(launch)):
                by_path[report.calls.calls[launch].process, path].append(launch)
    starved = {
        report.calls.launch[gap.next_op]
        for gap in report.gaps.gaps
        if causes_in(gap, keep)["launch"] > 0
    }
    phases = phases_of(report, keep)
    ahead = run_ahead(report)
    rows = []
    for (process, path), found in sorted(by_path.items()):
        calls = [report.calls.calls[launch] for launch in found]
        # §5.1: latency is to a call's first operation
        first = [min(report.ops[i].start_ns for i in report.calls.launched[j]) for j in found]
        api = [call.end_ns - call.start_ns for call in calls]
        latency = [start - call.start_ns for start, call in zip(first, calls, strict=True)]
        queue = [max(0, start - call.end_ns) for start, call in zip(first, calls, strict=True)]
        phase = phases.get((process, path), Phase())
        launch_idle = phase.idle_ns["launch"]
        span_ns = phase.span_ns if keep is None else span_inside(report, phase, keep)
        rows.append(
            {
                **report.about(process, path=joined(path)),
                "launches": len(found),
                "api_ns": sum(api),
                "api_mean_ns": whole(mean(api)),
                "api_median_ns": whole(percentile(api, 50)),
                "api_p95_ns": whole(percentile(api, 95)),
                "latency_median_ns": whole(percentile(latency, 50)),
                "latency_p95_ns": whole(percentile(latency, 95)),
                "queue_median_ns": whole(percentile(queue, 50)),
                "queue_p95_ns": whole(percentile(queue, 95)),
                "run_ahead_median": float(
                    percentile([ahead[launch] for launch in found], 50) or Fraction(0)
                ),
                "starved_launches": len(starved & set(found)),
                "starved_pct": 100 * launch_idle / span_ns if span_ns else None,
            }
        )
    return rows


def span_inside(report: Report, phase: Phase, keep: Keep) -> int:
    """§5.9: the part of a phase's spans inside the window of any device."""
    windows = union(interval for kept in keep.values() for interval in kept)
    found = 0
    for launched in phase.launched.values():
        ops = [report.ops[i] for i in launched]
        span = (min(op.start_ns for op in ops), max(op.end_ns for op in ops))
        found += length(common([span], windows))
    return found


def starved_runs(report: Report, device: int) -> list[tuple[int, int]]:
    """§5.4, §5.5: `(start, end)` of each maximal run of launch gaps."""
    runs: list[list[Gap]] = []
    unbroken = False
    for gap in report.gaps_on(device):
        if gap.duration_ns <= STARVED_GAP_NS:
            continue
        launching = 2 * gap.causes["launch"] >= gap.duration_ns
        if launching:
            near = unbroken and gap.start_ns - runs[-1][-1].end_ns <= STARVED_PAUSE_NS
            if near:
                runs[-1].append(gap)
            else:
                runs.append([gap])
        unbroken = launching
    return [(run[0].start_ns, _end_of_run(report, run[-1])) for run in runs]


def _end_of_run(report: Report, last: Gap) -> int:
    """§5.5: the end of the operation after the last gap, or its start if it is over 50 000 ns."""
    behind = report.ops[last.next_op]
    long = behind.end_ns - behind.start_ns > STARVED_PAUSE_NS
    return behind.start_ns if long else behind.end_ns


def starved(report: Report, keep: Keep | None = None) -> list[Row]:
    """§5.6: runs with enough operations and launch-caused idle; §5.8: cut to the window."""
    rows: list[Row] = []
    for device in report.devices:
        if not report.windows[device]:
            continue
        kept = report.windows[device] if keep is None else keep.get(device, [])
        for run in starved_runs(report, device):
            for run_start, run_end in common([run], kept):
                row = _run(report, device, run_start, run_end)
                if row["ops"] >= STARVED_OPS and 2 * row["launch_idle_ns"] >= run_end - run_start:
                    rows.append(row)
    return sorted(rows, key=lambda row: (-row["launch_idle_ns"], row["device"], row["start_ns"]))


def _run(report: Report, device: int, start_ns: int, end_ns: int) -> Row:
    """§5.7: the columns of one window."""
    ops = report.starting_in(device, start_ns, end_ns)
    gaps = report.gaps_in(device, start_ns, end_ns)
    inside = [(gap, inside_ns(gap, [(start_ns, end_ns)])) for gap in gaps]
    kernels = [report.ops[i] for i in ops if report.ops[i].kind == "kernel"]
    launched = {launch for i in ops if (launch := report.calls.launch[i]) is not None}
    at = sorted({report.calls.calls[launch].start_ns for launch in launched})
    intervals = [later - earlier for earlier, later in pairwise(at)]
    return {
        "report": report.trace.report,
        "device": device,
        "phase": joined(_commonest_path(report, ops)) if ops else "",
        "start_ns": start_ns,
        "end_ns": end_ns,
        "ops": len(ops),
        "kernels": len({kernel.name for kernel in kernels}),
        "median_kernel_ns": whole(percentile([k.end_ns - k.start_ns for k in kernels], 50)),
        "median_interval_ns": whole(percentile(intervals, 50)),
        "launch_idle_ns": sum(share(gap, ns)["launch"] for gap, ns in inside),
        "idle_ns": sum(ns for _, ns in inside),
        "graph_estimate_ns": graph_estimate_ns(report, ops),
    }


def _commonest_path(report: Report, ops: list[int]) -> Path:
    """§5.7: the path with the most operations; ties go to that of the earliest operation."""
    paths = Counter(report.op_place(index).path for index in ops)
    first: dict[Path, tuple[int, bool, int, Path]] = {}
    for index in ops:
        launch = report.calls.launch[index]
        path = report.op_place(index).path
        order = (report.ops[index].start_ns, launch is None, launch or 0, path)
        first[path] = min(order, first.get(path, order))
    return min(paths, key=lambda path: (-paths[path], first[path]))
