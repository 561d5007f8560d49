"""Typical steps, one-offs, steps that the recording cuts off, and the loops beside the steps."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.events import activity as lost_stretches
from nsysflow.analysis.options import Options
from nsysflow.analysis.steps.kinds import with_excess
from nsysflow.runtime.protocol import AUTO_DOMAIN
from tests.analyses import EXAMPLES, rows_of
from tests.oracle import lost
from tests.oracle.model import Call, Capture, Op, PlainTrace, Range, to_trace
from tests.oracle.report import Report
from tests.oracle.run import run
from tests.oracle.steps import excesses, one_offs, steps
from tests.oracle.strategies import several, traces
from tests.tiny import PROCESS, Row, analysis_of, call, kernel, launch, opened, plain_of


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


def kinds(*rows: Row, options: Options | None = None) -> list[str]:
    return analysis_of(*rows, options=options).steps["kind"].cast(pl.String).to_list()


def captured(*rows: Row) -> list[str]:
    """The kinds where the process captured a window of its steps."""
    window = (Capture(PROCESS, "3:2:5", None),)
    trace = to_trace(replace(plain_of(*rows), captures=window))
    return nsysflow.analyze(trace).steps["kind"].cast(pl.String).to_list()


@pytest.mark.parametrize(("count", "skipped"), [(3, 2), (4, 2), (5, 0), (6, 1), (7, 2), (20, 2)])
def test_the_first_two_steps_are_start_up_where_five_remain(count: int, skipped: int) -> None:
    assert kinds(*regular(count)) == ["start-up"] * skipped + ["steady"] * (count - skipped)


@pytest.mark.parametrize("skip", [0, 3])
def test_skip_says_how_many_steps_are_start_up(skip: int) -> None:
    found = kinds(*regular(4), options=Options(skip=skip))
    assert found == ["start-up"] * skip + ["steady"] * (4 - skip)


def test_the_only_step_after_start_up_is_typical_without_its_tail() -> None:
    assert kinds(*regular(2), *step(3, at=2_000, busy=10)) == ["start-up"] * 2 + ["steady"]


def loading(at: int) -> Row:
    return call(at, at + 50, "cuLibraryLoadData")


CAPTURED: dict[str, tuple[list[Row], list[str]]] = {
    "no start-up": (regular(8), ["steady"] * 8),
    # in the gap at the end of the step
    "leading steps that load code": (
        [*regular(8), loading(920), loading(1_920)],
        ["start-up"] * 2 + ["steady"] * 6,
    ),
    "a later step that loads code": ([*regular(8), loading(4_920)], ["steady"] * 8),
    "a step that the recording cut off": (
        [*regular(5), *step(6, at=5_000, end=None)],
        ["steady"] * 5 + ["cut-off"],
    ),
    "a last step without its tail": (
        [*regular(5), *step(6, at=5_000, busy=989)],
        ["steady"] * 5 + ["cut-off"],
    ),
    "a last step with its tail": ([*regular(5), *step(6, at=5_000, busy=990)], ["steady"] * 6),
    "a lost launch": ([*regular(6), launch(3_020, 3_030, 99)], ["steady"] * 6),
}
"""What a process captured of its steps, and their kinds."""


@pytest.mark.parametrize("name", CAPTURED)
def test_steps_of_a_captured_window_have_their_kinds(name: str) -> None:
    rows, expected = CAPTURED[name]
    assert captured(*rows) == expected


def lost_launches(at: int) -> list[Row]:
    return [launch(at + 20 * n, at + 20 * n + 5, 1_000 + n) for n in range(20)]


def test_a_step_that_lost_its_operations_is_incomplete() -> None:
    rows = [*regular(3), *step(4, at=3_000, end=3_900), *regular(4, first=4)]
    assert captured(*rows, *lost_launches(3_100))[3] == "incomplete"


def test_a_step_that_swallows_one_without_operations_is_incomplete() -> None:
    # the fifth range has launches alone, so that the fourth step lasts until the sixth
    rows = [*regular(4), opened(4_000, 4_900, "step"), *regular(4, first=5)]
    found = captured(*rows, *lost_launches(4_100))
    assert found == ["steady"] * 3 + ["incomplete"] + ["steady"] * 4


def test_a_step_with_a_wrong_time_in_a_graph_is_a_one_off() -> None:
    # its kernel runs into that of the next step, on the same stream
    range_, launched, long = step(4, at=3_000, busy=1_100)
    assert isinstance(long, Op)
    rows = [*regular(3), range_, launched, *regular(4, first=4)]
    assert captured(*rows, long)[3] == "steady"
    assert captured(*rows, replace(long, graph_node=1))[3] == "one-off"


@given(model=several(traces()))
@settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck))
def test_the_oracle_finds_the_same_where_two_lost_launches_are_a_stretch(model: PlainTrace) -> None:
    with pytest.MonkeyPatch.context() as patch:  # random traces are short
        patch.setattr(lost_stretches, "LEAST_LAUNCHES", 2)
        patch.setattr(lost, "IN_A_ROW", 2)
        analysis, report = nsysflow.analyze(to_trace(model)), Report(model)
        for name, rows in (("steps", steps(report)), ("run", run(report))):
            found = getattr(analysis, name)
            assert rows_of(found.to_dicts(), found.columns) == rows_of(rows, found.columns), name


def judged(*durations: int) -> tuple[list[int], list[bool]]:
    """The excess of each duration, and whether it is an outlier."""
    steps = pl.DataFrame(
        {"process": [1] * len(durations), "device_no": [0] * len(durations)},
        schema={"process": pl.Int64, "device_no": pl.UInt32},
    ).with_columns(pl.Series("duration_ns", durations, pl.Int64))
    found = with_excess(steps)
    return found["excess_ns"].to_list(), found["outlier"].to_list()


def test_processes_are_judged_apart() -> None:
    steps = pl.DataFrame({"process": [1] * 5 + [2] * 5, "duration_ns": [10] * 5 + [90] * 5})
    found = with_excess(steps.with_columns(pl.lit(0, pl.UInt32).alias("device_no")))
    assert not found["outlier"].any()


LENGTHS = st.lists(st.sampled_from((0, 1, 99, 100, 101, 119, 120, 121, 200, 1000)), max_size=30)
VARYING = st.lists(st.sampled_from((90, 100, 110, 149, 150, 151)), min_size=5, max_size=9)
GROWING = st.integers(0, 59).map(lambda at: [600 if n == at else 100 + 10 * n for n in range(60)])


@given(st.one_of(LENGTHS, VARYING, GROWING))
@example([100, 100, 121, 100, 100])
@example([300] + [100] * 5 + [200] * 20)
def test_what_is_longer_than_those_around_it_is_what_the_oracle_says(durations: list[int]) -> None:
    assert judged(*durations) == (excesses(durations), one_offs(durations))


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


MODELS = ("forward", "eval")
"""The ranges that are automatic."""


def instance(name: str, number: int, *, at: int, busy: int = 80) -> list[Row]:
    """A range of 90 ns with a launch and its kernel."""
    domain = AUTO_DOMAIN if name in MODELS else None
    range_ = replace(opened(at, at + 90, name), domain=domain)
    return [range_, launch(at + 5, at + 8, number), kernel(at + 10, at + 10 + busy, number)]


def program(*names: str, busy: dict[str, int] | None = None) -> nsysflow.Analysis:
    """A program that opens these ranges one after the other."""
    rows = [
        row
        for number, name in enumerate(names)
        for row in instance(name, number + 1, at=100 * number, busy=(busy or {}).get(name, 80))
    ]
    return analysis_of(*rows)


def parts(analysis: nsysflow.Analysis) -> list[tuple[str, str | None, int]]:
    """Part, phase of a loop, and count of each row of the ledger with steps."""
    rows = analysis.run.filter(pl.col("count") > 0)
    part = pl.col("part").cast(pl.String)
    phase = pl.when(part == "loop").then("phase")
    return rows.select(part, phase.alias("phase"), "count").rows()


TRAIN = ["train"] * 8


def test_a_validation_between_steps_is_a_loop_of_its_own() -> None:
    analysis = program(*TRAIN, *["validate"] * 4, *TRAIN, busy={"validate": 10})
    assert ("loop", "validate", 4) in parts(analysis)
    assert analysis.step_name == "train"
    # the step before it ends with its own operation, and lasts no longer than the others
    assert analysis.steps["duration_ns"].max() == 100


def test_twelve_phases_one_after_the_other_are_twelve_loops() -> None:
    names = [f"phase_{letter}" for letter in "abcdefghijkl"]
    analysis = program(*(name for name in names for _ in range(5)))
    loops = {phase for part, phase, _ in parts(analysis) if part == "loop"}
    assert len(loops) == 11
    assert loops | {analysis.step_name} == set(names)


def test_two_in_a_row_are_no_loop() -> None:
    assert all(part != "loop" for part, *_ in parts(program(*TRAIN, *["log"] * 2, *TRAIN)))


@pytest.mark.parametrize(
    ("name", "count", "is_loop"),
    [("forward", 9, False), ("forward", 10, True), ("eval", 2, False), ("eval", 3, True)],
)
def test_a_few_calls_of_a_model_in_training_are_a_part_of_the_step_before(
    name: str, count: int, *, is_loop: bool
) -> None:
    analysis = program(*TRAIN, *[name] * count, *TRAIN, busy=dict.fromkeys(MODELS, 10))
    assert (("loop", name, count) in parts(analysis)) == is_loop
    longest = 100 if is_loop else 100 * (count + 1)
    assert analysis.steps["duration_ns"].max() == longest


def test_what_repeats_between_the_steps_is_a_part_of_them() -> None:
    rollout = [name for _ in range(8) for name in ("train", *["act"] * 4)]
    assert all(part != "loop" for part, *_ in parts(program(*rollout, busy={"act": 10})))


def test_the_rows_of_the_ledger_are_the_recorded_time() -> None:
    analysis = program(*TRAIN, *["validate"] * 4, *TRAIN, busy={"validate": 10})
    assert analysis.run["time_ns"].sum() == 100 * 20 - 10
