"""How long NCCL's collectives take here, by size and by the number of GPUs.

    torchrun --nproc-per-node 4 -m nsysflow.workloads.common.collectives collectives.csv

`nsysflow whatif REPORT --ranks 4 --collectives collectives.csv` then says how long a step of a
program that was recorded on one GPU takes on four. Measured are groups of 2, 4, 8, … ranks, and of
all of them.
"""

import csv
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch import distributed as dist
from torch import nn

from nsysflow.base.atomic import staged_file

KIB = 1 << 10
MIB = 1 << 20
BYTES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, *(MIB << power for power in range(11))]
LEAST_BESIDE_BYTES = 4 * MIB  # what is smaller leaves no mark on the work beside it
FEWEST_RANKS = 2
ROUNDS = 7
SLEEP_CYCLES = 10_000_000  # some 5 ms, in which the host gets ahead of the GPU
LAYERS = 8
ROWS, WIDTH = 8192, 2048


@dataclass(frozen=True)
class Row:
    """A collective of one size.

    Attributes:
        operation: NCCL's name of it.
        ranks: in the group.
        bytes: the message, as NCCL counts it: an all-gather's is what each rank sends.
        gpu_ns: how long one takes, back to back with others.
        host_ns: how long the host takes to ask for one.
        delay_pct: by how much of that time work beside it is later; None for small ones.
    """

    operation: str
    ranks: int
    bytes: int
    gpu_ns: int
    host_ns: int
    delay_pct: int | None


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def main(file: Path) -> None:
    """Measure collectives on all GPUs of a torchrun, and write a row for each into FILE."""
    if int(os.environ.get("WORLD_SIZE", "1")) < FEWEST_RANKS:
        msg = "collectives need two ranks: start this with torchrun --nproc-per-node 2 or more"
        raise click.UsageError(msg)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timedelta(minutes=5), device_id=device)
    rows = [row for group in _groups() for row in _rows_of(group, device)]
    if dist.get_rank() == 0:
        with staged_file(file) as staged, staged.open("w", newline="") as out:
            table = csv.writer(out, lineterminator="\n")
            table.writerow(field.name for field in fields(Row))
            table.writerows(map(astuple, rows))
    dist.barrier()
    dist.destroy_process_group()


def _groups() -> Iterator[dist.ProcessGroup]:
    """Groups of the first 2, 4, 8, … ranks, and of all."""
    world = dist.get_world_size()
    sizes = [1 << power for power in range(1, world.bit_length()) if 1 << power < world]
    for size in sizes:
        group = dist.new_group(range(size))
        if dist.get_rank() < size:
            yield group
        dist.barrier()
    if dist.group.WORLD is not None:
        yield dist.group.WORLD


def _rows_of(group: dist.ProcessGroup, device: torch.device) -> Iterator[Row]:
    ranks = dist.get_world_size(group)
    model = nn.Sequential(
        *(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH))
    ).to(device, torch.bfloat16)
    data = torch.randn(ROWS, WIDTH, device=device, dtype=torch.bfloat16)

    def work() -> None:
        model(data).sum().backward()

    for size in BYTES:
        for operation, collective in _collectives(size, group, device).items():
            count = max(4, min(40, (512 * MIB) // size))
            gpu_ns, host_ns = _in_turn(group, partial(_done, collective), count)
            delay_pct = None
            if size >= LEAST_BESIDE_BYTES:
                delay_pct = _delay_pct(group, work, collective, gpu_ns)
            yield Row(operation, ranks, size, round(gpu_ns), round(host_ns), delay_pct)


def _collectives(
    size: int, group: dist.ProcessGroup, device: torch.device
) -> dict[str, Callable[[], dist.Work]]:
    """What asks for each operation, with a message of this size."""
    mine = torch.zeros(size // 4, device=device)
    every = torch.zeros(dist.get_world_size(group) * size // 4, device=device)
    asked: dict[str, Any] = {"group": group, "async_op": True}
    return {
        "ncclAllReduce": partial(dist.all_reduce, mine, **asked),
        "ncclAllGather": partial(dist.all_gather_into_tensor, every, mine, **asked),
        "ncclReduceScatter": partial(dist.reduce_scatter_tensor, mine, every, **asked),
        "ncclBroadcast": partial(dist.broadcast, mine, 0, **asked),
    }


def _done(collective: Callable[[], dist.Work]) -> None:
    collective().wait()


def _in_turn(
    group: dist.ProcessGroup, call: Callable[[], object], count: int
) -> tuple[float, float]:
    """How long the GPU, and the host, takes for one of `count` calls in turn, in ns."""
    on_gpu, on_host = [], []
    for _ in range(ROUNDS):
        dist.barrier(group)
        torch.cuda.synchronize()
        torch.cuda._sleep(SLEEP_CYCLES)
        call()  # the ranks meet
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        began_ns = time.perf_counter_ns()
        for _ in range(count):
            call()
        on_host.append((time.perf_counter_ns() - began_ns) / count)
        last.record()
        torch.cuda.synchronize()
        on_gpu.append(first.elapsed_time(last) * 1e6 / count)
    return statistics.median(on_gpu), statistics.median(on_host)


def _delay_pct(
    group: dist.ProcessGroup,
    work: Callable[[], None],
    collective: Callable[[], dist.Work],
    collective_ns: float,
) -> int:
    """By how much later work ends beside collectives that take half of its time, in percent of
    their time."""
    alone_ns, _ = _in_turn(group, work, LAYERS)
    pieces = max(1, round(2 * collective_ns / alone_ns))

    def piece() -> None:
        for _ in range(pieces):
            work()

    pending: list[dist.Work] = []

    def beside() -> None:
        pending.append(collective())
        piece()

    alone_ns, _ = _in_turn(group, piece, LAYERS)
    beside_ns, _ = _in_turn(group, beside, LAYERS)
    return max(0, round(100 * (beside_ns - alone_ns) / collective_ns))


if __name__ == "__main__":
    sys.exit(main())
