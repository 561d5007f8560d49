"""The trace of a run for ui.perfetto.dev: every row of the picture, its counters and its flows."""

from dataclasses import dataclass
from typing import BinaryIO, Final, Self

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.load.pftrace.exported import (
    BYTES_MOVED,
    CORRELATION,
    FULL_NAME,
    GRAPH_NODE,
    MEMORY,
    SHAPE,
)
from nsysflow.analysis.schema import CAUSE
from nsysflow.analysis.trace import Trace
from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.report.perfetto.beside import tell_report
from nsysflow.report.perfetto.lanes import PerfettoLanes
from nsysflow.report.perfetto.packets import PacketColumns, Packets
from nsysflow.report.pictures import clocks_of
from nsysflow.report.results import Results

_MOST_BINS: Final = 1000
"""As many as a screen can show."""


def busy_share(gaps: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """How much of each bin a GPU was busy.

    Args:
        gaps: `start_ns` and `end_ns` of the GPU's gaps, in order.
        start_ns: of the GPU's first operation.
        end_ns: of its last one.

    Returns:
        `time_ns`, the start of each bin, and `value`, 0 to 100; at `end_ns` 0.
    """
    width_ns = bin_ns(end_ns - start_ns)
    edges = pl.int_range(start_ns, end_ns, width_ns, eager=True).append(pl.Series([end_ns]))
    length = pl.col("end_ns") - pl.col("start_ns")
    before = gaps.select("start_ns", "end_ns", (length.cum_sum() - length).alias("before_ns"))
    idle = (
        pl.DataFrame({"time_ns": edges})
        .join_asof(before, left_on="time_ns", right_on="start_ns", coalesce=False)
        .select(
            "time_ns",
            (pl.col("before_ns") + pl.min_horizontal("time_ns", "end_ns") - pl.col("start_ns"))
            .fill_null(0)
            .alias("idle_ns"),
        )
    )
    idle_ns = pl.col("idle_ns").shift(-1) - pl.col("idle_ns")
    bin_length_ns = pl.col("time_ns").shift(-1) - pl.col("time_ns")
    return idle.select(
        "time_ns", (100 - 100 * idle_ns / bin_length_ns).fill_null(0.0).alias("value")
    )


def bin_ns(window_ns: int) -> int:
    """The length of a bin: 1, 2 or 5 of a power of ten ns."""
    width_ns = 1
    while width_ns * _MOST_BINS < window_ns:
        width_ns = width_ns * 5 // 2 if str(width_ns)[0] == "2" else width_ns * 2
    return width_ns


def run_ahead(launched: pl.DataFrame) -> pl.DataFrame:
    """How many operations are queued: their launch has begun and they have not started (spec §5).
    One that starts before its launch, as clocks disagree, is queued for 1 ns.

    Args:
        launched: `call_ns`, when the launch of each operation began, and `start_ns`.

    Returns:
        `time_ns` of each change and `value` from then on.
    """
    started = pl.max_horizontal("start_ns", pl.col("call_ns") + 1)
    changes = [
        launched.select(at.alias("time_ns"), pl.lit(change, pl.Int64).alias("value"))
        for at, change in ((pl.col("call_ns"), 1), (started, -1))
    ]
    return (
        pl.concat(changes)
        .group_by("time_ns")
        .agg(pl.col("value").sum())
        .filter(pl.col("value") != 0)
        .sort("time_ns")
        .with_columns(pl.col("value").cum_sum())
    )


_FLOW: Final = pl.UInt64


@dataclass(frozen=True, kw_only=True)
class Flows:
    """The flows of a report. Each has a number of its own, and begins and ends once.

    Attributes:
        of_calls: the flows that begin at each call, a list or null.
        of_operations: the same at each operation.
        into_operations: the flow that ends at each operation, or null.
        into_gaps: the flow that ends at each gap, or null.
        last: the highest number.
    """

    of_calls: pl.Series
    of_operations: pl.Series
    into_operations: pl.Series
    into_gaps: pl.Series
    last: int

    @classmethod
    def of_tracks(cls, tracks: Tracks, first: int) -> Self:
        """The flows of a picture, numbered from `first`. None goes back in time: where clocks
        disagree so much, an arrow would say the opposite."""
        calls, ops, gaps = tracks.calls, tracks.operations, tracks.gaps
        launched = calls["start_ns"][ops["call"]] <= ops["start_ns"]
        into_ops = _number_flows(launched, first)
        blamed = pl.select(
            pl.coalesce(
                calls["start_ns"][gaps["culprit_call"]],
                ops["start_ns"][gaps["culprit_op"]],
            )
        ).to_series()
        into_gaps = _number_flows(blamed <= gaps["end_ns"], first + len(ops))
        from_calls = [(ops["call"], into_ops), (gaps["culprit_call"], into_gaps)]
        no_call = gaps["culprit_op"].set(gaps["culprit_call"].is_not_null(), None)
        return cls(
            of_calls=_flow_lists(from_calls, len(calls)),
            of_operations=_flow_lists([(no_call, into_gaps)], len(ops)),
            into_operations=into_ops,
            into_gaps=into_gaps,
            last=first + len(ops) + len(gaps) - 1,
        )


def _number_flows(known: pl.Series, first: int) -> pl.Series:
    """The number of each row's flow, from `first` on; null where `known` is not true."""
    numbers = pl.int_range(first, first + len(known), dtype=_FLOW, eager=True)
    return pl.select(pl.when(known).then(numbers)).to_series().alias("flow")


def _flow_lists(ends: list[tuple[pl.Series, pl.Series]], rows: int) -> pl.Series:
    """The flows of each of `rows` rows, from pairs of a row and its flow."""
    flat = pl.concat(
        pl.DataFrame([at.cast(pl.UInt32).alias("row"), flow.alias("flow")]) for at, flow in ends
    )
    grouped = flat.drop_nulls().group_by("row").agg("flow")
    every = pl.DataFrame({"row": pl.int_range(rows, dtype=pl.UInt32, eager=True)})
    return every.join(grouped, on="row", how="left", maintain_order="left")["flow"]


_COLUMNS: Final = {f"{cause}_ns": cause for cause in CAUSES}


def gap_parts(gaps: pl.DataFrame) -> pl.DataFrame:
    """The parts of each gap, end to end, the largest one last.

    Only their lengths were measured: where in a gap a cause held the GPU up is not known. The
    largest one ends where the gap ends, behind the call that is to blame.

    Args:
        gaps: `start_ns`, `end_ns`, `cause` and `<cause>_ns` of each.

    Returns:
        `row` of the gap, `part` (its cause), `start_ns`, `end_ns`, and `largest`; by gap and time.
    """
    parts = (
        gaps.select("start_ns", "cause", *_COLUMNS)
        .with_row_index("row")
        .unpivot(
            list(_COLUMNS),
            index=["row", "start_ns", "cause"],
            variable_name="part",
            value_name="ns",
        )
        .filter(pl.col("ns") > 0)
        .with_columns(pl.col("part").replace_strict(_COLUMNS, return_dtype=CAUSE))
        .with_columns((pl.col("part") == pl.col("cause")).alias("largest"))
        .sort("row", "largest", "ns", "part")
    )
    end = pl.col("start_ns") + pl.col("ns").cum_sum().over("row")
    return parts.with_columns(end.alias("end_ns")).select(
        "row", "part", (pl.col("end_ns") - pl.col("ns")).alias("start_ns"), "end_ns", "largest"
    )


_STEPS: Final = PacketColumns(category="kind")
_RANGES: Final = PacketColumns(texts=("note",))
_CALLS: Final = PacketColumns(
    category="class", texts=("source", "via"), numbers=(CORRELATION,), flows="flows"
)
_PLAIN: Final = PacketColumns()
_OPERATIONS: Final = PacketColumns(
    category="class",
    texts=(FULL_NAME, "phase", *SHAPE, *MEMORY),
    numbers=(BYTES_MOVED, CORRELATION, GRAPH_NODE),
    flows="flows",
    flow_in="flow",
)
_GAPS: Final = PacketColumns(
    category="part",
    texts=("phase", "culprit", "source", "next"),
    numbers=("gap", "gap_ns"),
    flow_out="flow",
)
_WHOLE_GAP_COLUMNS: Final = ("phase", "culprit", "source", "next", "gap_ns", "flow")

_STILL_OPEN: Final = "open when the recording ended"


def write_trace(results: Results, out: BinaryIO) -> int:
    """Write the trace of a run; returns how many slices it has.

    Raises:
        NsysflowError: the package `perfetto` is not installed.
        OSError: it cannot be written.
    """
    packets = Packets(out)
    several = len(results.analyses) > 1
    used: set[int] = set()
    last_flow = 0
    for analysis, shift_ns in zip(results.analyses, shifts_ns(results), strict=True):
        tracks = _shift_tracks(analysis.tracks, shift_ns)
        flows = Flows.of_tracks(tracks, last_flow + 1)
        lanes = PerfettoLanes.of_trace(analysis.trace, packets, several=several, used=used)
        first = lanes.describe(tracks)
        tell_report(packets, analysis.timeline.events, tracks.lanes, first, shift_ns)
        _Report(
            tracks=tracks,
            packets=packets,
            lanes=lanes,
            first=first,
            flows=flows,
            trace=analysis.trace,
        ).write()
        last_flow = flows.last
    return packets.slices


def shifts_ns(results: Results) -> list[int]:
    """What to add to the times of each report."""
    clocks = clocks_of(results, [analysis.tracks for analysis in results.analyses])
    moved = [clock.origin_ns - clock.zero_ns for clock in clocks]
    onto_first = [shift - moved[0] for shift in moved]
    begun = [clock.zero_ns + shift for clock, shift in zip(clocks, onto_first, strict=True)]
    return [shift - min(0, *begun) for shift in onto_first]


def _shift_tracks(tracks: Tracks, shift_ns: int) -> Tracks:
    """The same picture with its times moved by `shift_ns`."""
    if not shift_ns:
        return tracks
    times = ("start_ns", "end_ns", "time_ns")
    moved = {
        name: frame.with_columns(pl.col(at) + shift_ns for at in times if at in frame.columns)
        for name, frame in vars(tracks).items()
    }
    return Tracks(**moved)


@dataclass(frozen=True, kw_only=True)
class _Report:
    """One report of the trace.

    Attributes:
        tracks: its picture, with the times of the trace.
        packets: where it is written.
        lanes: its tracks.
        first: the first track of each lane.
        flows: its flows.
        trace: its frames.
    """

    tracks: Tracks
    packets: Packets
    lanes: PerfettoLanes
    first: pl.Series
    flows: Flows
    trace: Trace

    def write(self) -> None:
        """Write all of it. Calls come before operations, so that an arrow between two of the same
        time points forward."""
        tracks = self.tracks
        named = pl.format("step {}", "step").alias("name")
        self._write_slices(tracks.steps.with_columns(named), _STEPS)
        note = pl.when(~pl.col("ended")).then(pl.lit(_STILL_OPEN)).alias("note")
        self._write_slices(tracks.ranges.with_columns(note), _RANGES)
        self._write_slices(tracks.calls.with_columns(self.flows.of_calls.alias("flows")), _CALLS)
        self._write_slices(tracks.profiler, _PLAIN)
        self._write_slices(tracks.batches, _PLAIN)
        self._write_slices(tracks.host_stacks, _PLAIN)
        self._write_slices(tracks.stack_frames, _PLAIN)
        self._write_slices(self._operation_rows(), _OPERATIONS)
        self.packets.write_slices(self._gap_rows(), _GAPS)
        self._write_sampled()
        self._write_busy()
        self._write_queued()

    def _write_slices(self, rows: pl.DataFrame, columns: PacketColumns) -> None:
        depth = rows["depth"] if "depth" in rows.columns else pl.lit(0)
        track = (pl.lit(self.first[rows["lane"]]) + depth).alias("track")
        self.packets.write_slices(rows.with_columns(track), columns)

    def _phase_names(self, path: pl.Series) -> pl.Series:
        """The phase of each row by its name."""
        paths = self.tracks.paths
        return path.replace_strict(
            paths["path"], paths["name"], default=None, return_dtype=pl.String
        ).alias("phase")

    def _operation_rows(self) -> pl.DataFrame:
        ops = self.tracks.operations
        full = pl.when(pl.col("full_name") != pl.col("name")).then("full_name")
        return ops.with_columns(
            full.alias(FULL_NAME),
            *self._shape_texts(ops["shape"]),
            *(self.trace.copy_details[of][ops["copy"]].cast(pl.String).alias(of) for of in MEMORY),
            self._phase_names(ops["phase"]),
            self.flows.into_operations.alias("flow"),
            self.flows.of_operations.alias("flows"),
        )

    def _shape_texts(self, shape: pl.Series) -> list[pl.Series]:
        """How each kernel was launched, its grid e.g. as `132 x 1 x 1`; null where it was not
        read."""
        shapes = self.trace.shapes
        known = shape.set(shape >= len(shapes), None)
        sides = (
            pl.format("{} x {} x {}", *(f"{of}_{axis}" for axis in "xyz")).alias(of)
            for of in ("grid", "block")
        )
        others = pl.col("registers", "shared_bytes").cast(pl.String)
        texts = shapes.select(*sides, others)
        return [texts[name][known] for name in SHAPE]

    def _gap_rows(self) -> pl.DataFrame:
        """The parts of gaps. What is known of the whole gap is at its largest part."""
        gaps, calls, ops = self.tracks.gaps, self.tracks.calls, self.tracks.operations
        blamed = (
            calls["name"][gaps["culprit_call"]].cast(pl.String),
            ops["name"][gaps["culprit_op"]].cast(pl.String),
        )
        of_gap = gaps.select(
            pl.int_range(pl.len()).over("device").alias("gap"),
            (pl.col("end_ns") - pl.col("start_ns")).alias("gap_ns"),
            self._phase_names(gaps["phase"]),
            pl.coalesce(*blamed).alias("culprit"),
            calls["source"][gaps["culprit_call"]].alias("source"),
            ops["name"][gaps["next_op"]].alias("next"),
            self.flows.into_gaps.alias("flow"),
            pl.lit(self.first[gaps["lane"]]).alias("track"),
        )
        parts = gap_parts(gaps)
        labels = [cause.label for cause in CAUSES.values()]
        part = pl.col("part")
        return parts.hstack(of_gap[parts["row"]]).with_columns(
            pl.col("track") + part.to_physical(),
            part.replace_strict([*CAUSES], labels, return_dtype=pl.String).alias("name"),
            pl.when("largest").then(pl.col(*_WHOLE_GAP_COLUMNS)),
        )

    def _write_sampled(self) -> None:
        """The counters that the profiler sampled."""
        for (lane,), rows in self.tracks.counters.group_by("lane", maintain_order=True):
            self.packets.write_counter(self.first[lane], rows["time_ns"], rows["value_pct"])

    def _write_busy(self) -> None:
        """How busy each GPU is, from its first operation that takes time to its last."""
        ops = self._operations_by("device").filter(pl.col("start_ns") < pl.col("end_ns"))
        ends = pl.col("start_ns").min(), pl.col("end_ns").max()
        for device, start_ns, end_ns in ops.group_by("owner").agg(ends).sort("owner").rows():
            gaps = self.tracks.gaps.filter(pl.col("device") == device)
            busy = busy_share(gaps, start_ns, end_ns)
            uuid = self.lanes.counter(f"GPU {device}: busy", self.lanes.gpu(device), "%")
            self.packets.write_counter(uuid, busy["time_ns"], busy["value"])

    def _write_queued(self) -> None:
        """How far each process runs ahead of its GPUs."""
        launched = self._operations_by("process").filter(pl.col("call").is_not_null())
        call_ns = self.tracks.calls["start_ns"][launched["call"]].alias("call_ns")
        for (pid,), rows in launched.with_columns(call_ns).group_by("owner", maintain_order=True):
            queued = run_ahead(rows)
            uuid = self.lanes.counter("queued operations", self.lanes.process(pid))
            self.packets.write_counter(uuid, queued["time_ns"], queued["value"])

    def _operations_by(self, column: str) -> pl.DataFrame:
        """The operations, with `owner`: this column of their lane."""
        ops, lanes = self.tracks.operations, self.tracks.lanes
        return ops.with_columns(lanes[column][ops["lane"]].alias("owner"))
