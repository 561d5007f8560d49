"""The catalog of workloads agrees with the code, and what single workloads promise."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from importlib import import_module

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.base.errors import WorkloadError
from nsysflow.catalog.catalog import Workload, find, workloads
from nsysflow.runtime.regions import Region
from nsysflow.workloads import ddp
from nsysflow.workloads.alloc_churn import alloc_churn
from nsysflow.workloads.common.measurement import WorkloadRegion
from nsysflow.workloads.common.run import run
from nsysflow.workloads.graph_break import LIMIT, limited_by_factor, limited_if_large
from nsysflow.workloads.nan_check import RING, NanFlags
from nsysflow.workloads.overlap import POOL, Feed, InTurn, SideStream
from tests.reports import ROOT
from tests.workloads.toys import toy

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
def test_the_driver_is_asked_in_every_step_or_never() -> None:
    assert allocations("empty_cache", 4) >= 4
    assert allocations("cached", 4) == 0


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_reading_a_value_splits_a_layer_into_two_graphs_and_a_factor_does_not(large: bool) -> None:
    rows = torch.full((2, 4), 10 * LIMIT if large else 0.1 * LIMIT)
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _inputs: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    for layer, expected in ((limited_if_large, 1 + large), (limited_by_factor, 1)):
        torch.compiler.reset()
        graphs.clear()
        torch.compile(layer, backend=keep)(rows)
        assert len(graphs) == expected, layer.__name__


@given(scale=st.floats(0, 1e6), seed=st.integers(0, 99))
def test_both_ways_agree_and_no_magnitude_exceeds_the_limit(scale: float, seed: int) -> None:
    rows = scale * torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
    asked, computed = limited_if_large(rows), limited_by_factor(rows)
    assert torch.equal(asked, computed)
    # the factor and the product are each rounded by at most 2**-24
    assert asked.abs().amax() <= LIMIT * (1 + 2**-22)


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
DDP = ["-m", "nsysflow.workloads", "ddp", "--on", "cpu", "--precision", "float"]


def results_of_two_ranks(variant: str) -> list[str]:
    """What each rank printed as its result."""
    argv = [*TORCHRUN, *DDP, "--variant", variant, "--capture", "1:0:2"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return re.findall(rf"ddp {variant} on the CPU: 3 steps, result (\S+)", done.stdout)


@pytest.mark.long
def test_both_ranks_and_both_variants_have_the_same_weights() -> None:
    # a torchrun each: a second process group in one would find the first one's addresses
    results = [*results_of_two_ranks("no_overlap"), *results_of_two_ranks("bucketed")]
    assert len(results) == 4
    assert len(set(results)) == 1
    # one rank alone has only half of the batches
    alone = run(toy(find("ddp"), steps=3)).result.double().mean().item()
    assert results[0] != f"{alone:.6g}"


def test_weights_that_differ_between_ranks_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_rank_0(weights: torch.Tensor, _rank: int) -> None:
        weights[3] += 1

    monkeypatch.setattr(dist, "broadcast", from_rank_0)
    with pytest.raises(WorkloadError, match="the weights of rank 0 differ from those of rank 0"):
        run(toy(find("ddp")))


def test_ranks_meet_only_before_the_first_captured_step(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[int] = []
    monkeypatch.setattr(dist, "new_group", lambda **_: None)
    monkeypatch.setattr(dist, "barrier", lambda _group: met.append(len(fetched)))
    fetched: list[int] = []
    for index in ddp.Batches(count=5, meet_at=3):
        fetched += [index]
    assert (fetched, met) == ([0, 1, 2, 3, 4], [3])


NAN_CHECK = find("nan_check")


@pytest.mark.parametrize("variant", ["sync", "async"])
def test_a_nan_in_a_step_of_the_run_stops_it(variant: str) -> None:
    for step in (0, 2, 3):
        with pytest.raises(WorkloadError, match=f"the loss of step {step} is NaN"):
            run(toy(NAN_CHECK, variant, options={"nan_at_step": step}))
    assert run(toy(NAN_CHECK, variant, options={"nan_at_step": 4})).result.isfinite()


class Gpu:
    """A simulated GPU that is some steps behind the host."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.now = 0
        self.waited_until = -1
        self.waits = 0

    def event(self) -> "LateEvent":
        return LateEvent(self)


class LateEvent:
    """An event of the simulated GPU; waiting for it also waits for all earlier ones."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.step = 0

    def record(self) -> None:
        self.step = self.gpu.now

    def query(self) -> bool:
        return self.step <= max(self.gpu.waited_until, self.gpu.now - self.gpu.behind)

    def synchronize(self) -> None:
        self.gpu.waits += not self.query()
        self.gpu.waited_until = max(self.gpu.waited_until, self.step)


def steps_until_stopped(gpu: Gpu, nan_at: int, count: int) -> int | None:
    """The step in which the flag of a NaN stops the loop."""
    flags = NanFlags(gpu.event, pinned=False)
    for gpu.now in range(count):
        try:
            flags.send(torch.tensor(gpu.now == nan_at), gpu.now)
            flags.read(gpu.now)
        except WorkloadError:
            return gpu.now
    return None


@given(behind=st.integers(0, 3 * RING), nan_at=st.integers(0, 30))
def test_a_nan_stops_when_its_flag_arrives_or_the_ring_is_full(behind: int, nan_at: int) -> None:
    found = steps_until_stopped(Gpu(behind), nan_at, nan_at + RING + 1)
    assert found == nan_at + min(behind, RING)


@given(behind=st.integers(0, 3 * RING))
def test_the_host_waits_only_when_the_gpu_is_a_whole_ring_behind(behind: int) -> None:
    gpu = Gpu(behind)
    assert steps_until_stopped(gpu, nan_at=-1, count=4 * RING) is None
    assert bool(gpu.waits) == (behind > RING)
