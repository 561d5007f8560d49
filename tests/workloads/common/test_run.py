"""Every variant of a workload marks the same phases and gives the same result."""

from typing import Final

import pytest
import torch

from nsysflow.catalog.catalog import Workload, find, workloads
from nsysflow.workloads.common.run import run
from nsysflow.workloads.common.training import Precision
from tests.recording import recorded
from tests.workloads.toys import ROUNDED, VARIANTS, toy, work_of

each = pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload.name)
each_variant = pytest.mark.parametrize(
    ("workload", "variant"), VARIANTS, ids=lambda part: getattr(part, "name", part)
)

UNCHANGED: Final = "trainforward"
"""It does not change any weight."""
GROWING = [w for w in workloads() if not w.control and w.name != UNCHANGED]
"""Their results depend on how many steps there were."""


def equal(results: list[torch.Tensor]) -> bool:
    return all(torch.equal(results[0], result) for result in results)


@each
@pytest.mark.parametrize(("precision", "seed"), [("float", 0), ("bf16", 1)])
def test_variants_give_the_same_result(workload: Workload, precision: Precision, seed: int) -> None:
    configs = [toy(workload, v.name, precision=precision, seed=seed) for v in workload.variants]
    results = [run(config).result for config in configs]
    assert equal(results)
    assert all(result.isfinite().all() for result in results)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
@pytest.mark.filterwarnings("ignore::UserWarning")  # likewise
@each
def test_every_variant_gives_the_same_result_on_a_gpu(workload: Workload) -> None:
    results = [run(toy(workload, v.name, on="cuda")).result for v in workload.variants]
    if workload.name in ROUNDED:
        band = ROUNDED[workload.name]
        for result in results[1:]:
            torch.testing.assert_close(result, results[0], rtol=band, atol=band)
    else:
        assert equal(results)


@each
def test_another_seed_gives_another_result(workload: Workload) -> None:
    assert not equal([run(toy(workload, seed=seed)).result for seed in (0, 1)])


@pytest.mark.parametrize("workload", GROWING, ids=lambda workload: workload.name)
def test_every_step_changes_the_result(workload: Workload) -> None:
    assert not equal([run(toy(workload, steps=steps)).result for steps in (3, 4)])


@each_variant
def test_each_step_has_the_phases_of_the_catalog(workload: Workload, variant: str) -> None:
    with recorded() as notes:
        outcome = run(toy(workload, variant, steps=3))
    assert notes.opened().count("step") == outcome.steps == 3
    inside = [name for name in notes.opened() if name != "step"]
    assert tuple(dict.fromkeys(inside)) == workload.phases


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
@pytest.mark.filterwarnings("ignore::UserWarning")  # likewise
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        *(("nan_check", "async"), ("h2d", "pinned"), ("metrics", "at_end"), ("sum_many", "fused")),
        *(("overlap", "side_stream"), ("graph_break", "fullgraph")),
        *(("trainstep", "fused"), ("trainstep", "graph")),
    ],
)
def test_the_remedy_never_makes_the_host_wait(name: str, variant: str) -> None:
    work = work_of(toy(find(name), variant, on="cuda"))
    work.step(0)  # code is loaded, memory allocated
    torch.cuda.set_sync_debug_mode("error")
    try:
        for index in range(1, 5):
            work.step(index)
    finally:
        torch.cuda.set_sync_debug_mode("default")
