"""ddp over two ranks on the CPU: one model on both, the same in both variants."""

import re
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from nsysflow.catalog import find
from nsysflow.errors import WorkloadError
from nsysflow.handshake import RANK
from nsysflow.workloads import ddp
from nsysflow.workloads.run import run
from tests.workloads.running import toy

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
CHILD = [sys.executable, "-P", "-m", "nsysflow.workloads", "ddp", "--on", "cpu"]


def results_of(variant: str, ranks: int) -> list[str]:
    """What each rank prints as its result: the mean of the weights."""
    argv = [*TORCHRUN, f"--nproc-per-node={ranks}", *CHILD, "--variant", variant]
    done = subprocess.run(
        [*argv, "--precision", "float", "--capture", "1:0:2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return re.findall(r"3 steps, result (\S+)", done.stdout)


@pytest.mark.slow
def test_two_ranks_hold_one_model_and_both_variants_the_same() -> None:
    results = [results_of(variant.name, 2) for variant in find("ddp").variants]
    assert [len(of_ranks) for of_ranks in results] == [2, 2]
    assert len({result for of_ranks in results for result in of_ranks}) == 1
    # a rank alone has half of the batches
    alone = run(toy(find("ddp"), steps=3)).result.double().mean().item()
    assert results[0][0] != f"{alone:.6g}"


def test_weights_that_differ_from_rank_0_s_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_rank_0(weights: torch.Tensor, _rank: int) -> None:
        weights[3] += 1

    monkeypatch.setattr(dist, "broadcast", from_rank_0)
    with pytest.raises(WorkloadError, match="the weights of rank 0 differ from those of rank 0"):
        run(toy(find("ddp")))


def test_ranks_meet_before_the_first_captured_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[int] = []
    monkeypatch.setattr(dist, "new_group", lambda **_: None)
    monkeypatch.setattr(dist, "barrier", lambda _group: met.append(len(fetched)))
    fetched: list[int] = []
    for index in ddp.Batches(count=5, meet_at=3):
        fetched += [index]
    assert (fetched, met) == ([0, 1, 2, 3, 4], [3])


def test_one_rank_says_that_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RANK, raising=False)
    assert "one rank" in run(toy(find("ddp"))).note
