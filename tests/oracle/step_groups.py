"""The window by kind of step (spec §8.17, §8.18), and what is judged (§8.16)."""

from dataclasses import dataclass

from tests.oracle.account_table import share
from tests.oracle.accounting import Interval, Keep, common, length, parts, union
from tests.oracle.gap_tables import gaps as gap_rows
from tests.oracle.gaps import CAUSES
from tests.oracle.report import Report, Row, os_pid
from tests.oracle.steps import Step, kinds_of, steps_of

ORDER = ("before", "steady", "periodic", "one-off", "incomplete", "cut-off", "after")


@dataclass
class Piece:
    """A step, or what precedes or follows the steps, as far as it lies in the window."""

    kind: str
    step: Step | None
    excess_ns: int | None
    inside: list[Interval]
    idle: list[tuple[int, Row, dict[str, int]]]
    """Length, row in gaps and causes of each gap in it."""
    every: int | None = None

    @property
    def longest(self) -> tuple[int, Row, dict[str, int]] | None:
        """Its longest gap, the earliest on a tie."""
        return max(self.idle, key=lambda gap: (gap[0], -gap[1]["start_ns"]), default=None)

    @property
    def is_whole(self) -> bool:
        """Whether the window holds all of the step."""
        return self.step is not None and self.inside == [(self.step.start_ns, self.step.end_ns)]


def judged(report: Report, keep: Keep | None, name: str | None, taken: set[int] | None) -> Keep:
    """§8.16: the windows of the steps that are judged; empty where there are none.

    Args:
        report: the report.
        keep: the selected windows.
        name: of the step.
        taken: the numbers of the steps that `--steps` takes; None without it.
    """
    found: Keep = {}
    for step, kind in kinds_of(report, name).items():
        span = [(step.start_ns, step.end_ns)]
        of_whole = kind.name not in ("cut-off", "incomplete")
        wanted = kind.name == "steady" if taken is None else step.index in taken and of_whole
        window = report.windows[step.device] if keep is None else keep.get(step.device, [])
        if wanted and (common(span, union(window)) == span or span[0][0] == span[0][1]):
            found.setdefault(step.device, []).extend(span)
    return {device: union(spans) for device, spans in found.items() if union(spans)}


def step_groups(report: Report, keep: Keep | None = None, name: str | None = None) -> list[Row]:
    """§8.17: the rows, of each process with steps on a device."""
    rows = []
    known = {(row["device"], row["start_ns"]): row for row in gap_rows(report, name)}
    steps = steps_of(report, name)
    for process, device in sorted({(step.process, step.device) for step in steps}):
        mine = [step for step in steps if (step.process, step.device) == (process, device)]
        window = report.windows[device]
        kept = window if keep is None else common(window, union(keep.get(device, [])))
        pieces = _pieces(report, mine, kept, known, name)
        _find_periods([piece for piece in pieces if piece.kind == "one-off" and piece.longest])
        rows += [_row(report, process, device, group) for group in _groups(pieces)]
    return rows


def _pieces(
    report: Report,
    steps: list[Step],
    window: list[Interval],
    known: dict[tuple[int, int], Row],
    name: str | None,
) -> list[Piece]:
    device = steps[0].device
    kinds = kinds_of(report, name)
    ((first_ns, last_ns),) = report.windows[device]
    spans: list[tuple[str, Step | None, int, int]] = [
        ("before", None, first_ns, steps[0].start_ns),
        *((kinds[step].name, step, step.start_ns, step.end_ns) for step in steps),
        ("after", None, steps[-1].end_ns, last_ns),
    ]
    pieces = []
    for kind, step, start, end in spans:
        inside = common(union([(start, end)]), window)
        if not inside:
            continue
        idle = []
        for gap in report.gaps_on(device):
            for begin, past in common([(gap.start_ns, gap.end_ns)], inside):
                row = known[device, gap.start_ns]
                idle.append((past - begin, row, share(gap, past - begin)))
        excess_ns = kinds[step].excess_ns if step else None
        shown = "before" if kind == "start-up" else kind
        pieces.append(Piece(shown, step, excess_ns, inside, idle))
    return pieces


def _find_periods(one_offs: list[Piece]) -> None:
    """§8.18: mark what comes back at equal distances."""
    common_to: dict[tuple[str, str], list[Piece]] = {}
    for piece in one_offs:
        assert piece.longest is not None
        row = piece.longest[1]
        common_to.setdefault((row["phase"], row["cause"]), []).append(piece)
    for pieces in common_to.values():
        numbers = [piece.step.index for piece in pieces if piece.step]
        for run in periods(numbers):
            for piece in pieces:
                if piece.step and piece.step.index in run:
                    piece.kind, piece.every = "periodic", run[1] - run[0]


def periods(numbers: list[int]) -> list[list[int]]:
    """The longest runs of equal distances, of three numbers or more."""
    found = []
    at = 0
    while at < len(numbers):
        run = numbers[at : at + 2]
        while at + len(run) < len(numbers) and len(run) > 1:
            following = numbers[at + len(run)]
            if following - run[-1] != run[1] - run[0]:
                break
            run.append(following)
        if len(run) >= 3 and run[1] - run[0] >= 2:
            found.append(run)
            at += len(run)
        else:
            at += 1
    return found


def _groups(pieces: list[Piece]) -> list[list[Piece]]:
    groups: dict[tuple[object, ...], list[Piece]] = {}
    for piece in pieces:
        key: tuple[object, ...] = (piece.kind,)
        if piece.kind == "one-off" and piece.step:
            key = (piece.kind, piece.step.index)
        if piece.kind == "periodic" and piece.longest:
            # two periods of one place and cause differ in where they begin
            row = piece.longest[1]
            key = (piece.kind, row["phase"], row["cause"], _begin_of(piece, pieces))
        groups.setdefault(key, []).append(piece)
    return list(groups.values())


def _begin_of(piece: Piece, pieces: list[Piece]) -> int:
    """The first step of the period that a step belongs to."""
    assert piece.step is not None
    assert piece.longest is not None
    same = [
        other.step.index
        for other in pieces
        if other.step
        and other.longest
        and other.longest[1]["phase"] == piece.longest[1]["phase"]
        and other.longest[1]["cause"] == piece.longest[1]["cause"]
        and other.kind in ("periodic", "one-off")
    ]
    return next(run[0] for run in periods(same) if piece.step.index in run)


def _row(report: Report, process: int, device: int, pieces: list[Piece]) -> Row:
    first = pieces[0]
    idle = {cause: sum(gap[2][cause] for p in pieces for gap in p.idle) for cause in CAUSES}
    most = sorted((cause for cause in CAUSES if idle[cause]), key=lambda cause: -idle[cause])
    gaps = [piece.longest for piece in pieces if piece.longest and first.kind != "steady"]
    longest = max(gaps, key=lambda gap: (gap[0], -gap[1]["start_ns"]), default=None)
    numbers = sorted(piece.step.index for piece in pieces if piece.step)
    one_off = first.kind in ("one-off", "periodic") and all(piece.is_whole for piece in pieces)
    of_gap = longest[1] if longest else {}
    ops = [report.ops[index] for index in report.on(device)]
    split = parts(ops, union(span for piece in pieces for span in piece.inside))
    busy = {name: split[name] for name in ("compute_ns", "comm_exposed_ns", "copy_exposed_ns")}
    return {
        "report": report.trace.report,
        "process": os_pid(process),
        "device": device,
        "kind": first.kind,
        "steps": listed(numbers),
        "count": len(numbers),
        "every": first.every,
        "start_ns": min(piece.inside[0][0] for piece in pieces),
        "total_ns": sum(length(piece.inside) for piece in pieces),
        "excess_ns": sum(piece.excess_ns or 0 for piece in pieces) if one_off else None,
        **busy,
        "idle_ns": sum(idle.values()),
        "cause": most[0] if most else None,
        "cause_ns": idle[most[0]] if most else None,
        "second_cause": most[1] if len(most) > 1 else None,
        "second_cause_ns": idle[most[1]] if len(most) > 1 else None,
        "largest_ns": longest[0] if longest else None,
        "largest_cause": of_gap.get("cause"),
        "phase": of_gap.get("phase"),
        "culprit": of_gap.get("culprit"),
        "source": of_gap.get("source"),
        "via": of_gap.get("via"),
    }


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
