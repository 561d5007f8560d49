"""What a run saves if nobody waits for a straggler: little where the hosts are late too."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import nsysflow
from benchmarks.many_ranks.__main__ import Wanted, make_run
from benchmarks.many_ranks.simulated import Delay
from nsysflow.analysis.ranks.digest import digest, reduced
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.replay import recorded
from tests.analyses import analysed
from tests.analysis.replay.replays import Row, kernel, launch, opened
from tests.analysis.replay.test_replay import PROGRAMS, plain
from tests.oracle.export import read_export
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.rank_savings import saved_step_ns
from tests.oracle.ranks import matched
from tests.oracle.replay import Replay
from tests.reports import sqlite_report
from tests.runs_of_ranks import NAMES, kernels_in
from tests.tiny import plain_of

WORK_US, LATE_US, MORE_US = 100, 200, 1_000
"""How long a step computes, how much longer on the straggler, and how far apart late hosts launch
steps."""


def a_rank(number: int, *, late: bool, host_is_late: bool) -> nsysflow.Analysis:
    """Eight steps of a kernel and a collective with the other rank."""
    rows: list[Row] = []
    begin = 400
    for step in range(8):
        launched = begin - 20 if host_is_late else 10 + 30 * step
        rows += [
            opened(launched, launched + 19, "step"),
            launch(launched + 2, launched + 7, 2 * step + 1),
            launch(launched + 10, launched + 15, 2 * step + 2),
        ]
        computed = begin + WORK_US + LATE_US * late
        over = begin + WORK_US + LATE_US + 11
        rows += [
            kernel(begin, computed, 2 * step + 1),
            kernel(computed + 1, over, 2 * step + 2, name=NAMES[0]),
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
    delay = Delay("compute", rank=1, ns=1_000_000)
    make_run(tmp_path, Wanted(ranks=4, kernels=300, tp=2, delay=delay))
    named = [read_export(tmp_path / f"rank{number}.sqlite") for number in range(4)]
    traces = [
        replace(trace, report=f"rank{number}", event_records=(), waits=())
        for number, trace in enumerate(named)
    ]
    ranks = Ranks.of([digest(nsysflow.analyze(to_trace(trace))) for trace in traces])
    found = ranks.rank_groups["saved_step_ns"].to_list()
    assert found == expected(traces, ranks)
    assert max(filter(None, found)) > 100_000
