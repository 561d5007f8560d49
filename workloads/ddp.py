"""Data-parallel training: gradients are summed over the ranks during backward, or after it.

`DistributedDataParallel` sends a bucket of gradients as soon as backward has computed it, so one
layer's gradients are summed while backward continues with the layers before it. When they are
summed after backward instead, the GPU computes nothing meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nsysflow.base.errors import WorkloadError
from nsysflow.runtime.protocol import rank
from nsysflow.workloads.common.training import Config, Training, Work


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `ddp`.

    Attributes:
        batch: rows of each rank's batch.
        width: width of the input and of each layer.
        layers: number of linear layers, without biases: each has one gradient tensor.
    """

    batch: int
    width: int
    layers: int


def ddp(config: Config[Options]) -> Work:
    """Train on one batch per rank; all ranks keep the same weights."""
    options = config.options
    _join(config)
    ranks, here = dist.get_world_size(), dist.get_rank()
    overlapped = config.variant == "bucketed"
    training = Training(
        config,
        [options.width] * (options.layers + 1),
        options.batch,
        bias=False,
        parallel=_in_buckets if overlapped else None,
        reduce=None if overlapped else _average,
    )
    batch = torch.randn(ranks, options.batch, options.width, **config.placed)[here].clone()
    first = config.window.wait + config.window.warmup

    def step(_index: int) -> None:
        training.step(batch)

    def result() -> Tensor:
        weights = torch.cat([weight.detach().flatten() for weight in training.weights()])
        _require_equal(weights)
        dist.destroy_process_group()
        return weights

    def batches(count: int) -> Batches:
        return Batches(count=count, meet_at=first)

    note = "one rank: no other to send to" if ranks == 1 else ""
    return Work(step=step, result=result, batches=batches, flops=training.flops, note=note)


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The numbers of the batches.

    Attributes:
        count: how many.
        meet_at: before this batch, the first captured one, the ranks wait for each other on the
            host. Profilers start milliseconds apart; without the wait, an early rank would appear
            to wait in its first collective for another rank's profiler.
    """

    count: int
    meet_at: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        on_hosts = dist.new_group(backend="gloo")
        for index in range(self.count):
            if index == self.meet_at:
                dist.barrier(on_hosts)
            yield index


def _join(config: Config[Options]) -> None:
    """Join the other ranks, or be the only one if torchrun did not start this process."""
    if dist.is_initialized():
        dist.destroy_process_group()  # left by an earlier run in this process that failed
    backend = "nccl" if config.cuda else "gloo"
    # with a device NCCL connects now, otherwise in the first step
    device = torch.device("cuda", torch.cuda.current_device()) if config.cuda else None
    if rank() is None:
        alone = dist.HashStore()  # type: ignore[attr-defined]  # public by its documentation
        dist.init_process_group(backend, store=alone, rank=0, world_size=1, device_id=device)
    else:
        dist.init_process_group(backend, device_id=device)


def _in_buckets(model: nn.Module) -> nn.Module:
    # without views each gradient would be copied back from its bucket; the other variant has no
    # such copy
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def _average(weights: list[Tensor]) -> None:
    """Average the gradients of `weights` over the ranks, in the order of backward."""
    gradients = [weight.grad for weight in reversed(weights) if weight.grad is not None]
    # scaled before summing, as DistributedDataParallel does, so that both round the same
    torch._foreach_mul_(gradients, 1 / dist.get_world_size())
    sums = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
    for total in sums:
        total.wait()


def _require_equal(weights: Tensor) -> None:
    """Check that this rank's weights equal those of rank 0.

    Raises:
        WorkloadError: they differ.
    """
    first = weights.clone()
    dist.broadcast(first, 0)
    if not torch.equal(weights, first):
        msg = f"ddp: the weights of rank {dist.get_rank()} differ from those of rank 0"
        raise WorkloadError(msg)
