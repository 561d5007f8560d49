from collections import Counter, defaultdict
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Final

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as classes

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.schema import CAUSE
from nsysflow.report.perfetto import packets as wire
from nsysflow.report.perfetto.packets import PacketColumns, Packets
from nsysflow.report.perfetto.trace import bin_ns, busy_share, gap_parts, run_ahead, shifts_ns
from nsysflow.report.results import Results
from tests.analyses import analysed, few_reports, run_of
from tests.report.handmade import HOSTILE
from tests.report.perfetto.reader import Read, Slice, read_results, read_trace

EVERY: Final = (
    "h200-ddp-rank0",  # communication
    "h200-gpu-metrics",  # sampled counters
    "h200-graph-level",  # graphs traced whole
    "nan_check-sync",  # a window of steps, with the Python line of each call
    "synthetic-1",  # three processes on three GPUs
)
RANKS: Final = ("ddp-bucketed-rank0", "ddp-bucketed-rank1")


@dataclass(frozen=True)
class Shown:
    """A report, and what its trace shows. `shift_ns` is how far its times are moved: those of a
    report that begins before 0."""

    analysis: Analysis
    read: Read
    shift_ns: int

    def moved(self, rows: pl.DataFrame, *times: str) -> list[tuple[int, ...]]:
        """These times of the rows, as the trace has them."""
        return rows.select(pl.col(times) + self.shift_ns).rows()

    def counter(self, title: str) -> list[tuple[int, float]]:
        """The times and values of a counter."""
        (found,) = (at for path, at in self.read.counters.items() if path[-1] == title)
        return found

    def flows_to(self, track: str) -> list[tuple[Slice, Slice]]:
        """The arrows to tracks with this in their names."""
        return [flow for flow in self.read.flows if track in flow[1].path[-1]]


@pytest.fixture(scope="module", params=EVERY)
def shown(request: pytest.FixtureRequest) -> Shown:
    """A report of each kind; all tests of one come together: one trace at a time is in memory."""
    run = run_of(request.param)
    return Shown(analysed(request.param), read_results(run), *shifts_ns(run))


def test_operations_of_each_stream_have_their_number_and_their_time(shown: Shown) -> None:
    tracks = shown.analysis.tracks
    ns = (pl.col("end_ns") - pl.col("start_ns")).sum()
    ops = shown.analysis.timeline.events.ops
    expected = ops.group_by("device", "process", "stream").agg(pl.len(), ns.alias("ns"))
    titles = tracks.lanes.filter(pl.col("kind") == "stream")["title"]
    found = [shown.read.on(title) for title in titles]
    totals = [(len(each), sum(one.ns for one in each)) for each in found]
    assert sorted(totals) == sorted(expected.select("len", "ns").rows())


def test_calls_have_their_names_and_times(shown: Shown) -> None:
    calls = shown.analysis.timeline.events.calls
    times = shown.moved(calls, "start_ns", "end_ns")
    expected = zip(calls["name"].cast(pl.String), times, strict=True)
    found = [each for each in shown.read.slices if each.path[-1].endswith(": API calls")]
    assert Counter((one.name, (one.start_ns, one.end_ns)) for one in found) == Counter(expected)


def test_the_parts_of_gaps_sum_to_each_cause_to_the_ns(shown: Shown) -> None:
    for row in shown.analysis.accounting.iter_rows(named=True):
        for cause in CAUSES.values():
            parts = shown.read.on(f"GPU {row['device']}: idle: {cause.label}")
            assert sum(each.ns for each in parts) == row[f"{cause.name}_ns"]
            assert {each.name for each in parts} <= {cause.label}


def test_the_parts_of_a_gap_fill_it(shown: Shown) -> None:
    found: dict[tuple[str, object], list[tuple[int, int]]] = defaultdict(list)
    for each in shown.read.slices:
        if "gap" in each.arguments:
            gpu = each.path[-1].partition(":")[0]
            found[gpu, each.arguments["gap"]].append((each.start_ns, each.end_ns))
    for row in shown.analysis.gaps.iter_rows(named=True):
        parts = sorted(found.pop((f"GPU {row['device']}", row["gap"])))
        starts, ends = zip(*parts, strict=True)
        assert starts == (row["start_ns"] + shown.shift_ns, *ends[:-1])
        assert ends[-1] == row["end_ns"] + shown.shift_ns
    assert not found


def test_an_arrow_leads_from_each_launch_to_each_of_its_operations(shown: Shown) -> None:
    tracks = shown.analysis.tracks
    called = tracks.calls["start_ns"].gather(tracks.operations["call"]).alias("call_ns")
    launched = tracks.operations.with_columns(called)
    forward = launched.filter(pl.col("call_ns") <= pl.col("start_ns"))
    flows = shown.flows_to(": stream ")
    found = Counter((source.start_ns, target.start_ns) for source, target in flows)
    assert found == Counter(shown.moved(forward, "call_ns", "start_ns"))


def test_an_arrow_leads_to_each_gap_from_what_is_to_blame(shown: Shown) -> None:
    tracks = shown.analysis.tracks
    gaps = tracks.gaps
    blamed = pl.coalesce(
        tracks.calls["start_ns"].gather(gaps["culprit_call"]),
        tracks.operations["start_ns"].gather(gaps["culprit_op"]),
    )
    named = gaps.with_columns(pl.select(blamed.alias("blamed_ns")).to_series())
    forward = named.filter(pl.col("blamed_ns") <= pl.col("end_ns"))
    flows = shown.flows_to(": idle: ")
    found = Counter((source.start_ns, target.end_ns) for source, target in flows)
    assert found == Counter(shown.moved(forward, "blamed_ns", "end_ns"))


def test_sampled_counters_have_their_values(shown: Shown) -> None:
    tracks = shown.analysis.tracks
    for lane in tracks.lanes.filter(pl.col("kind") == "counter").iter_rows(named=True):
        rows = tracks.counters.filter(pl.col("lane") == lane["lane"])
        expected = rows.select(pl.col("time_ns") + shown.shift_ns, "value_pct").rows()
        assert shown.counter(lane["title"]) == expected


def test_the_busy_share_sums_to_the_time_that_is_not_idle(shown: Shown) -> None:
    for row in shown.analysis.accounting.iter_rows(named=True):
        values = shown.counter(f"GPU {row['device']}: busy")
        busy_ns = sum(value / 100 * (end - start) for (start, value), (end, _) in pairwise(values))
        assert busy_ns == pytest.approx(row["window_ns"] - row["idle_ns"], abs=1)


def test_ranks_lie_on_one_axis() -> None:
    results = Results([analysed(name) for name in RANKS])
    first, second = shifts_ns(results)
    (ahead_ns,) = results.ranks.filter(pl.col("report") == RANKS[1])["clock_ns"]
    assert (first, second) == (0, -ahead_ns)
    trace = read_results(results)
    groups = {each.path[0] for each in trace.slices}
    assert groups == {*RANKS, *(f"{name}: GPU {gpu} NVIDIA H200" for gpu, name in enumerate(RANKS))}
    ends = [
        sorted(each.end_ns for each in trace.slices
               if each.path[0] == group and each.category == "communication")
        for group in groups if "GPU" in group
    ]  # fmt: skip
    apart = [abs(one - other) for one, other in zip(*ends, strict=True)]
    assert sorted(apart)[len(apart) // 2] < 10_000  # of collectives that end together


def test_processes_of_one_pid_in_two_reports_stay_two() -> None:
    one = analysed("nan_check-sync")
    trace = read_results(Results([one, one]))
    pids = [each.process.pid for each in trace.tracks.values() if each.HasField("process")]
    assert len(pids) == len({*pids}) == 2
    threads = {each.thread.pid for each in trace.tracks.values() if each.HasField("thread")}
    assert threads == {*pids}


@pytest.mark.parametrize(
    ("window_ns", "width_ns"),
    [(0, 1), (1000, 1), (1001, 2), (2001, 5), (5001, 10), (10**9, 10**6), (10**9 + 1, 2 * 10**6)],
)
def test_a_bin_is_a_round_time(window_ns: int, width_ns: int) -> None:
    assert bin_ns(window_ns) == width_ns


@given(st.integers(0, 10**6), st.lists(st.integers(1, 400), min_size=2, max_size=40))
def test_the_busy_share_of_a_bin_is_that_of_a_slow_count(start: int, lengths: list[int]) -> None:
    ends = [start + ns for ns in accumulate(lengths)]
    gaps = [*zip(ends[0::2], ends[1::2], strict=False)]
    end = ends[-1] + 7
    idle = {at for first, last in gaps for at in range(first, last)}
    schema = {"start_ns": pl.Int64, "end_ns": pl.Int64}
    found = busy_share(pl.DataFrame(gaps, schema=schema, orient="row"), start, end).rows()
    edges = [*range(start, end, bin_ns(end - start)), end]
    assert [at for at, _ in found] == edges
    shares = [
        100 * sum(at not in idle for at in range(*bin_)) / (bin_[1] - bin_[0])
        for bin_ in pairwise(edges)
    ]
    assert [share for _, share in found] == pytest.approx([*shares, 0.0])


@few_reports
def test_it_is_the_run_ahead_of_each_launch(name: str) -> None:
    timeline = analysed(name).timeline
    launches, ops = timeline.launches, timeline.events.ops
    called = ops.drop_nulls("call")
    call_ns = timeline.events.calls["start_ns"].gather(called["call"])
    for (process,), rows in called.with_columns(call_ns.alias("call_ns")).group_by("process"):
        queued, call_at = run_ahead(rows), rows["call_ns"].sort()
        mine = launches.filter(pl.Series(ops["process"].gather(launches["op"])) == process)
        starts = timeline.events.calls["start_ns"].gather(mine["call"])
        # what is launched at the same time was not launched before
        row = queued["time_ns"].search_sorted(starts, side="right").cast(pl.Int64) - 1
        same = call_at.search_sorted(starts, side="right") - call_at.search_sorted(starts)
        ahead_of = queued["value"].gather(row.set(row < 0, None)).fill_null(0) - same
        assert ahead_of.to_list() == mine["run_ahead"].to_list()


NONE = {f"{cause}_ns": 0 for cause in CAUSES}


@pytest.mark.parametrize(
    ("gaps", "parts"),
    [
        # the largest part comes last
        ([{"start_ns": 100, "end_ns": 160, "cause": "sync", "sync_ns": 40, "host_ns": 5,
           "launch_ns": 15}],
         [(0, "host", 100, 105, False), (0, "launch", 105, 120, False),
          (0, "sync", 120, 160, True)]),
        # of two equal parts the cause of the gap
        ([{"start_ns": 0, "end_ns": 20, "cause": "sync", "sync_ns": 10, "host_ns": 10}],
         [(0, "host", 0, 10, False), (0, "sync", 10, 20, True)]),
        # each gap begins anew
        ([{"start_ns": 0, "end_ns": 10, "cause": "host", "host_ns": 10},
          {"start_ns": 50, "end_ns": 57, "cause": "api", "api_ns": 7}],
         [(0, "host", 0, 10, True), (1, "api", 50, 57, True)]),
        ([], []),
    ],
)  # fmt: skip
def test_the_parts_of_a_gap_follow_each_other(
    gaps: list[dict[str, object]], parts: list[tuple[int, str, int, int, bool]]
) -> None:
    ns = pl.Int64()
    schema = pl.Schema({"start_ns": ns, "end_ns": ns, "cause": CAUSE, **dict.fromkeys(NONE, ns)})
    rows = pl.DataFrame([NONE | gap for gap in gaps], schema=schema)
    assert gap_parts(rows).rows() == parts


@given(
    st.integers(0, 2**40),
    st.integers(1, 2**32 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(0, 2**64 - 1)),
)
def test_an_event_is_what_the_package_makes_of_it(
    time_ns: int, iid: int, value: int, flows: list[int]
) -> None:
    content = wire.event_packet(
        classes.TracePacket(trusted_packet_sequence_id=1).SerializeToString(),
        wire.number_argument(iid, value) + b"".join(map(wire.flow_start, flows)) + wire.flow_end(7),
    )
    written = b"".join(wire.timed_packets([time_ns], [content]))
    event = classes.TrackEvent(
        debug_annotations=[classes.DebugAnnotation(name_iid=iid, int_value=value)],
        flow_ids=flows,
        terminating_flow_ids=[7],
    )
    packet = classes.TracePacket(timestamp=time_ns, trusted_packet_sequence_id=1, track_event=event)
    assert classes.Trace.FromString(written) == classes.Trace(packet=[packet])


def read_back(*names: str | None, track: str = "track") -> tuple[bytes, list[Slice]]:
    """Slices without length of these names, which are also a text of each: written, and read."""
    out = BytesIO()
    packets = Packets(out)
    uuid = packets.uuids(1)
    packets.describe(uuid, name=track)
    words, times = pl.Series(names, dtype=pl.String), range(len(names))
    columns = {"start_ns": times, "end_ns": times, "name": words, "source": words}
    rows = pl.DataFrame(columns).with_columns(pl.lit(uuid, pl.UInt64).alias("track"))
    packets.write_slices(rows, PacketColumns(texts=("source",)))
    return out.getvalue(), read_trace(out.getvalue()).slices


def test_names_are_shown_as_they_are() -> None:
    names = [*HOSTILE, ""]
    _, found = read_back(*names, track=names[0])
    assert [each.name for each in found] == names
    assert [each.arguments["source"] for each in found] == names
    assert [(each.start_ns, each.ns) for each in found] == [(at, 0) for at in range(len(found))]
    assert found[0].path == (names[0],)


def test_a_name_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysflow.report.perfetto.packets._ROWS", 2)
    names = ["a long name", "other", "a long name", "a long name", "last"]
    content, found = read_back(*names)
    assert content.count(b"a long name") == 2  # as a name and as a text
    assert [each.name for each in found] == names
