"""Numbered ranges: which of them are one phase, and which are steps (spec §7.7, §8.1)."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.phases.names import grouped
from nsysflow.analysis.tables.schema import PHASES, STEPS
from nsysflow.base.errors import SelectionError
from tests.analyses import EXAMPLES, any_trace, rows_of
from tests.oracle import range_names as oracle
from tests.oracle.model import Call, Op, PlainTrace, Range, Shape, to_trace
from tests.oracle.report import Report
from tests.oracle.tables import oracle_tables

PROCESS = 1 << 24
MAIN = PROCESS | 1

_WORDS = st.sampled_from(
    ("step", "Step", "epoch", "Batch", "ProfilerStep", "token", "layer", "norm", "id", "no.", "x")
)
_BETWEEN = st.sampled_from(("", " ", "_", "-", ": ", "#", "=", "[", " (", ".", "]", ", seq = "))
_NUMBERS = st.sampled_from(("0", "1", "17", "3/10", "[0,4)", "::f(k = 1, 2)", "1.5"))
_FORMS = st.sampled_from(
    (
        *("XlaModule:#", "Thunk:#", "hlo_module=", "#", ",", "jit_f", "[pl][profile]", "{'a': 1}"),
        *(" at 0x7f3c2c001", "0f8fad5b-d9cb-469f-a165-70867728950e", "<", ">", "## ", " ##"),
        *("bs", " toks", " gen reqs", " ctx tokens", "rank", "Forward ", "Torch-Compiled Region: "),
    )
)
_PIECES = st.one_of(_WORDS, _BETWEEN, _NUMBERS, _FORMS)
RAW_NAMES = st.lists(_PIECES, max_size=7).map("".join)


def named(*names: str) -> list[str]:
    """The normalised names of ranges with these raw names."""
    return grouped(pl.Series("name", names, pl.String)).to_list()


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("iteration{}", "iteration"),
        ("step {}", "step"),
        ("ProfilerStep#{}", "ProfilerStep"),
        ("train_step_{}", "train_step"),
        ("trainStep{}", "trainStep"),
        ("Epoch: {}", "Epoch"),
        ("batch-{}", "batch"),
        ("iter=0{}", "iter"),
        ("Step [{}/100]", "Step"),
        ("request id={}", "request"),
        ("step no. {}", "step"),
        ("rank0_step{}", "rank0_step"),
        ("epoch 3, step {}", "epoch 3, step"),
        ("step {} forward", "step forward"),
        ("step {}: data", "step: data"),
        ("train_step, op_id = {}", "train_step"),
        ("ProfilerStep#4, op_id = {}", "ProfilerStep"),
    ],
)
def test_ranges_that_only_count_are_one(raw: str, name: str) -> None:
    assert named(*(raw.format(number) for number in range(3))) == [name] * 3


@pytest.mark.parametrize(
    "raw",
    [
        *("layer{}", "block.{}", "stage {}", "rank {}", "worker_{}", "GPU{}", "bucket {}"),
        *("{}", "footstep{}", "conv_batch{}d", "lr step 1e{}x", "layer {} step"),
    ],
)
def test_places_keep_their_numbers(raw: str) -> None:
    raws = [raw.format(number) for number in range(3)]
    assert named(*raws) == raws


def test_a_number_that_stands_alone_is_part_of_the_name() -> None:
    assert named("batch 64", "batch 64", "epoch 1") == ["batch 64", "batch 64", "epoch 1"]


def test_a_step_of_pytorch_loses_its_number_even_alone() -> None:
    assert named("ProfilerStep#7") == ["ProfilerStep"]


@settings(max_examples=10 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(st.lists(RAW_NAMES, max_size=12))
def test_any_names_are_grouped_as_the_oracle_groups_them(names: list[str]) -> None:
    assert named(*names) == [oracle.grouped(names)[name] for name in names]


_TAILS = (" 1", " 2", "#3, op_id = 7", "::x, op_id = 8", ", seq = 9", "")


@any_trace
def test_steps_and_phases_of_numbered_ranges_agree_with_the_oracle(model: PlainTrace) -> None:
    ranges = tuple(
        replace(one, name="step" * (one.row % 2) + one.name + _TAILS[one.row % len(_TAILS)])
        for one in model.ranges
    )
    numbered = replace(model, ranges=ranges)
    analysis, tables = nsysflow.analyze(to_trace(numbered)), oracle_tables(Report(numbered))
    for table, schema in (("steps", STEPS), ("phases", PHASES)):
        columns = (
            [column for column in schema if column in tables[table][0]] if tables[table] else []
        )
        found = rows_of(getattr(analysis, table).to_dicts(), columns)
        assert found == rows_of(tables[table], columns)


def program(*ranges: tuple[str, int, int]) -> nsysflow.Trace:
    """A main thread with these ranges (name, start and end in us).

    It launches a kernel of 800 ns every us.
    """
    last = max(end for _, _, end in ranges)
    calls = tuple(
        Call(1_000 * at, 1_000 * at + 100, PROCESS, MAIN, at + 1, "cudaLaunchKernel")
        for at in range(last)
    )
    ops = tuple(
        Op(
            *("kernel", call.end_ns, call.end_ns + 800, 0, PROCESS, 7),
            *(call.correlation, None, "k", "k", Shape()),
        )
        for call in calls
    )
    rows = tuple(
        Range(1_000 * start, 1_000 * end, "push_pop", PROCESS, MAIN, None, name, row)
        for row, (name, start, end) in enumerate(ranges)
    )
    return to_trace(PlainTrace(report="made", ops=ops, calls=calls, ranges=rows))


def step_starts_us(trace: nsysflow.Trace, options: Options | None = None) -> list[int]:
    return [start // 1_000 for start in nsysflow.analyze(trace, options).steps["start_ns"]]


def test_the_step_is_the_repeating_range_with_most_gpu_time_and_not_the_shallowest() -> None:
    loads = [("load_shard", at, at + 1) for at in range(4)]
    steps = [("step", at, at + 4) for at in (4, 8, 12)]
    assert step_starts_us(program(*loads, ("train", 4, 16), *steps)) == [4, 8, 12]


def test_a_range_that_repeats_inside_a_step_is_not_a_step() -> None:
    steps = [("step", at, at + 4) for at in (0, 4, 8)]
    layers = [("layer", at, at + 1) for at in range(12)]
    assert step_starts_us(program(*steps, *layers)) == [0, 4, 8]


def test_numbered_iterations_are_steps() -> None:
    trace = program(*((f"iteration {at}", 4 * at, 4 * at + 4) for at in range(3)))
    assert step_starts_us(trace) == [0, 4, 8]
    assert step_starts_us(trace, Options(step="iteration", steps=(StepPart(1, 2),))) == [4]


def test_the_iterations_of_two_numbered_epochs_are_steps_of_one_path() -> None:
    epochs = [(f"epoch {number}", 8 * number, 8 * number + 8) for number in range(2)]
    steps = [(f"step {number % 2}", 4 * number, 4 * number + 4) for number in range(4)]
    assert step_starts_us(program(*epochs, *steps)) == [0, 4, 8, 12]


@pytest.mark.parametrize("name", ["aten::mm, op_id = {}", "AddmmBackward0, seq = {}"])
def test_an_operator_of_pytorch_is_not_a_step_unless_named(name: str) -> None:
    operators = [(name.format(at), at, at + 1) for at in range(6)]
    trace = program(*operators, *(("tail", at, at + 1) for at in (6, 7, 8)))
    assert step_starts_us(trace) == [6, 7, 8]
    assert step_starts_us(trace, Options(step=name.split(",")[0])) == list(range(6))


def test_a_range_of_the_program_is_a_step_although_pytorch_numbers_it() -> None:
    trace = program(*((f"train_step, op_id = {at}", at, at + 1) for at in range(3)))
    assert step_starts_us(trace) == [0, 1, 2]


@pytest.mark.parametrize("options", [Options(range="step 1"), Options(step="step 1")])
def test_the_error_for_a_numbered_range_has_its_name_and_how_to_pick_one(options: Options) -> None:
    trace = program(*((f"step {at}", at, at + 1) for at in range(3)))
    with pytest.raises(SelectionError) as refused:
        _ = nsysflow.analyze(trace, options).steps, nsysflow.analyze(trace, options).accounting
    assert str(refused.value) == (
        "no range 'step 1' in made: all of its kind are 'step' there, without numbers."
        " Ask for 'step'; --steps picks steps by their place, counted from 0"
    )
