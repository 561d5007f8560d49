"""The figures that budgets can limit, from report.json by loops, word by word after spec §20."""

from typing import Any

from nsysflow.analysis.causes import CAUSES

Track = dict[str, Any]


def figures_of_document(document: dict[str, Any]) -> dict[str, list[float]]:
    """Each figure of a document, step by step: ns, percent, or how many."""
    series = document["series"]
    ranks = [track for track in series["tracks"] if track["step_name"] is not None]
    for track in ranks:
        for row in track["rows"]:
            row["short_name"] = series["names"][row["name"]]["short_name"]
    ranks.sort(key=lambda track: -sum(track["duration_ns"]) / len(track["duration_ns"]))
    found: dict[str, list[float]] = {}
    _of_step(found, ranks[0])
    for track in ranks:
        own: dict[str, list[float]] = {}
        _of_rows(own, track)
        for name, values in own.items():
            found.setdefault(name, values)
    return found


def _of_step(found: dict[str, list[float]], track: Track) -> None:
    steps = track["duration_ns"]
    found["step_ms"] = [float(ns) for ns in steps]
    sums = {f"{part}_": [0] * len(steps) for part in _PARTS}
    sums |= {f"{cause}.idle_behind_": [0] * len(steps) for cause in CAUSES}
    for row in track["rows"]:
        for step in range(len(steps)):
            ns = _at(row, "ns", step, len(steps))
            sums[f"{row['part']}_"][step] += ns
            if row["part"] == "idle":
                sums[f"{row['kind']}.idle_behind_"][step] += ns
    for name, each in sums.items():
        found[f"{name}ms"] = [float(ns) for ns in each]
        found[f"{name}pct"] = [
            100 * ns / (sum(steps) / len(steps)) if sum(steps) else 0.0 for ns in each
        ]


def _of_rows(found: dict[str, list[float]], track: Track) -> None:
    steps = len(track["steps"])
    for row in track["rows"]:
        kernel = row["part"] in ("compute", "communication")
        names = row.get("phase", "").split("/")
        for depth in range(1, len(names) + 1):
            phase = "/".join(names[:depth])
            if not phase:
                continue
            for quantity in ("step", "busy", "idle", "kernel"):
                found.setdefault(f"phase:{phase}.{quantity}_ms", [0.0] * steps)
            part = "idle" if row["part"] == "idle" else "busy"
            for quantity in ("step", part):
                _add(found[f"phase:{phase}.{quantity}_ms"], row, "ns")
            if kernel:
                _add(found[f"phase:{phase}.kernel_ms"], row, "duration_ns")
        if kernel:
            for name, column in (
                (f"class:{row['kind']}.ms", "duration_ns"),
                (f"kernel:{row['short_name']}.ms", "duration_ns"),
                (f"kernel:{row['short_name']}.count", "count"),
            ):
                _add(found.setdefault(name, [0.0] * steps), row, column)


_PARTS = ("compute", "communication", "copies", "idle")


def _add(sums: list[float], row: dict[str, Any], column: str) -> None:
    for step in range(len(sums)):
        sums[step] += _at(row, column, step, len(sums))


def _at(row: dict[str, Any], column: str, step: int, steps: int) -> int:
    """A row's value in a step; 0 in those that it is not in."""
    at = row.get("at", list(range(steps)))
    if step not in at:
        return 0
    value = row.get(column, row["ns"])
    found: int = value if isinstance(value, int) else value[at.index(step)]
    return found
