"""The catalog of workloads agrees with the code, and what single workloads promise."""

import inspect
from dataclasses import fields
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nsysflow.catalog.catalog import Workload, find, workloads
from nsysflow.runtime.regions import Region
from nsysflow.workloads.alloc_churn import alloc_churn
from nsysflow.workloads.common.phases import WorkloadRegion
from nsysflow.workloads.common.run import run
from nsysflow.workloads.graph_break import LIMIT, limited_by_factor, limited_if_large
from nsysflow.workloads.overlap import POOL, Feed, InTurn, SideStream
from nsysflow.workloads.sum_many import BELOW
from tests.reports import ROOT
from tests.workloads.toys import toy, without_gpu

each = pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload.name)


@each
def test_options_are_those_of_the_code(workload: Workload) -> None:
    options = import_module(f"nsysflow.workloads.{workload.name}").Options
    in_code = {field.name: field.type for field in fields(options)}
    assert in_code == {option.name: type(option.default) for option in workload.options}
    assert in_code == {option.name: type(option.toy) for option in workload.options}


@each
def test_phases_have_names_that_are_declared(workload: Workload) -> None:
    assert set(workload.phases) <= {*Region, *WorkloadRegion} - {Region.STEP, WorkloadRegion.REPLAY}


def test_every_module_is_a_workload_of_the_catalog() -> None:
    folder = ROOT / "workloads"
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert modules == {workload.name for workload in workloads()}
    for name in modules:
        module = import_module(f"nsysflow.workloads.{name}")
        assert inspect.isclass(module.Options)
        assert inspect.isfunction(getattr(module, name))


def first_elements(feed: Feed, batches: int) -> list[float]:
    """The first element of each batch, as work on the device sees it."""
    seen = []
    for index in range(batches):
        seen.append(feed.take(index).flatten()[0].clone())
        feed.give_back(index)
    return [one.item() for one in seen]


@pytest.fixture
def pool() -> torch.Tensor:
    return torch.arange(POOL).repeat_interleave(1 << 20).view(POOL, 1024, 1024).float()


def test_batches_arrive_in_order(pool: torch.Tensor) -> None:
    assert first_elements(InTurn(pool, "cpu"), 9) == [index % POOL for index in range(9)]


@pytest.mark.gpu
@without_gpu
def test_batches_arrive_in_order_on_a_side_stream(pool: torch.Tensor) -> None:
    pinned = pool.pin_memory()
    assert first_elements(SideStream(pinned), 50) == [index % POOL for index in range(50)]


WARM = 5


def allocations(variant: str, steps: int) -> int:
    """How often PyTorch asks the driver for memory, after the steps that precede a capture.

    It asks in the first few steps (3 times after the first one, H200, 2026-11-20).
    """
    # activations above 10 MiB get their own segments
    config = toy(find("alloc_churn"), variant, on="cuda", options={"batch": 4096, "width": 2048})
    work = alloc_churn(config)
    for index in range(WARM):
        work.step(index)
    before = torch.cuda.memory_stats()["num_device_alloc"]
    for index in range(WARM, WARM + steps):
        work.step(index)
    return int(torch.cuda.memory_stats()["num_device_alloc"] - before)


@pytest.mark.gpu
@without_gpu
def test_the_driver_is_asked_in_every_step_or_never() -> None:
    assert allocations("empty_cache", 4) >= 4
    assert allocations("cached", 4) == 0


class Graphs:
    """A compiler that only counts its graphs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> torch.fx.GraphModule:
        self.count += 1
        return graph


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_reading_a_value_splits_a_layer_into_two_graphs_and_a_factor_does_not(large: bool) -> None:
    rows = torch.full((2, 4), 10 * LIMIT if large else 0.1 * LIMIT)
    for layer, expected in ((limited_if_large, 1 + large), (limited_by_factor, 1)):
        torch.compiler.reset()
        graphs = Graphs()
        torch.compile(layer, backend=graphs)(rows)
        assert graphs.count == expected, layer.__name__


@given(scale=st.floats(0, 1e6), seed=st.integers(0, 99))
def test_both_ways_agree_and_no_magnitude_exceeds_the_limit(scale: float, seed: int) -> None:
    rows = scale * torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
    asked, computed = limited_if_large(rows), limited_by_factor(rows)
    assert torch.equal(asked, computed)
    # the factor and the product are each rounded by at most 2**-24
    assert asked.abs().amax() <= LIMIT * (1 + 2**-22)


def test_float32_holds_every_sum_of_a_hundred_steps_exactly() -> None:
    (numel,) = (option.default for option in find("sum_many").options if option.name == "numel")
    assert 100 * 1.5 * numel * (BELOW - 1) < 2**24


def test_every_step_adds_the_same_whole_numbers() -> None:
    once, thrice = (run(toy(find("sum_many"), steps=steps)).result for steps in (1, 3))
    assert torch.equal(thrice, 3 * once)
    assert torch.equal(once, once.round())
    assert once.count_nonzero() > 0
