"""Ranks replayed together, and what a run saves if nobody waits for a straggler."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import nsysflow
from benchmarks.many_ranks.__main__ import Wanted, make_run
from benchmarks.many_ranks.simulated import Delay, Kind
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.run_saving import RunReplays
from nsysflow.analysis.ranks.digest import digest, reduced
from nsysflow.analysis.ranks.joint_replay import RunChange
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.disturbance import RecordingCost, without_cost
from nsysflow.analysis.replay.replay import Program, recorded
from tests.analyses import analysed
from tests.analysis.replay.replays import Row
from tests.analysis.replay.test_replay import PROGRAMS, plain
from tests.in_us import kernel, launch, opened
from tests.oracle.export import read_export
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.rank_savings import JointReplay, saved_step_ns
from tests.oracle.ranks import matched
from tests.oracle.replay import Replay
from tests.reports import sqlite_report
from tests.runs_of_ranks import NAMES, kernels_in
from tests.tiny import AS_RECORDED, plain_of

WORK_US, LATE_US, MORE_US = 100, 200, 1_000
"""How long a step computes, how much longer on the straggler, and how far apart late hosts launch
steps."""


def a_rank(number: int, *, late: bool, host_is_late: bool) -> nsysflow.Analysis:
    """Eight steps of a kernel and a collective with the other rank."""
    rows: list[Row] = []
    begin = 400
    for step in range(8):
        launched = begin - 20 if host_is_late else 10 + 30 * step
        computed = begin + WORK_US + LATE_US * late
        over = begin + WORK_US + LATE_US + 11
        first, second = 2 * step + 1, 2 * step + 2
        rows += [
            opened(launched, launched + 19, "step"),
            *(launch(launched + 2, launched + 7, first), kernel(begin, computed, first)),
            launch(launched + 10, launched + 15, second),
            kernel(computed + 1, over, second, name=NAMES[0]),
        ]
        begin = begin + MORE_US if host_is_late else over + 1
    return nsysflow.analyze(to_trace(replace(plain_of(*rows), report=f"rank{number}")))


@pytest.mark.parametrize(("host_is_late", "saved_us"), [(False, LATE_US), (True, 0)])
def test_a_run_saves_what_ranks_wait_unless_their_hosts_are_late(
    host_is_late: bool, saved_us: int
) -> None:
    ranks = [a_rank(n, late=n == 1, host_is_late=host_is_late) for n in range(3)]
    found = Ranks.of([digest(each) for each in ranks]).judged.rank_groups
    assert found["rank"].to_list() == [1]
    assert found["cost_step_ns"].to_list() == [LATE_US * 1_000]
    assert found["saved_step_ns"].to_list() == [saved_us * 1_000]


def test_what_a_run_saves_is_null_if_its_programs_are_not_known() -> None:
    ranks = [digest(a_rank(n, late=n == 1, host_is_late=False)) for n in range(2)]
    without = [replace(each, bounds=each.bounds.clear()) for each in ranks]
    assert Ranks.of(without).rank_groups["saved_step_ns"].to_list() == [None]


@pytest.mark.parametrize(("most", "saved"), [(16, [LATE_US * 1_000]), (15, [None])])
def test_a_long_report_is_not_replayed(
    most: int, saved: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsysflow.analysis.ranks.digest.MOST_OPS", most)
    ranks = [a_rank(n, late=n == 1, host_is_late=False) for n in range(2)]
    found = Ranks.of([digest(each) for each in ranks]).judged.rank_groups
    assert found["saved_step_ns"].to_list() == saved


@pytest.mark.parametrize("name", PROGRAMS[1::2])
def test_a_reduced_program_goes_on_as_the_whole_one_does(name: str) -> None:
    trace, chosen = plain(name), random.Random(name)
    program = recorded(nsysflow.analyze(to_trace(trace)).timeline).program
    met = sorted(chosen.sample(range(len(program.ops)), len(program.ops) // 5))
    few = reduced(program, met, begun := [op for op in range(len(program.ops)) if op not in met])
    at_most = {few.met[op]: (op, chosen.choice((0, 1_000, 50_000, 1_000_000))) for op in met}
    starts, ends, gains = {0: 0}, {0: 0}, {}
    for (node,), bounds in few.bounds.group_by("node", maintain_order=True):
        starts[node] = min(ends[source] + ns for _, source, ns in bounds.rows())
        ends[node] = starts[node]
        if node in at_most:
            op, gain = at_most[node]
            ends[node] = gains[op] = min(gain, starts[node] + program.ops["length_ns"][op])
    replay = Replay(trace)
    was, ended = replay.run(set(), {})
    is_now, _ = replay.run(set(), {op: ended[op] - gain for op, gain in gains.items()})
    earlier = [before - now for before, now in zip(was, is_now, strict=True)]
    assert [starts[few.met[op]] for op in met] == [earlier[op] for op in met]
    assert [starts[few.begun[op]] for op in begun] == [earlier[op] for op in begun]


def expected(traces: Sequence[PlainTrace], ranks: Ranks) -> list[int | None]:
    """The oracle's savings of the groups: of up to four stragglers."""
    run = matched(kernels_in(ranks.matched.digests), len(traces))
    steps = begins_of(ranks)
    replays = [Replay(trace) for trace in traces]
    found = []
    for row in ranks.rank_groups.iter_rows(named=True):
        known = row["steps_last"] and 2 * row["cost_group_ns"] <= row["cost_ns"]
        members, cost_ns = run.groups[row["group"]][0], row["cost_step_ns"]
        saved = saved_step_ns(run, replays, row["rank"], members, steps, cost_ns) if known else None
        found.append(saved)
    return found


def begins_of(ranks: Ranks) -> Mapping[int, Mapping[int, int]]:
    """Of each rank when its counted steps begin, and when the next one does."""
    every = ranks.matched.steps.select("rank", "step", "start_ns").rows()
    begins = {(rank, step): start_ns for rank, step, start_ns in every}
    found: dict[int, dict[int, int]] = {rank: {} for rank, _ in begins}
    for rank, step in ranks.rank_steps.select("rank", "step").rows():
        if (rank, step + 1) in begins:
            found[rank][begins[rank, step]] = begins[rank, step + 1]
    return found


@pytest.mark.parametrize("run", ["ddp-bucketed", "ddp-no_overlap"])
def test_the_savings_of_a_real_run_agree_with_the_oracle(run: str, tmp_path: Path) -> None:
    names = [f"{run}-rank{number}" for number in (0, 1)]
    ranks = Ranks.of([digest(analysed(name)) for name in names])
    traces = [read_export(sqlite_report(tmp_path, name)) for name in names]
    assert ranks.rank_groups["saved_step_ns"].to_list() == expected(traces, ranks)


def test_the_savings_of_a_made_run_agree_with_the_oracle(tmp_path: Path) -> None:
    traces = made(tmp_path, "compute", tp=2)
    ranks = Ranks.of([digest(nsysflow.analyze(to_trace(trace))) for trace in traces])
    found = ranks.rank_groups["saved_step_ns"].to_list()
    assert found == expected(traces, ranks)
    assert max(filter(None, found)) > 100_000


RANKS = 4


CHANGES: list[tuple[dict[int, int], list[int], float]] = [
    ({}, [], 1.0),
    ({0: 20}, [], 1.0),
    ({0: 80, 1: 80}, [], 0.5),
    ({0: 15}, [1], 1.0),
    ({0: 15}, [0, 1], 1.0),
]
"""By report what share of the host's time recording takes, who is not awaited, the share of compute
that is left where the program is not known."""


def made(folder: Path, kind: Kind, *, tp: int) -> list[PlainTrace]:
    """The reports of a made run of which rank 1 is late."""
    delay = Delay(kind, rank=1, ns=2_000_000)
    make_run(folder, Wanted(ranks=RANKS, kernels=200, tp=tp, delay=delay, seed=tp))
    names = [f"rank{number}" for number in range(RANKS)]
    return [  # the oracle of the replay does not know events
        replace(read_export(folder / f"{name}.sqlite"), report=name, event_records=(), waits=())
        for name in names
    ]


def run_of(traces: Sequence[PlainTrace], known: int = RANKS) -> RunReplays:
    """The run of which the programs of the first reports are known."""
    options = replace(AS_RECORDED, skip=1)
    named = [nsysflow.analyze(to_trace(trace), options) for trace in traces]
    run = RunReplays.of(
        [JudgedReport(one) for one in named[:known]], Ranks.of([digest(one) for one in named])
    )
    assert run is not None
    return run


def trace_times(ops: pl.DataFrame) -> tuple[list[int], list[int]]:
    """The starts and ends of operations, as the oracle has them."""
    return ops["start_ns"].to_list(), ops["end_ns"].to_list()


def quieter(program: Program, pct: int) -> Program:
    """A program without this share of its host's time."""
    cost = RecordingCost(permille=10 * pct, backtrace_ns=0, gap_ns=0)
    return without_cost(program, cost, traced=program.calls["pred"].is_null())


@pytest.mark.parametrize(("kind", "tp", "known"), [("compute", 1, RANKS), ("host", 2, 2)])
def test_ranks_together_agree_with_the_oracle(
    kind: Kind, tp: int, known: int, tmp_path: Path
) -> None:
    traces = made(tmp_path, kind, tp=tp)
    run = run_of(traces, known)
    oracle = JointReplay(
        matched(kernels_in(run.ranks.matched.digests), RANKS),
        {number: Replay(trace) for number, trace in enumerate(traces[:known])},
    )
    programs = [one.baseline.program for one in run.each]
    for pcts, unawaited, compute in CHANGES:
        change = RunChange(
            unawaited=frozenset(unawaited), compute=dict.fromkeys(range(RANKS), compute)
        )
        now = [quieter(each, pcts.get(n, 0)) for n, each in enumerate(programs)]
        expected = oracle.replay(pcts, unawaited, compute)
        times = [of.ops for of in run.joint.replay(now, change)]
        assert [trace_times(of) for of in times] == [expected[n] for n in range(known)]
    # if nothing is changed they do what they did
    unchanged = run.joint.replay(programs, RunChange(compute={}))
    assert [trace_times(of.ops) for of in unchanged] == [trace_times(one.ops) for one in run.each]
    calls = [trace_times(of.calls) for of in unchanged]
    assert calls == [trace_times(program.calls) for program in programs]
