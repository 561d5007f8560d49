"""Ranges around compiling: one phase, no step, not of the typical steps (spec §7.18, §8.13)."""

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.phases.names import is_compiling
from tests.analyses import analysed
from tests.oracle import range_names as oracle
from tests.tiny import Row, analysis_of, kernel, launch, opened

HELPER = (1 << 24) | 9
TUNING = "XlaModule:#hlo_module=gemm_fusion_dot.1#"
COMPILING = "XlaCompile:#module=jit_step#"

OF_COMPILERS = (
    "compile",
    "_compile.compile_inner (dynamo_timed)",
    "XlaPass:#name=dce,module=jit_stage,program_id=0#",
    "XlaCompile:#module=jit_stage#",
)
OF_PROGRAMS = (
    "compiled_forward",
    "Torch-Compiled Region: 0/0",
    "CompiledFunction",
    "XlaModule:#hlo_module=jit_step,program_id=2653#",
    "Thunk:#hlo_op=fusion#",
)


@pytest.mark.parametrize(("names", "found"), [(OF_COMPILERS, True), (OF_PROGRAMS, False)])
def test_compiling_is_known_by_its_name(names: tuple[str, ...], *, found: bool) -> None:
    raw = pl.DataFrame({"name": names})
    assert raw.select(is_compiling(pl.col("name"))).to_series().to_list() == [found] * len(raw)
    assert [oracle.is_compiling(each) for each in names] == [found] * len(raw)


def paths(*rows: Row) -> list[str]:
    """The phases of a program with these rows and one kernel."""
    found = analysis_of(launch(1, 2, 1), kernel(3, 4, 1), *rows).phases
    return found["path"].to_list()


@pytest.mark.parametrize("name", [COMPILING, "compile", "_compile.compile_inner (dynamo_timed)"])
def test_what_a_compiler_opens_inside_its_range_is_no_phase(name: str) -> None:
    (shown,) = paths(opened(0, 50, name), opened(5, 10, "XlaPass:#name=dce#"), opened(6, 9, "load"))
    assert shown == name.split(":")[0]


def test_what_a_compiler_does_on_another_thread_is_part_of_the_same_phase() -> None:
    helper = [(5, "XlaCompileBackend:#module=m#"), (20, TUNING), (22, "Thunk:#hlo_op=dot#")]
    rows = [opened(at, at + 8, name, thread=HELPER) for at, name in helper]
    assert paths(opened(0, 50, COMPILING), *rows) == ["XlaCompile"]


def test_another_thread_keeps_its_own_phases_while_one_compiles() -> None:
    assert paths(opened(0, 50, COMPILING), opened(5, 10, "load", thread=HELPER)) == [
        "XlaCompile",
        "load",
    ]


def test_a_module_without_a_number_is_a_phase_where_nothing_compiles() -> None:
    assert paths(opened(0, 9, COMPILING), opened(9, 20, TUNING)) == [
        "XlaCompile",
        "XlaModule gemm_fusion_dot.1",
    ]


def stepped(*rows: Row) -> nsysflow.Analysis:
    """Ten steps of 1 ms, each with a launch and a kernel, and these rows."""
    steps = [
        row
        for at in range(0, 10_000_000, 1_000_000)
        for row in (
            opened(at, at + 900_000, "step"),
            launch(at + 100, at + 200, at + 1),
            kernel(at + 1_000, at + 800_000, at + 1),
        )
    ]
    return analysis_of(*steps, *rows)


def kinds(analysis: nsysflow.Analysis) -> list[str]:
    return analysis.steps["kind"].cast(str).to_list()


def test_a_step_that_compiles_is_a_one_off() -> None:
    compiling = opened(5_300_000, 5_400_000, "compile", thread=HELPER)
    assert (
        kinds(stepped(compiling))
        == ["start-up"] * 2 + ["steady"] * 3 + ["one-off"] + ["steady"] * 4
    )


def test_the_first_steps_are_start_up_as_long_as_they_compile() -> None:
    compiling = [opened(at, at + 20_000, "compile") for at in range(300_000, 5_000_000, 1_000_000)]
    assert kinds(stepped(*compiling)) == ["start-up"] * 5 + ["steady"] * 5


def test_a_step_that_compiles_for_less_than_a_percent_is_steady() -> None:
    assert kinds(stepped(opened(5_300_000, 5_309_000, "compile")))[2:] == ["steady"] * 8


def test_compiling_is_no_step_however_often_it_repeats() -> None:
    rows = [opened(at, at + 9, "compile") for at in range(0, 30, 10)]
    assert analysis_of(launch(1, 2, 1), kernel(3, 4, 1), *rows).steps.is_empty()


def test_the_steps_of_a_jax_program_are_its_jitted_function() -> None:
    jax = analysed("h200-jax")
    assert jax.step_name == "XlaModule jit_step"
    assert len(jax.steps) == 40


def test_a_jax_program_has_few_phases_and_none_of_them_names_a_single_operation() -> None:
    paths = analysed("h200-jax").phases["path"].to_list()
    assert len(paths) <= 20
    assert not any("#" in path or "=" in path for path in paths)


def test_the_typical_step_of_a_jax_program_does_not_compile() -> None:
    work = analysed("h200-jax").judged.phases.filter(busy_ns=0, idle_ns=0, kernels=0)
    typical = set(analysed("h200-jax").judged.phases["path"]) - set(work["path"])
    assert typical == {"XlaModule jit_step", "XlaModule jit_step/Thunk"}
