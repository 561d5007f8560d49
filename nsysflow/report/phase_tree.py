"""The phases as a tree, each with its GPU time and its share among its siblings."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.names import NOT_RECORDED, OUTSIDE
from nsysflow.report.results import RunTables

_Key = tuple[str, int]
"""Path and depth. Names may contain a `/`, so a path alone can mean two things."""

_REST = ("kernels", "kernel_ns", "busy_ns", "idle_ns")
_SUMS = ("instances", "host_wall_ns", "kernels", "kernel_ns", "busy_ns", "idle_ns", "launches")


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One path over all processes and GPUs, or the time outside all ranges.

    Attributes:
        names: the ranges from the outermost to this one; one name in parentheses for the rest.
        instances: how often it ran; None for the rest, like `host_wall_ns` and `launches`.
        host_wall_ns: how long the host was in it.
        launches: launch calls made in it.
        kernels: kernels launched in it.
        kernel_ns: sum of their durations.
        busy_ns: GPU time during its operations.
        idle_ns: idle time of the GPUs while the host was here.
        siblings_ns: `time_ns` of it and its siblings together.
        children_ns: `time_ns` of what is nested directly in it; None where nothing is.
        bound: what bounds it on the GPU where it takes most time, as phases.csv has it; empty for
            the rest.
        main_cause: the cause with most of its idle time; empty without, and for the rest.
        causes_ns: its idle time by cause; the causes sum to it.
    """

    names: tuple[str, ...]
    instances: int | None = None
    host_wall_ns: int | None = None
    launches: int | None = None
    kernels: int
    kernel_ns: int
    busy_ns: int
    idle_ns: int
    siblings_ns: int
    children_ns: int | None = None
    bound: str = ""
    main_cause: str = ""
    causes_ns: Mapping[str, int]

    @property
    def time_ns(self) -> int:
        """GPU time of this phase: busy for it, or idle while the host was in it."""
        return self.busy_ns + self.idle_ns

    @property
    def host_mean_ns(self) -> int | None:
        """How long the host was in it each time."""
        if self.host_wall_ns is None or not self.instances:
            return None
        return round(self.host_wall_ns / self.instances)


def phase_names(keys: Iterable[_Key]) -> list[tuple[str, ...]]:
    """The list of names behind each `(path, depth)`."""
    listed = list(keys)
    paths = _Paths(listed)
    return [paths.names[key] for key in listed]


def phase_tree(results: RunTables, limit: int) -> tuple[list[Phase], int]:
    """At most `limit` phases in tree order, the longest sibling first; how many were left out."""
    rows = {(row["path"], row["depth"]): row for row in _phases_by_path(results)}
    paths = _Paths(rows)
    time_ns = {key: row["busy_ns"] + row["idle_ns"] for key, row in rows.items()}
    outside = _outside_ranges(results, [rows[key] for key in paths.children.get(None, [])])
    nested_ns = {
        key: sum(map(time_ns.__getitem__, children)) for key, children in paths.children.items()
    }
    nested_ns[None] = nested_ns.get(None, 0) + sum(
        sums["busy_ns"] + sums["idle_ns"] for sums in outside.values()
    )

    def longest(key: _Key) -> tuple[int, int]:
        """GPU time first; the host's time decides where that is equal, or 0 for all."""
        return -time_ns[key], -rows[key]["host_wall_ns"]

    # a phase is never longer than the one around it, which comes first on a tie
    chosen = set(
        sorted(rows, key=lambda key: (-time_ns[key], key[1], longest(key), key[0]))[:limit]
    )

    def walk(around: _Key | None) -> Iterator[Phase]:
        for key in sorted(paths.children.get(around, ()), key=lambda key: (longest(key), key)):
            if key in chosen:
                yield Phase(
                    names=paths.names[key],
                    siblings_ns=nested_ns[around],
                    children_ns=nested_ns.get(key),
                    bound=rows[key]["bound"] or "",
                    main_cause=_main_cause(rows[key]),
                    causes_ns={cause: rows[key][f"{cause}_ns"] for cause in CAUSES},
                    **{name: rows[key][name] for name in _SUMS},
                )
                yield from walk(key)

    return [*walk(None), *_others(outside, nested_ns[None])], len(rows) - len(chosen)


def _others(outside: dict[str, dict[str, int]], siblings_ns: int) -> Iterator[Phase]:
    """What is in no phase, as phases.

    Args:
        outside: the sums of each, by name.
        siblings_ns: the time of all phases that are in no other.
    """
    for name, sums in outside.items():
        if any(sums[column] for column in _REST):
            yield Phase(
                names=(name,),
                siblings_ns=siblings_ns,
                causes_ns={cause: sums[f"{cause}_ns"] for cause in CAUSES},
                kernels=sums["kernels"],
                kernel_ns=sums["kernel_ns"],
                busy_ns=sums["busy_ns"],
                idle_ns=sums["idle_ns"],
            )


class _Paths:
    """Which path is nested in which."""

    def __init__(self, keys: Iterable[_Key]) -> None:
        listed = list(dict.fromkeys(keys))
        self._known = set(listed)
        self.children: dict[_Key | None, list[_Key]] = {}
        self.names: dict[_Key, tuple[str, ...]] = {}
        for key in sorted(listed, key=lambda key: key[1]):  # a parent before its children
            parent = self.parent(key)
            self.children.setdefault(parent, []).append(key)
            before = self.names[parent] if parent else ()
            self.names[key] = (*before, key[0][len(parent[0]) + 1 :] if parent else key[0])

    def parent(self, key: _Key) -> _Key | None:
        path, depth = key
        while "/" in path:
            path = path.rpartition("/")[0]
            if (path, depth - 1) in self._known:
                return path, depth - 1
        return None


def _phases_by_path(results: RunTables) -> Iterator[dict[str, Any]]:
    """The phases of all processes and reports, by path."""
    longest_first = results.table("phases").sort(-pl.col("busy_ns") - pl.col("idle_ns"))
    sums = [*_SUMS, *(f"{cause}_ns" for cause in CAUSES)]
    phases = longest_first.group_by("path", "depth", maintain_order=True).agg(
        pl.col(sums).sum(), pl.col("bound").first()
    )
    return phases.sort("path", "depth").iter_rows(named=True)


def _main_cause(row: Mapping[str, Any]) -> str:
    most = max(CAUSES, key=lambda cause: int(row[f"{cause}_ns"]))
    return most if row[f"{most}_ns"] else ""


def _outside_ranges(results: RunTables, tops: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """What belongs to no range: work and idle time outside all of them, and idle time of which the
    cause was not recorded."""
    unknown = pl.col("unknown_ns").sum()
    total = results.table("accounting").select(
        (pl.col("window_ns") - pl.col("idle_ns")).sum().alias("busy_ns"),
        (pl.col("idle_ns").sum() - unknown).alias("idle_ns"),
        pl.col("kernels", "kernel_ns", *(f"{cause}_ns" for cause in CAUSES)).sum(),
    )
    whole = {name: int(total[name].item()) for name in total.columns}
    unknown_ns = whole["unknown_ns"]
    whole["unknown_ns"] = 0
    not_recorded = dict.fromkeys(whole, 0) | {"idle_ns": unknown_ns, "unknown_ns": unknown_ns}
    # streams overlap: phases can be busy for longer together than the GPU was
    outside = {name: max(0, ns - sum(top[name] for top in tops)) for name, ns in whole.items()}
    return {OUTSIDE: outside, NOT_RECORDED: not_recorded}
