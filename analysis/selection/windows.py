"""Windows, and the parts of operations, gaps and charges inside them (spec §2)."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES, STALLS
from nsysflow.analysis.events.events import Events, Operations
from nsysflow.analysis.frames.columns import filter_runs, greatest, repeated
from nsysflow.analysis.frames.intervals import (
    Axis,
    Cover,
    last_at_or_before,
    merge,
    on_axis,
    overlaps,
)
from nsysflow.analysis.idle.places import IDLE_PARTS, IdleParts
from nsysflow.analysis.idle.run_ahead import Charges, Gaps
from nsysflow.analysis.idle.samples import LEFT_INSTANTS, Instants
from nsysflow.analysis.options import Options, typed_steps
from nsysflow.analysis.phases.attribution import Attribution, PlacedOps
from nsysflow.analysis.schema import CAUSE
from nsysflow.analysis.steps.kinds import Steps, require_steps, selected_steps
from nsysflow.analysis.steps.ranges import paths_named
from nsysflow.base.errors import SelectionError, near_or_all

WINDOWS: Final = pl.Schema({"device_no": pl.UInt32(), "start_ns": pl.Int64(), "end_ns": pl.Int64()})
"""Disjoint per device, sorted."""
Windows = Annotated[pl.DataFrame, WINDOWS]

ROW_PARTS: Final = pl.Schema(
    {"row" if name == "gap" else name: dtype for name, dtype in IDLE_PARTS.items()}
)
"""The idle time of one cause in a view's gaps: `IDLE_PARTS` with `row`, of these gaps."""
RowParts = Annotated[pl.DataFrame, ROW_PARTS]


def whole_windows(ops: Operations) -> Windows:
    """One window per device, from each device's first operation to the end of its last one."""
    return (
        ops.lazy()
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .group_by("device_no")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("device_no")
        .collect()
        .match_to_schema(WINDOWS)
    )


def intersect_windows(windows: Windows, others: pl.DataFrame, axis: Axis) -> Windows:
    """The time that is in both. `others` may overlap one another."""
    merged = merge(on_axis(others, axis))
    pieces = overlaps(on_axis(windows, axis), merged)
    return pieces.select(
        axis.track(pl.col("start")).cast(pl.UInt32).alias("device_no"),
        axis.time_ns(pl.col("start")).alias("start_ns"),
        (axis.time_ns(pl.col("start")) + pl.col("end") - pl.col("start")).alias("end_ns"),
    ).sort("device_no", "start_ns")


def clip_host_time(open_time: pl.DataFrame, windows: Windows) -> pl.DataFrame:
    """The part of each stretch of host time (`node`, `start_ns`, `host_wall_ns`) in the windows.

    Windows of any device count. Returns `node`, `host_wall_ns`.
    """
    spans = windows.select(pl.col("start_ns").alias("start"), pl.col("end_ns").alias("end"))
    start = open_time["start_ns"]
    wall_ns = Cover(merge(spans)).between(start, start + open_time["host_wall_ns"])
    return open_time.select("node", wall_ns.alias("host_wall_ns")).filter(
        pl.col("host_wall_ns") > 0
    )


def rows_starting_inside(rows: pl.DataFrame, windows: Windows, axis: Axis) -> pl.DataFrame:
    """The rows (`device_no`, `start_ns`, …) that start inside a window."""
    kept = on_axis(windows, axis)
    place = axis.at(rows["device_no"], rows["start_ns"])
    past = kept["end"].search_sorted(place, side="right")
    begun = kept["start"].search_sorted(place, side="right")
    return filter_runs(rows, begun > past)


def rows_lying_inside(rows: pl.DataFrame, windows: Windows, axis: Axis) -> pl.DataFrame:
    """The rows (`device_no`, `start_ns`, `end_ns`, …) that lie in one window as a whole."""
    kept, placed = on_axis(windows, axis), on_axis(rows, axis)
    window = last_at_or_before(kept["start"], placed["start"])
    return rows.filter((placed["end"] <= kept["end"][window]).fill_null(value=False))


def clip_rows(
    rows: pl.DataFrame, windows: Windows, axis: Axis, track: str = "device_no"
) -> pl.DataFrame:
    """The parts of `rows` (`start_ns`, `end_ns`, …) that lie in a window of their track, in order.

    Few rows cross a border, so that only they are cut. Where few steps are judged, most rows lie
    outside all windows, and are left before any frame is made of them.
    """
    kept, placed = on_axis(windows, axis, track), on_axis(rows, axis, track)
    window = last_at_or_before(kept["start"], placed["start"])
    next_start = kept["start"].gather((window + 1).fill_null(0), null_on_oob=True)
    at = placed.hstack([kept["end"][window].alias("until"), next_start.alias("next_start")])
    lies = (pl.col("end") <= pl.col("until")).fill_null(value=False)
    reaches = (pl.col("end") > pl.col("next_start")).fill_null(value=False)
    touches = (pl.col("start") < pl.col("until")) | reaches
    inside = at.select(lies).to_series()
    row = at.select(pl.arg_where(touches & ~lies).alias("_row")).to_series()
    whole = filter_runs(rows, inside)
    if row.is_empty():
        return whole
    crossing = rows[row].hstack([*placed[row], row])
    start, length = axis.time_ns(pl.col("start")), pl.col("end") - pl.col("start")
    parts = (
        overlaps(crossing, kept)
        .with_columns(start.alias("start_ns"), (start + length).alias("end_ns"))
        .drop("start", "end", "other")
    )
    numbered = whole.with_columns(inside.arg_true().alias("_row"))
    return pl.concat([numbered, parts]).sort("_row").drop("_row")


def narrow_gaps(gaps: Gaps, windows: Windows, axis: Axis) -> Gaps:
    """The parts of `gaps` inside `windows`, each with its share of the causes."""
    pieces = clip_rows(gaps, windows, axis)
    cut = _is_cut(pieces, gaps)
    if not cut.any():
        return pieces
    pieces = pieces.with_row_index("piece")
    causes = [f"{cause}_ns" for cause in CAUSES]
    shares = pieces.filter(cut).select("piece", "start_ns", "end_ns", *causes)
    long = _long(shares, CAUSES, index=["piece", "start_ns", "end_ns"], value="ns")
    long = long.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("total"))
    scaled = apportion(long, by="piece", ties="cause").pivot("cause", index="piece", values="ns")
    scaled = scaled.rename({cause: f"{cause}_ns" for cause in CAUSES})
    kept = pieces.filter(cut).drop(causes).join(scaled, on="piece")
    return pl.concat([pieces.filter(~cut), kept.select(pieces.columns)]).sort("piece").drop("piece")


def narrow_parts(
    parts: Mapping[str, IdleParts], gaps: Gaps, rank: pl.Series
) -> dict[str, RowParts]:
    """The idle time of narrowed gaps by cause. The places of a cause keep their proportions.

    Args:
        parts: by cause, that of whole gaps.
        gaps: these gaps, narrowed.
        rank: the order of the paths, by number, which breaks ties.
    """
    pieces = gaps.with_row_index("row")
    # where few steps are judged, a look-up by number leaves most rows before they are joined
    inside = repeated(value=False, length=greatest(gaps["gap"]) + 1)
    inside = inside.scatter(gaps["gap"], True)
    columns = ROW_PARTS.names()
    narrowed = {}
    for cause, rows in parts.items():
        mine = rows
        if not rows.is_empty():  # most causes are rare
            mine = rows.filter(inside.gather(rows["gap"], null_on_oob=True))
        if mine.is_empty():
            narrowed[cause] = ROW_PARTS.to_frame()
            continue
        kept = pieces.select("row", "gap", pl.col(f"{cause}_ns").alias("total"))
        left = mine.join(kept.filter(pl.col("total") > 0), on="gap")
        both = left.filter(~pl.col("split")).with_columns(ns="total").select(columns)
        if left["split"].any():
            split = left.filter("split")
            split = split.with_columns(rank[split["path"]].fill_null(0).alias("rank"))
            split = apportion(split, by="row", ties="rank")
            both = pl.concat([both, split.select(columns)])
        narrowed[cause] = both.filter(pl.col("ns") > 0).sort("row")
    return narrowed


def narrow_charges(charges: Charges, pieces: Gaps, gaps: Gaps) -> Charges:
    """Charges, scaled like the causes of their gaps.

    Args:
        charges: of whole gaps.
        pieces: the gaps with their causes, narrowed.
        gaps: all gaps.
    """
    cut = _is_cut(pieces, gaps)
    whole = charges.join(pieces.filter(~cut), on="gap", how="semi", maintain_order="left")
    if not cut.any():
        return whole
    by_gap = pieces.filter(cut).group_by("gap").agg(pl.col([f"{c}_ns" for c in CAUSES]).sum())
    totals = _long(by_gap, STALLS, index=["gap"], value="total")
    touched = charges.join(totals, on=["gap", "cause"]).sort("gap", "cause", "call")
    touched = touched.with_columns(pl.struct("gap", "cause").rle_id().alias("part"))
    scaled = apportion(touched, by="part", ties="call").select(charges.columns)
    return pl.concat([whole, scaled.filter(pl.col("ns") > 0)])


def scale_instants(
    instants: Instants, parts: Mapping[str, RowParts], gaps: Gaps
) -> Annotated[pl.DataFrame, LEFT_INSTANTS]:
    """What step 3 and the windows have left of the instants at each place, in proportion.

    Args:
        instants: those of whole gaps.
        parts: the idle time of these gaps by cause.
        gaps: these gaps, narrowed or not.
    """
    scaled = []
    for cause in ("host", "launch"):
        left = parts[cause].select("row", "path", gaps["gap"][parts[cause]["row"]], total="ns")
        mine = instants.filter(pl.col("cause") == cause)
        shares = mine.join(left.with_row_index("part"), on=["gap", "path"], nulls_equal=True)
        untouched = shares["total"] == shares.select(pl.col("ns").sum().over("part")).to_series()
        touched = apportion(shares.filter(~untouched), by="part", ties="order")
        scaled += [shares.filter(untouched), touched.select(shares.columns)]
    return pl.concat(scaled).filter(pl.col("ns") > 0).select(*instants.columns, "row")


def _is_cut(pieces: Gaps, gaps: Gaps) -> pl.Series:
    """Whether each piece is only a part of its gap."""
    length = pl.col("end_ns") - pl.col("start_ns")
    whole_ns = gaps.select(length.alias("ns"))["ns"][pieces["gap"]]
    return pieces.select(length.alias("ns"))["ns"] != whole_ns


def _long(
    gaps: pl.DataFrame, causes: Iterable[str], *, index: list[str], value: str
) -> pl.DataFrame:
    """A row per gap and cause."""
    columns = [f"{cause}_ns" for cause in causes]
    long = gaps.unpivot(columns, index=index, variable_name="cause", value_name=value)
    return long.with_columns(pl.col("cause").str.strip_suffix("_ns").cast(CAUSE))


def apportion(shares: pl.DataFrame, *, by: str, ties: str) -> pl.DataFrame:
    """`shares` with `ns` scaled so that each group sums to its `total`, to the nanosecond.

    By largest remainder: each gets the floor of its share, and the nanoseconds that are left go to
    the largest fractions, ties in the order of `ties`. In 128 bits, since ns times ns passes 2**63.
    """
    ns, total = pl.col("ns").cast(pl.Int128), pl.col("total").cast(pl.Int128)
    whole = ns.sum().over(by)
    shares = shares.with_columns(
        (ns * total // whole).cast(pl.Int64).alias("_floor"),
        (ns * total % whole).alias("_fraction"),
    ).sort(by, "_fraction", ties, descending=[False, True, False])
    left = pl.col("total") - pl.col("_floor").sum().over(by)
    rank = pl.int_range(pl.len()).over(by)
    more = (rank < left).cast(pl.Int64)
    return shares.with_columns((pl.col("_floor") + more).alias("ns")).drop("_floor", "_fraction")


def selected_windows(
    events: Events,
    attribution: Attribution,
    ops: PlacedOps,
    steps: Steps,
    options: Options,
) -> Windows:
    """The windows that all options agree on.

    Args:
        events: the trace.
        attribution: nodes and paths.
        ops: all operations.
        steps: all steps.
        options: what to narrow to.

    Raises:
        SelectionError: an option names something that the report lacks, or nothing is left.
    """
    windows, axis = whole_windows(events.ops), events.axis
    report = events.trace.report
    if options.device is not None:
        windows = _of_device(windows, events, options.device)
    if options.from_ns is not None or options.to_ns is not None:
        windows = _between(windows, events, options.from_ns, options.to_ns)
    if options.range is not None:
        paths = paths_named(attribution, options.range, report)
        projections = ops.join(attribution.projected(paths), on="node")
        windows = intersect_windows(windows, _hulls(projections, ["range"]), axis)
        if windows.is_empty():
            msg = f"range {options.range!r} launched nothing in the selected part of {report}."
            raise SelectionError(msg)
    if options.steps:
        require_steps(steps, options.steps, report)
        windows = intersect_windows(windows, selected_steps(steps, options.steps), axis)
        if windows.is_empty():
            raise SelectionError(
                f"{typed_steps(options.steps)} ran nothing in the selected part of {report}",
                "Leave out --range, --from and --to, or choose other steps",
            )
    return windows


def _between(windows: Windows, events: Events, from_ns: int | None, to_ns: int | None) -> Windows:
    """The parts of the windows between two times; None is the begin or the end of the report.

    Raises:
        SelectionError: nothing is left.
    """
    origin_ns = events.axis.origin_ns
    late = pl.lit(from_ns if from_ns is not None else origin_ns)
    soon = pl.lit(to_ns if to_ns is not None else events.last_ns + 1)
    between = windows.with_columns(
        pl.max_horizontal("start_ns", late), pl.min_horizontal("end_ns", soon)
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    if between.is_empty():
        msg = (
            f"nothing ran in {events.trace.report} in that time: it spans {origin_ns / 1e9:.6f} s"
            f" to {events.last_ns / 1e9:.6f} s. Choose --from and --to inside it."
        )
        raise SelectionError(msg)
    return between


def require_domains(known: set[str], options: Options, where: str) -> None:
    """Refuse an NVTX domain that is not one of the `known`, which are those of `where`.

    Raises:
        SelectionError: the report has no NVTX domain of that name.
    """
    for name in (*options.domains_added, *options.domains_removed):
        if name not in known:
            raise SelectionError(
                f"no NVTX domain {name!r} in {where}",
                near_or_all(name, sorted(known)) or "All ranges are in the default domain",
            )


def domain_names(ranges: pl.DataFrame) -> set[str]:
    """The NVTX domains of some ranges; the default domain has no name."""
    return {*ranges["domain"].drop_nulls().unique().cast(pl.String)}


def _of_device(windows: Windows, events: Events, device: int) -> Windows:
    """The windows of one device."""
    devices = events.devices.select("device", "device_no").sort("device")
    chosen = devices.filter(pl.col("device") == device)
    if chosen.is_empty():
        known = ", ".join(map(str, devices["device"])) or "none"
        msg = f"no device {device} in {events.trace.report}. Devices with GPU work there: {known}."
        raise SelectionError(msg)
    windows = windows.join(chosen.select("device_no"), on="device_no", how="semi")
    if windows.is_empty():
        msg = f"no operation on device {device} in {events.trace.report} takes any time."
        raise SelectionError(msg)
    return windows


def _hulls(ops: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """From the first to the last operation of each group, per device."""
    lasting = ops.filter(pl.col("end_ns") > pl.col("start_ns"))
    return lasting.group_by("device_no", *key).agg(pl.col("start_ns").min(), pl.col("end_ns").max())
