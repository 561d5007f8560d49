"""ddp on two ranks on the CPU: one model on both, and the same in both variants."""

import re
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from nsysflow.base.errors import WorkloadError
from nsysflow.catalog.catalog import find
from nsysflow.runtime.protocol import RANK
from nsysflow.workloads import ddp
from nsysflow.workloads.common.run import run
from tests.workloads.toys import toy

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


def test_a_single_rank_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RANK, raising=False)
    assert "one rank" in run(toy(find("ddp"))).note
