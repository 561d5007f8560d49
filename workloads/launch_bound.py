"""Small kernels, launched one by one, or as a CUDA graph.

The Python of a module takes the host longer than its kernel takes the GPU, so the GPU waits between
any two of them; a graph launches them all at once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nsysflow.errors import WorkloadError
from nsysflow.regions import Region, region
from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.graphs import captured


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    kernels: modules in a step, an elementwise kernel each.
    rows: of the tensors that each of them takes.
    width: of those tensors.
    heads: into which the width is split.
    """

    kernels: int
    rows: int
    width: int
    heads: int


class GatedResidual(nn.Module):
    """Adds head by head, as attention code does: one kernel, and six views around it."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self._heads = heads

    def forward(self, total: Tensor, part: Tensor, gate: Tensor) -> None:
        """Add `part * gate` to `total` in place, all (rows, width)."""
        self._by_head(total).addcmul_(self._by_head(part), self._by_head(gate))

    def _by_head(self, rows: Tensor) -> Tensor:
        """(heads, rows, width / heads) of (rows, width)."""
        by_head: Tensor = rows.unflatten(-1, (self._heads, -1)).transpose(0, 1)
        return by_head


def launch_bound(config: Config[Options]) -> Work:
    """`kernels` modules, each of which adds `part * gate` to `total`.

    Raises:
        WorkloadError: the heads are not equally wide.
    """
    options = config.options
    if options.width % options.heads:
        msg = (
            f"launch_bound: a width of {options.width} is not split into {options.heads} equal"
            " heads. Choose another --width or --heads"
        )
        raise WorkloadError(msg)
    part, gate = torch.rand(2, options.rows, options.width, **config.placed)
    total = torch.zeros_like(part)
    modules = [GatedResidual(options.heads) for _ in range(options.kernels)]

    def add() -> None:
        for module in modules:
            module(total, part, gate)

    graph = config.variant == "graph"
    launch = add
    if graph and config.cuda:
        launch = captured(add)
        total.zero_()  # capturing ran it once

    def step(_batch: int) -> None:
        with region(Region.FORWARD):
            launch()

    def result() -> Tensor:
        return total

    note = "as eager: no CUDA graphs here" if graph and not config.cuda else ""
    return Work(step=step, result=result, note=note)
