"""Declared operations agree with counts by hand and with PyTorch's; the table of times."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nsysflow.catalog.catalog import find
from nsysflow.workloads.common.accuracy import Comparison
from nsysflow.workloads.common.measurement import Column, Table
from nsysflow.workloads.common.run import options_of, run
from nsysflow.workloads.common.training import perceptron_flops
from nsysflow.workloads.policy.minibatch import minibatch_of, random_rollout
from nsysflow.workloads.policy.model import Sizes, batch_of, initial_weights
from nsysflow.workloads.policy.steps import PlainStep
from nsysflow.workloads.policy.variants import policy_flops
from tests.workloads.toys import toy, work_of


def test_parameters_and_operations_of_the_usual_policy_match_a_count_by_hand() -> None:
    usual: Sizes = options_of(find("trainstep"), "cuda", {})
    assert sum(weight.numel() for weight in initial_weights(usual, "meta")) == 62_080
    assert policy_flops(usual) == {
        "encoder": 805_306_368,  # 2 · 32768 · 128 · 96
        "rnn": 3_221_225_472,  # 2 · 32768 · 384 · 128
        "decoder": 41_943_040,  # 2 · 32768 · 5 · 128
        # weights once more, 4 068 474 880, and inputs except the encoder's, 3 263 168 512
        "backward": 7_331_643_392,
        # 5 · (4·96·96·128 + 2·96³) + 5 · (4·128·128·384 + 2·128³) + 5 · (4·5·5·128 + 2·5³)
        "optimizer": 32_440_320 + 146_800_640 + 65_250,
    }


@pytest.mark.parametrize("layers", [1, 2])
def test_forward_and_backward_match_what_pytorch_counts(layers: int) -> None:
    sizes = Sizes(segments=24, horizon=3, minibatch=6, obs=8, actions=3, hidden=16, layers=layers)
    rollout = random_rollout(sizes, "cpu", torch.float32)
    batch = batch_of(minibatch_of(sizes, rollout))
    step = PlainStep(initial_weights(sizes, "cpu"), batch, torch.float32)
    ours = policy_flops(sizes)
    with FlopCounterMode(display=False) as forward:
        step.encode()
        step.recur()
        step.decode()
    assert forward.get_total_flops() == ours["encoder"] + ours["rnn"] + ours["decoder"]
    step.loss()
    with FlopCounterMode(display=False) as backward:
        step.backward()
    assert backward.get_total_flops() == ours["backward"]


@pytest.mark.parametrize("name", ["trainforward", "trainstep"])
def test_a_workload_declares_the_phases_that_it_runs(name: str) -> None:
    work = work_of(toy(find(name), "torch", precision="bf16"))
    assert work.flops is not None
    assert work.flops.unit == "bf16"
    assert ("optimizer" in work.flops.phases) == (name == "trainstep")
    assert {"encoder", "rnn", "decoder", "backward"} <= work.flops.phases.keys()


DECLARING = ("alloc_churn", "dataload", "ddp", "h2d", "metrics", "nan_check", "overlap")


@pytest.mark.parametrize("widths", [(4, 8), (4, 8, 6, 2)])
def test_the_operations_of_a_perceptron_match_a_count_by_hand(widths: tuple[int, ...]) -> None:
    layers = [2 * 5 * m * n for m, n in pairwise(widths)]
    assert perceptron_flops(5, widths) == {
        "forward": sum(layers),
        "backward": sum(layers) + sum(layers[1:]),
    }


@pytest.mark.parametrize("name", DECLARING)
def test_a_workload_declares_what_pytorch_counts_in_a_step(name: str) -> None:
    work = work_of(toy(find(name)))
    work.step(0)
    with FlopCounterMode(display=False) as counter:
        work.step(1)
    work.result()
    assert work.flops is not None
    assert work.flops.unit == "float32"
    assert counter.get_total_flops() == sum(work.flops.phases.values())


def column(name: str, phases_ns: tuple[int | None, ...], begun_ns: int, step_ns: int) -> Column:
    return Column(name=name, phases_ns=phases_ns, begun_ns=(begun_ns,), step_ns=step_ns)


TABLE = Table(
    compared=(
        Comparison(what="loss", torch_error=1e-4, error=1.9e-3),
        Comparison(what="gradient of encoder", torch_error=2e-3, error=3.9e-3),
    ),
    phases=("forward", "backward"),
    ends=("loss",),
    columns=(
        column("torch", (4_000_000, 6_000_000), 4_500_000, 9_000_000),
        column("fused", (100_000, 200_000), 120_000, 290_000),
        column("graph", (25_000, 75_000), 31_000, 96_000),
    ),
)


PAGE = """\
distance from float64        torch     fused
loss                       1.0e-04   1.9e-03  FAIL
gradient of encoder        2.0e-03   3.9e-03  PASS

us                           torch     fused     graph   share
forward                     4000.0     100.0      25.0   25.0%
backward                    6000.0     200.0      75.0   75.0%
sum of phases              10000.0     300.0     100.0
to the end of loss          4500.0     120.0      31.0
step, measured              9000.0     290.0      96.0
graph against torch: 93.8 times
graph against fused: 3.0 times"""


def test_an_error_passes_up_to_twice_that_of_pytorch_or_one_thousandth() -> None:
    assert str(TABLE) == PAGE
    assert TABLE.wrong == ("loss",)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("rolloutcopy", ("compute_prio",)),
        ("trainforward", ("loss",)),
        ("trainstep", ("loss", "backward")),
    ],
)
def test_on_a_gpu_all_phases_agree_and_are_timed(name: str, ends: tuple[str, ...]) -> None:
    table: Any = run(toy(find(name), "graph", on="cuda")).table
    assert [row.what for row in table.compared if not row.passed] == []
    assert [column.name for column in table.columns] == ["torch", "fused", "graph"]
    assert table.ends == ends
    times_ns = [ns for column in table.columns for ns in (*column.begun_ns, column.step_ns)]
    assert min(times_ns) > 0
