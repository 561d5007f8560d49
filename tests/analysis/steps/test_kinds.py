"""Typical steps, one-offs, steps that the recording cuts off, loops beside the steps, and pauses
that come back."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import Final

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.events import lost_launches as lost_stretches
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.steps.kinds import by_turns, with_excess
from nsysflow.analysis.steps.pauses import Row as PauseRow
from nsysflow.analysis.steps.pauses import recurring, size_classes
from nsysflow.runtime.protocol import AUTO_DOMAIN, LOOK
from tests.agreement import Picture, assert_pictures_agree
from tests.analyses import EXAMPLES, rows_of
from tests.oracle import integrity
from tests.oracle.model import Call, Capture, Op, PlainTrace, Range, to_trace
from tests.oracle.report import Report
from tests.oracle.run import run
from tests.oracle.steps import excesses, one_offs, steps
from tests.oracle.strategies import several, traces
from tests.tiny import PROCESS, Row, analysis_of, call, copy, kernel, launch, opened, plain_of


def step(number: int, *, at: int, busy: int = 900, end: int | None = 0) -> list[Row]:
    """A step that begins at `at` with a launch of 10 ns and a kernel."""
    range_ = opened(at, at + 15 if end == 0 else end, "step")
    return [range_, launch(at, at + 10, number), kernel(at + 10, at + 10 + busy, number)]


def regular(count: int, *, first: int = 0) -> list[Row]:
    """A step every 1000 ns. The GPU runs to the end of the last one, which has its tail."""
    last = first + count - 1
    return [
        row
        for n in range(first, first + count)
        for row in step(n + 1, at=1_000 * n, busy=990 if n == last else 900)
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_a_single_step_that_a_framework_marks_is_one(count: int) -> None:
    names = [f"ProfilerStep#{number}" for number in range(count)]
    timeline = analysis_of(*program(*names, "other")).timeline
    assert timeline.step_paths["joined"].to_list() == ["ProfilerStep"]
    assert len(timeline.steps) == count


@pytest.mark.parametrize(("kernel_ns", "steps"), [(0, 0), (4, 0), (5, 5)])
def test_passes_with_hardly_a_kernel_are_no_steps(kernel_ns: int, steps: int) -> None:
    among = [kernel(205, 205 + kernel_ns, 9)] if kernel_ns else []
    assert len(analysis_of(*LOADED, *among, LATER).steps) == steps


def test_ranges_are_steps_where_nothing_runs_a_kernel_or_kernels_come_before() -> None:
    assert len(analysis_of(*LOADED).steps) == 5
    assert len(analysis_of(kernel(0, 5, 9), *LOADED).steps) == 5


@pytest.mark.parametrize("skip", [0, 3])
def test_skip_says_how_many_steps_are_start_up(skip: int) -> None:
    found = analysis_of(*regular(4), options=Options(skip=skip)).steps["kind"].cast(pl.String)
    assert found.to_list() == ["start-up"] * skip + ["steady"] * (4 - skip)


def test_a_step_that_our_runtime_slowed_down_is_start_up() -> None:
    """It had watched each call of a module, and the page said that four steps take longer."""
    slow = [*regular(4), *step(5, at=4_000, busy=4_000), *regular(4, first=9)]
    look = replace(opened(4_001, 4_002, LOOK), domain=AUTO_DOMAIN)
    for rows, kind, longer in ((slow, "one-off", 1), ([*slow, look], "start-up", 0)):
        analysis = analysis_of(*rows)
        assert analysis.steps["kind"].cast(pl.String).to_list()[4] == kind
        assert [row["kind"] for row in steps(Report(plain_of(*rows)))][4] == kind
        assert analysis.run["part"].cast(pl.String).to_list().count("longer") == longer
        assert analysis.phases["path"].to_list() == ["step"]


def test_a_step_that_our_runtime_slowed_down_is_judged_if_no_other_is_left() -> None:
    rows = [*regular(3), replace(opened(2_001, 2_002, LOOK), domain=AUTO_DOMAIN)]
    kinds = ["start-up", "start-up", "steady"]
    assert analysis_of(*rows).steps["kind"].cast(pl.String).to_list() == kinds
    assert [row["kind"] for row in steps(Report(plain_of(*rows)))] == kinds


ROUND: Final = ("batch_norm", "layer_norm", "group_norm", "rms_norm")


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        # seen in a benchmark of ten norms: a step was one of them
        (ROUND * 3, ["start-up", "start-up", "cut-off"]),
        (["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"], ["start-up"] * 2 + ["steady"]),
    ],
)
def test_the_only_step_left_is_judged_unless_most_is_outside_of_its_range(
    names: Sequence[str], kinds: list[str]
) -> None:
    rows = program(*names)
    found = analysis_of(*rows).steps["kind"].cast(pl.String).to_list()
    assert found == kinds == [row["kind"] for row in steps(Report(plain_of(*rows)))]


def captured(*rows: Row) -> PlainTrace:
    """The same of a process that captured a window of its steps."""
    return replace(plain_of(*rows), captures=(Capture(PROCESS, "3:2:5", None),))


def loading(at: int) -> Row:
    return call(at, at + 50, "cuLibraryLoadData")


def lost_launches(at: int) -> list[Row]:
    return [launch(at + 20 * n, at + 20 * n + 5, 1_000 + n) for n in range(20)]


LONG = kernel(3_010, 4_110, 4)
"""Runs into the kernel of the next step, on the same stream."""
WITH_LONG = *regular(3), *step(4, at=3_000)[:2], *regular(4, first=4)
MODELS = ("forward", "eval", "backward")
"""The ranges that are automatic."""
TRAIN = ["train"] * 8


def instance(name: str, number: int, *, at: int, busy: int) -> list[Row]:
    """A range of 90 ns with a launch and its kernel."""
    domain = AUTO_DOMAIN if name in MODELS else None
    range_ = replace(opened(at, at + 90, name), domain=domain)
    return [range_, launch(at + 5, at + 8, number), kernel(at + 10, at + 10 + busy, number)]


def program(*names: str) -> list[Row]:
    """A program that opens these ranges one after the other, of which `train` is busy longest."""
    return [
        row
        for number, name in enumerate(names)
        for row in instance(
            name, number + 1, at=100 * number, busy=80 if name in ("train", "log") else 10
        )
    ]


EVALUATED = program(*["forward"] * 12, "backward", *TRAIN)
"""The last `forward` is the first of the training."""
VALIDATED_FIRST = [
    *program(*["validate"] * 6, *TRAIN),
    *(loading(at) for at in (30, 130, 330)),
]
"""Of the six, the first two load code, and the fourth."""
VALIDATED = program(*TRAIN, *["validate"] * 4, *TRAIN)


def copied(*, at: int, number: int) -> list[Row]:
    """A range that copies a weight."""
    weight = copy(at + 10, at + 80, number, "HtoD", "pageable", "device")
    return [opened(at, at + 90, "weight"), launch(at + 5, at + 8, number), weight]


LOADED = [row for n in range(5) for row in copied(at=100 * n, number=n + 1)]
LATER = kernel(1_000, 1_495, 10)
"""A hundred times as long as one of 5 ns, less that one."""

PICTURES: dict[str, Picture] = {
    **{f"{count} steps, of which start-up leaves five": regular(count) for count in range(3, 8)},
    "twenty steps": regular(20),
    "a step after start-up, without its tail": [*regular(2), *step(3, at=2_000, busy=10)],
    "a captured window without start-up": captured(*regular(8)),
    # in the gap at the end of the step
    "leading steps that load code": captured(*regular(8), loading(920), loading(1_920)),
    "a later step that loads code": captured(*regular(8), loading(4_920)),
    "a step that the recording cut off": captured(*regular(5), *step(6, at=5_000, end=None)),
    "a last step without its tail": captured(*regular(5), *step(6, at=5_000, busy=989)),
    "a last step with its tail": captured(*regular(5), *step(6, at=5_000, busy=990)),
    "a lost launch": captured(*regular(6), launch(3_020, 3_030, 99)),
    "a step that lost its operations": captured(
        *(*regular(3), *step(4, at=3_000, end=3_900), *regular(4, first=4), *lost_launches(3_100))
    ),
    # the fifth range has launches alone, so that the fourth step lasts until the sixth
    "a step that swallows one without operations": captured(
        *(*regular(4), opened(4_000, 4_900, "step"), *regular(4, first=5), *lost_launches(4_100))
    ),
    "a long kernel": captured(*WITH_LONG, LONG),
    "a wrong time in a graph": captured(*WITH_LONG, replace(LONG, graph_node=1)),
    "a wrong time in a short step": captured(
        *(*regular(3), *step(4, at=3_000)[:2], kernel(3_010, 3_600, 4, node=1)),
        *(row for n in range(4) for row in step(5 + n, at=3_500 + 1_000 * n)),
    ),
    # the step before it ends with its own operation
    "a validation between steps": VALIDATED,
    "a validation of which one range is automatic": [
        replace(row, domain=AUTO_DOMAIN) if row == opened(800, 890, "validate") else row
        for row in VALIDATED
    ],
    "a forward that a backward follows": EVALUATED,
    "two evaluations, each before training": program(*[*["forward"] * 12, "backward", *TRAIN] * 2),
    "ten forwards, of which a backward follows the last": program(
        *TRAIN, *["forward"] * 10, "backward", *TRAIN
    ),
    "a loop of which the first steps load code": VALIDATED_FIRST,
    "a loop of which each step loads code": [
        *program(*["validate"] * 3, *TRAIN),
        *(loading(at) for at in (30, 130, 230)),
    ],
    "twelve loops": program(*(name for name in "abcdefghijkl" for _ in range(5))),
    "two in a row, which are no loop": program(*TRAIN, *["log"] * 2, *TRAIN),
    # too few calls of a model in training are a part of the step before
    **{
        f"{count} of {name}": program(*TRAIN, *[name] * count, *TRAIN)
        for name, count in (("forward", 9), ("forward", 10), ("eval", 2), ("eval", 3))
    },
    "two steps of a profiler": program("ProfilerStep#1", "ProfilerStep#2"),
    "a step of a profiler that holds little": program("ProfilerStep#1", *["other"] * 2),
    "weights that are copied before all kernels": [*LOADED, kernel(999, 1_999, 9)],
    "weights that are copied after a hundredth": [*LOADED, kernel(205, 210, 9), LATER],
    "ranges that go round": program(*ROUND * 3),
    "two kinds of steps by turns": [
        row for n in range(16) for row in step(n + 1, at=1_000 * n, busy=900 - 500 * (n % 2))
    ],
    "what repeats between the steps": program(*["train", *["act"] * 4] * 8),
}


def test_pictures_of_steps_and_loops_agree_with_the_oracle() -> None:
    assert_pictures_agree(PICTURES)


def parts_of(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    found = analysis_of(*rows).run
    return found.select(pl.col("part").cast(pl.String), "count", "time_ns").rows()


def test_the_first_steps_of_another_loop_that_load_code_are_start_up() -> None:
    """So is the pause between that loop and the first step."""
    start_up, typical, loop, end = parts_of(VALIDATED_FIRST)
    assert start_up == ("start-up", 2, 610 - 400 + 90 + 200)
    assert (typical[:2], loop) == (("typical", 5), ("loop", 4, 310))
    assert end[:2] == ("end", 1)


def test_a_forward_that_a_backward_follows_is_of_no_evaluation() -> None:
    assert ("loop", 11) in [row[:2] for row in parts_of(EVALUATED)]


@given(model=several(traces()))
@settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck))
def test_the_oracle_finds_the_same_where_two_lost_launches_are_a_stretch(model: PlainTrace) -> None:
    with pytest.MonkeyPatch.context() as patch:  # random traces are short
        patch.setattr(lost_stretches, "LEAST_LAUNCHES", 2)
        patch.setattr(integrity, "IN_A_ROW", 2)
        analysis, report = nsysflow.analyze(to_trace(model)), Report(model)
        for name, rows in (("steps", steps(report)), ("run", run(report))):
            found = getattr(analysis, name)
            assert rows_of(found.to_dicts(), found.columns) == rows_of(rows, found.columns), name


def judged(*processes: list[int]) -> tuple[list[int], list[bool]]:
    """The excess of each duration, and whether it is an outlier."""
    rows = [(process, 0, ns) for process, of in enumerate(processes) for ns in of]
    schema = {"process": pl.Int64, "device_no": pl.UInt32, "duration_ns": pl.Int64}
    found = with_excess(pl.DataFrame(rows, schema, orient="row"))
    return found["excess_ns"].to_list(), found["outlier"].to_list()


LENGTHS = st.lists(st.sampled_from((0, 1, 99, 100, 101, 119, 120, 121, 200, 1000)), max_size=30)
VARYING = st.lists(st.sampled_from((90, 100, 110, 149, 150, 151)), min_size=5, max_size=9)
GROWING = st.integers(0, 59).map(lambda at: [600 if n == at else 100 + 10 * n for n in range(60)])


TURNING = st.lists(
    st.tuples(st.sampled_from((98, 100, 119, 150, 200)), st.sampled_from((160, 199, 200, 240))),
    min_size=4,
    max_size=14,
).map(lambda pairs: [length for pair in pairs for length in pair])


@given(st.one_of(LENGTHS, VARYING, GROWING, TURNING))
@example([100, 100, 121, 100, 100])
@example([300] + [100] * 5 + [200] * 20)
def test_what_is_longer_than_those_around_it_is_what_the_oracle_says(durations: list[int]) -> None:
    expected = excesses(durations), one_offs(durations)
    assert judged(durations) == expected
    assert judged(durations, [90] * 5) == (expected[0] + [0] * 5, expected[1] + [False] * 5)


def test_steps_that_take_turns_are_compared_with_their_kind() -> None:
    """Every second batch updates the model. Seen in a public report: 6.3 and 10.4 ms by turns."""
    assert judged([100, 200] * 10) == ([0] * 20, [False] * 20)
    assert judged([200, 100] * 10) == ([0] * 20, [False] * 20)
    excess, outliers = judged([100, 200] * 5 + [150, 200] + [100, 200] * 5)
    assert [at for at, one in enumerate(outliers) if one] == [10]
    assert excess[10] == 50
    # too few to tell
    assert judged([100, 200] * 4 + [100])[1] == [False, True] * 4 + [False]


@pytest.mark.parametrize(
    ("busy", "kinds"),
    [
        ([400, 900] * 8, [(600, 1_100)]),
        ([900, 400] * 8, [(600, 1_100)]),
        ([900, 750] * 8, []),  # 16 % longer
        ([400, 900] * 4, []),
        ([400, 400, 400, 900] * 6, []),  # every fourth is a pause that comes back
    ],
)
def test_two_kinds_of_steps_by_turns_are_said_to_be(
    busy: list[int], kinds: list[tuple[int, int]]
) -> None:
    begins = [0, *accumulate(ns + 200 for ns in busy)]
    rows = [row for n, ns in enumerate(busy) for row in step(n + 1, at=begins[n], busy=ns)]
    analysis = analysis_of(*rows, options=Options(skip=0))
    assert by_turns(analysis.timeline.steps)[["shorter_ns", "longer_ns"]].rows() == kinds
    assert analysis.turns_ns == (kinds[0] if kinds else None)
    assert analysis_of(*rows, options=Options(steps=(StepPart(2, 6),))).turns_ns is None


def rank(number: int, *, last_busy: int) -> list[Row]:
    """Seven steps of another process, on a GPU of its own, with a collective beside the first."""
    meets = kernel(910, 920, 1, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    process = (number + 1) << 24
    return [
        replace(row, process=process, device=number)
        if isinstance(row, Op)
        else replace(row, process=process, thread=process | 1)
        for row in [*regular(6), *step(7, at=6_000, busy=last_busy), meets]
        if isinstance(row, (Op, Call, Range))
    ]


@pytest.mark.parametrize(("last_busy", "kind"), [((990, 990), "steady"), ((990, 400), "cut-off")])
def test_the_last_step_of_ranks_in_one_report_is_cut_off_on_all_or_none(
    last_busy: tuple[int, int], kind: str
) -> None:
    rows = [row for n, busy in enumerate(last_busy) for row in rank(n, last_busy=busy)]
    found = analysis_of(*rows).steps
    last = found.filter(pl.col("step") == 6)["kind"].cast(pl.String).to_list()
    assert last == [kind, kind]
    wanted = [row["kind"] for row in steps(Report(plain_of(*rows)))]
    assert found["kind"].cast(pl.String).to_list() == wanted


# --- pauses that come back ------------------------------------------------------------------------

STEP_NS = 1_000_000


def rows(
    steps: Sequence[int], count: int, starts_ns: Sequence[int] | None = None
) -> list[PauseRow]:
    """What comes back of pauses in these steps of a run of `count`, two of them start-up."""
    starts = [step * STEP_NS for step in steps] if starts_ns is None else starts_ns
    return recurring(steps, starts, range(2, count), STEP_NS)


def every(distance: int, count: int, *, others: int, jitter: int, seed: int) -> list[int]:
    """The steps of pauses every so many steps, each early or late by the jitter, beside others."""
    random = Random(seed)
    regular = {distance * n + random.randint(-jitter, jitter) for n in range(1, count // distance)}
    free = [step for step in range(2, count) if step not in regular]
    return sorted(regular | set(random.sample(free, others)))


@pytest.mark.parametrize(
    ("distance", "count", "others", "jitter"),
    [(7, 60, 0, 0), (7, 60, 3, 0), (7, 210, 8, 0), (7, 210, 3, 1), (50, 400, 4, 1), (10, 60, 1, 0)],
)
def test_pauses_at_equal_distances_are_found_beside_random_ones(
    distance: int, count: int, others: int, jitter: int
) -> None:
    for seed in range(10):
        first, *_ = rows(every(distance, count, others=others, jitter=jitter, seed=seed), count)
        assert abs(first.every - distance) <= 1, seed


def test_pauses_every_thirty_seconds_are_found_although_steps_vary() -> None:
    random, now_s, due_s = Random(0), 0.0, 30.0
    steps, starts_ns = [], []
    for number in range(600):
        length_s = random.gauss(0.5, 0.05)
        if now_s + length_s >= due_s:
            steps.append(number)
            starts_ns.append(round(now_s * 1e9))
            length_s, due_s = length_s + 3, due_s + 30
        now_s += length_s
    (row,) = recurring(steps, starts_ns, range(2, 600), 500_000_000)
    assert len(row.members) == len(steps)


def test_of_a_hundred_runs_of_random_pauses_none_has_any_that_come_back() -> None:
    random = Random(0)
    for _ in range(100):
        count = random.choice((30, 60, 100, 200, 500))
        pauses = random.sample(range(2, count), random.randint(4, count // 8 + 4))
        assert rows(sorted(pauses), count) == []


@pytest.mark.parametrize(
    ("excess", "classes"),
    [
        # a draw every 20 steps and a read-back every 10: seen in an unknown program
        ([80, 70, 4, 69, 3, 71, 4], [[0, 1, 3, 5], [2, 4, 6]]),
        ([80, 70, 18, 69, 18, 71, 18], [[0, 1, 2, 3, 4, 5, 6]]),  # not four times as long
        ([80, 4, 70, 3, 69], [[0, 1, 2, 3, 4]]),  # only three are
        ([400, 80, 70, 69, 3, 71, 4, 3, 2, 0], [[0, 1, 2, 3, 5], [4, 6, 7, 8], [9]]),
        ([80, 70, None, 69, 3, 71], [[0, 1, 2, 3, 4, 5]]),
    ],
)
def test_four_pauses_that_are_far_longer_than_all_others_are_of_another_kind(
    excess: list[int | None], classes: list[list[int]]
) -> None:
    assert size_classes(excess) == classes


def test_four_pauses_are_enough_and_three_are_not() -> None:
    assert [row.members for row in rows([50, 100, 150, 200], 230)] == [(0, 1, 2, 3)]
    assert rows([10, 20, 30], 40) == []


def test_a_pause_is_in_one_row_only_and_the_rest_may_make_another() -> None:
    tens, sevens = [*range(10, 400, 40)], [*range(405, 800, 40)]
    found = rows([*tens, *sevens], 800)
    members = [member for row in found for member in row.members]
    assert sorted(members) == sorted({*members})


def test_pauses_of_a_very_long_run_are_one_row() -> None:
    """Seen in a report of 40,000 steps: how many such rows chance makes was no float."""
    (found,) = rows(range(5, 20_000, 5), 20_000)
    assert (found.every, len(found.members)) == (5, 3_999)
