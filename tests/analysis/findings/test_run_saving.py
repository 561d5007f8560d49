"""What a change saves a run of ranks, never more than its slowest rank allows; and stragglers."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.findings import Findings, find_of_run
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.communication import straggler
from nsysflow.analysis.findings.run_saving import RunReplays, whatif_of_run
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.joint_replay import RunChange
from nsysflow.analysis.ranks.ranks import Ranks, rank_names
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.analysis.replay.disturbance import with_faster_host
from nsysflow.analysis.replay.whatif import whatif
from tests import tiny
from tests.analysis.findings.subjects import MS, US, real
from tests.in_us import call, kernel, launch, sample
from tests.oracle.model import Call, Op, Range, Shape
from tests.runs_of_ranks import NAMES, Simulated

STEPS = 8
TRANSFER_US = 30
AS_RECORDED_WHOLE = replace(tiny.AS_RECORDED, skip=0)


@dataclass(frozen=True)
class Loop:
    """What a rank does in each step: so many kernels, the Python before each launch, and how long
    each kernel takes with how many blocks. A collective with the other ranks ends the step; the
    host waits for it, or runs ahead. If it has phases, these are `data`, which takes so long and
    launches nothing, and `forward` and `backward` with half of the kernels each; `forward` sleeps
    once, and before each launch of `backward` there may be more Python. With one phase, that is
    `forward`. Before each launch a sample has these functions, the
    innermost first."""

    kernels: int = 40
    python_us: int = 60
    kernel_us: int = 20
    blocks: int = 64
    ahead: bool = False
    phases: int = 0
    data_us: int = 10
    sleeps_us: int = 0
    backward_us: int = 0
    functions: tuple[str, ...] = ()

    @property
    def computes_ns(self) -> int:
        """What it computes in a step."""
        return self.kernels * self.kernel_us * US


def analyses_of(*loops: Loop, plain_ns: int | None = None) -> list[nsysflow.Analysis]:
    """Ranks that do this, each a report; their step takes so long without the profiler."""
    options = AS_RECORDED_WHOLE
    if plain_ns is not None:
        options = replace(options, unrecorded_step_ns=plain_ns)
    return [
        nsysflow.analyze(replace(tiny.trace_of(*own), report=f"rank{number}"), options)
        for number, own in enumerate(rows_of(*loops))
    ]


@cache
def reports_of(*loops: Loop, plain_ns: int | None = None) -> list[JudgedReport]:
    """As rules look at them."""
    return [JudgedReport(one) for one in analyses_of(*loops, plain_ns=plain_ns)]


def one_report_of(*loops: Loop) -> JudgedReport:
    """The same ranks in one report: a process and a GPU each."""
    rows = [_of_rank(row, rank) for rank, own in enumerate(rows_of(*loops)) for row in own]
    return JudgedReport(nsysflow.analyze(tiny.trace_of(*rows), AS_RECORDED_WHOLE))


def _of_rank(row: tiny.Row, rank: int) -> tiny.Row:
    """A row of another process, on another GPU."""
    process, thread = (rank + 1) << 24, (rank + 1) << 24 | 1
    if isinstance(row, Op):
        return replace(row, process=process, device=rank)
    assert isinstance(row, (Call, Range))
    return replace(row, process=process, thread=thread)


def rows_of(*loops: Loop) -> list[list[tiny.Row]]:
    rows: list[list[tiny.Row]] = [[] for _ in loops]
    begins_us, end_us = [100] * len(loops), 0
    for step in range(STEPS):
        first = 1_000 * step + 1
        arrived = [
            _computed(own, loop, begin_us, first, end_us)
            for own, loop, begin_us in zip(rows, loops, begins_us, strict=True)
        ]
        end_us = max(at for _, at in arrived) + TRANSFER_US
        for rank, (own, each) in enumerate(zip(rows, loops, strict=True)):
            launched, at = arrived[rank]
            number = first + each.kernels
            own.append(launch(launched, launched + 4, number))
            own.append(kernel(at, end_us, number, name=NAMES[0]))
            done_us = launched + 5
            if not each.ahead:
                own.append(call(done_us, end_us + 2, "cudaDeviceSynchronize"))
                done_us = end_us + 2
            own.append(tiny.opened((begins_us[rank] - 5) * US, done_us * US + 1, "step"))
            begins_us[rank] = done_us + 10
    return rows


def _computed(
    rows: list[tiny.Row], loop: Loop, begin_us: int, first: int, free: int
) -> tuple[int, int]:
    """Add a step's kernels, the first when the GPU is free; when the collective is launched, and
    when it arrives."""
    launched = begin_us + (loop.data_us if loop.phases else 0)
    half = loop.kernels // 2
    starts: list[int] = []
    for place in range(loop.kernels):
        launched += loop.sleeps_us * (place == half - 1)
        starts.append(launched)
        rows.append(launch(launched, launched + 4, first + place))
        if loop.functions:
            rows.append(sample(launched - 1, *loop.functions))
        start = max(launched + 6, free + 1)
        free = start + loop.kernel_us
        op = kernel(start, free, first + place, name="work")
        rows.append(replace(op, shape=Shape(grid_x=loop.blocks)))
        launched += loop.python_us + loop.backward_us * (place >= half)
    if loop.phases:
        borders = begin_us, starts[0], starts[half] if loop.phases > 1 else launched, launched
        names = ("data", "forward", "backward")[: loop.phases + 1]
        phases = zip(names, pairwise(borders), strict=False)
        rows += [tiny.opened(at * US, end * US - 1, name) for name, (at, end) in phases]
    return launched, max(launched + 6, free + 1)


def ranks_of(subjects: Sequence[JudgedReport]) -> Ranks:
    """The run of all these reports."""
    return Ranks.of([digest(subject.whole) for subject in subjects])


def replays_of(subjects: Sequence[JudgedReport]) -> RunReplays:
    """Their joint replay."""
    run = RunReplays.of(subjects, ranks_of(subjects))
    assert run is not None
    return run


@cache
def found_of(*loops: Loop) -> Findings:
    """The findings of a run of these ranks."""
    return find_of_run(reports_of(*loops))


def plan_of(*loops: Loop) -> tuple[Valued, ...]:
    return found_of(*loops).valued


CHANGES = (
    Changes(graphs=("step",)),
    Changes(removed=(Removal(kind="all"),)),
    Changes(faster_host=(("step", 0.0),), no_profiler=True),
    Changes(graphs=("step",), removed=(Removal(kind="all"),)),
)


def random_loops(seed: int) -> Iterator[Loop]:
    chosen = random.Random(seed)
    for _ in range(chosen.choice((2, 3, 4))):
        yield Loop(
            kernels=chosen.choice((20, 30, 40)),
            python_us=chosen.choice((10, 20, 60, 100)),
            kernel_us=chosen.choice((5, 20, 40, 70)),
            blocks=chosen.choice((64, 96)),
        )


SEEDS: Final = [0, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 9))]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_change_of_the_host_leaves_a_step_shorter_than_what_a_rank_computes(seed: int) -> None:
    loops = [*random_loops(seed)]
    subjects = reports_of(*loops)
    run = replays_of(subjects)
    assert run.before_ns == max(subject.step_ns for subject in subjects)
    longest_ns = max(loop.computes_ns for loop in loops)
    for change in CHANGES:
        saved_ns = run.saving_ns(change)
        assert saved_ns is not None
        assert 0 <= saved_ns <= run.before_ns - longest_ns


@pytest.mark.parametrize("seed", SEEDS)
def test_idle_time_by_cause_of_a_run_is_that_of_the_step_of_its_headline(seed: int) -> None:
    loops = [*random_loops(seed)]
    subjects = reports_of(*loops)
    slowest = max(subjects, key=lambda subject: subject.step_ns)
    alone = whatif(slowest.timeline, Changes())
    for change in CHANGES[:2]:
        run = whatif_of_run(subjects, ranks_of(subjects), change)
        assert run is not None
        assert (run.before_ns, run.idle_before) == (alone.before.step_ns, alone.step_idle_before)
        busy_ns = run.after_ns - sum(run.idle_after.values())
        assert busy_ns >= min(loop.computes_ns for loop in loops) + TRANSFER_US * US


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_of_a_run_goes_down_and_leaves_what_ranks_compute(seed: int) -> None:
    loops = [*random_loops(seed)]
    found = found_of(*loops)
    compute_ns = sorted(loop.computes_ns for loop in loops)
    left_ns = compute_ns[-1]
    before_ns = found.undisturbed_step_ns
    for one in found.valued:
        if one.finding.rule == "load-imbalance":
            left_ns = min(left_ns, sum(compute_ns) // len(compute_ns))
        if one.finding.rule == "straggler":
            left_ns = min(left_ns, compute_ns[0])
        if one.finding.makes_kernels_faster:
            left_ns = 0
        assert one.high_ns >= 0
        assert left_ns <= one.step_after_ns <= before_ns
        before_ns = one.step_after_ns


def test_a_rank_that_others_do_not_wait_for_saves_nothing_until_the_slowest_one_changes() -> None:
    run = replays_of(reports_of(Loop(python_us=50), Loop(python_us=80)))
    programs = [one.baseline.program for one in run.each]
    fast = [with_faster_host(program, 0.6) for program in programs]
    nothing = RunChange(compute={})
    assert run.step_of([fast[0], programs[1]], nothing).step_ns >= run.before_ns
    assert run.before_ns - run.step_of([programs[0], fast[1]], nothing).step_ns > 1_000 * US
    assert run.before_ns - run.step_of(fast, nothing).step_ns > 1_150 * US


def slower(loop: Loop, factor: float) -> Loop:
    """The same with so many times as much Python before each launch."""
    return replace(loop, python_us=round(factor * loop.python_us))


def test_the_profiler_takes_as_large_a_share_of_each_host() -> None:
    """What it takes of a rank that waits for another one does not show in its own steps. Once the
    other one is faster, the run takes what it takes without the profiler."""
    waiting, late = Loop(python_us=30, ahead=True), Loop(python_us=60, ahead=True)
    plain = replays_of(reports_of(waiting, late))
    slow = [slower(loop, 1.5) for loop in (waiting, late)]
    run = replays_of(reports_of(*slow, plain_ns=plain.before_ns))
    assert run.before_ns == pytest.approx(plain.before_ns, rel=0.02)
    faster_ns, truth_ns = (
        of.step_of([first, with_faster_host(second, 0.3)], RunChange(compute={})).step_ns
        for of in (run, plain)
        for first, second in [[one.baseline.program for one in of.each]]
    )
    assert truth_ns < 0.6 * plain.before_ns
    assert faster_ns == pytest.approx(truth_ns, rel=0.03)


def test_a_rank_that_begins_earlier_waits_for_the_others() -> None:
    """The host of one rank comes to its first kernel 40 ms late. Without that time, its kernels
    begin earlier; no step is longer for it."""
    run = replays_of([real(f"ddp-no_overlap-rank{rank}") for rank in (0, 1)])
    saved_ns = run.saving_ns(Changes(faster_host=(("step", 0.5),)))
    assert saved_ns is not None
    assert 0 <= saved_ns < 0.01 * run.before_ns


def test_launches_save_a_run_no_more_than_the_rank_with_more_work_leaves() -> None:
    loops = (Loop(python_us=100, kernel_us=35), Loop(python_us=100, kernel_us=58, blocks=96))
    plan = plan_of(*loops)
    (launches,) = (one for one in plan if one.finding.rule == "launch-bound")
    assert launches.alone_ns > 1_000 * US
    assert launches.step_ns - launches.alone_ns > loops[1].computes_ns
    (uneven,) = (one for one in plan if one.finding.rule == "load-imbalance")
    assert uneven.finding.title == "load imbalance: rank1 computes 66 % more than the other ranks"
    assert uneven.finding.evidence[1] == "work has 96 blocks, on another rank 64"
    assert uneven.finding.effort == "lines"  # of the sampler
    assert uneven.high_ns == pytest.approx(40 * (58 - 46.5) * US, rel=0.02)


def test_evening_out_saves_what_the_run_takes_less_if_all_ranks_have_the_mean_work() -> None:
    uneven = (Loop(20, 20, 60, 64), Loop(20, 20, 100, 96), Loop(20, 20, 80, 80))
    (one,) = (one for one in plan_of(*uneven) if one.finding.rule == "load-imbalance")
    even = reports_of(*[Loop(20, 20, 80, 80)] * 3)
    truth_ns = one.step_ns - even[0].step_ns
    assert one.alone_ns == pytest.approx(truth_ns, rel=0.02)


def test_ranks_without_common_collectives_are_judged_each_by_itself() -> None:
    first, second = Loop(python_us=60), Loop(python_us=90, kernels=30)
    assert not found_of(first, second).ranks_alone
    of_two_runs = [reports_of(first, first)[0], reports_of(second, second)[1]]
    assert find_of_run(of_two_runs).ranks_alone


def test_ranks_in_one_report_have_the_savings_of_ranks_with_a_report_each() -> None:
    loops = (Loop(python_us=100, kernel_us=35), Loop(python_us=100, kernel_us=58, blocks=96))
    one, each = find_of_run([one_report_of(*loops)]), found_of(*loops)
    savings = [
        [(found.finding.rule, found.high_ns, found.step_after_ns) for found in plan.valued]
        for plan in (one, each)
    ]
    assert savings[0] == savings[1]
    assert savings[0][1][:2] == ("load-imbalance", 460_000)


REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


EVEN, LATE = Loop(20, 20, 50), Loop(20, 20, 100)
"""The second one computes 1 ms longer in each step."""


def test_the_rank_that_is_last_is_named_and_what_the_other_waits_is_the_saving() -> None:
    subjects = reports_of(EVEN, LATE)
    ((subject, one),) = straggler(subjects, ranks_of(subjects))
    assert subject is subjects[0]
    assert one.title == "straggler: rank1 holds up all ranks"
    assert one.evidence[2].startswith("it computes longer")
    assert 0.99 * MS < one.size_ns < 1.01 * MS
    # the same kernels that take longer are no uneven load
    (found,) = (one for one in plan_of(EVEN, LATE) if one.finding.culprit == "rank1")
    assert found.finding.rule == "straggler"
    assert 0.8 * MS < found.high_ns <= 1.01 * MS
    assert found.low_ns == 0


def test_ranks_that_come_together_have_no_straggler() -> None:
    ranks = [real(f"ddp-no_overlap-rank{rank}") for rank in (0, 1)]
    assert "straggler" not in {one.finding.rule for one in find_of_run(ranks).valued}


def test_a_straggler_is_named_with_its_group_but_not_those_that_it_makes_late() -> None:
    run = Simulated(4)
    for _ in range(5):
        run.begin_step()
        for _layer in range(6):
            for number in range(4):
                run.compute(number, 200_000 + (number == 1) * 300_000)
            for pair in (0, 1):
                run.meet((2 * pair, 2 * pair + 1), REDUCE, communicator=1 + pair)
        for shard in (0, 1):
            run.meet((shard, shard + 2), REDUCE, communicator=8 + shard)
    ((_, one),) = straggler(reports_of(EVEN, LATE), Ranks.of(run.digests()))
    assert one.title == "straggler: rank1 holds up TP group 0,1"
    assert (one.culprit, one.size_ns) == ("rank1", 6 * 300_000)


def test_the_finding_names_the_group_that_others_wait_for_though_another_costs_more() -> None:
    run = Simulated(8)
    for _ in range(5):
        run.begin_step()
        for number in range(8):
            run.compute(number, 500_000 + (number == 1) * 900_000)
        for half in (0, 1):
            run.meet(range(4 * half, 4 * half + 4), REDUCE, communicator=1 + half)
        run.compute(1, 600_000)  # its second delay holds up only ranks 1 and 5
        for number in range(4):
            run.meet((number, number + 4), REDUCE, communicator=8 + number)
    ranks = Ranks.of(run.digests())
    assert ranks.judged.rank_groups.select("rank", "members").row(0) == (1, "1,5")
    ((_, one),) = straggler(reports_of(EVEN, LATE), ranks)
    assert one.title == "straggler: rank1 holds up TP group 0-3"


@pytest.mark.parametrize(
    ("places", "named"),
    [
        ([("rank0", 0), ("rank1", 0)], "rank1"),
        ([("merged", 0), ("merged", 1)], "GPU 1"),
        ([("node0", 0), ("node0", 1), ("node1", 0), ("node1", 1)], "node1 GPU 1"),
    ],
)
def test_a_rank_is_called_what_tells_it_from_the_others(
    places: list[tuple[str, int]], named: str
) -> None:
    ranks = pl.DataFrame(places, schema=["report", "device"], orient="row")
    assert rank_names(ranks)(*places[-1]) == named
