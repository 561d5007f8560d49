"""Small kernels, launched one by one or as a CUDA graph.

A module's Python code takes the host longer than its kernel takes the GPU, so the GPU waits before
each kernel. A graph launches all of them at once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nsysflow.base.errors import WorkloadError
from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.measurement import captured
from nsysflow.workloads.common.training import Config, Work


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `launch_bound`.

    Attributes:
        kernels: modules per step, one elementwise kernel each.
        rows: rows of the tensors.
        width: width of the tensors.
        heads: heads that the width is split into.
    """

    kernels: int
    rows: int
    width: int
    heads: int


class GatedResidual(nn.Module):
    """Adds head by head, as attention code does: one kernel and six views."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self._heads = heads

    def forward(self, total: Tensor, part: Tensor, gate: Tensor) -> None:
        """Add `part * gate` to `total` in place, all (rows, width)."""
        self._by_head(total).addcmul_(self._by_head(part), self._by_head(gate))

    def _by_head(self, rows: Tensor) -> Tensor:
        """`rows` of shape (rows, width) as a view of shape (heads, rows, width / heads)."""
        by_head: Tensor = rows.unflatten(-1, (self._heads, -1)).transpose(0, 1)
        return by_head


def launch_bound(config: Config[Options]) -> Work:
    """Call modules that each add `part * gate` to `total`.

    Raises:
        WorkloadError: the width is not a multiple of the heads.
    """
    options = config.options
    if options.width % options.heads:
        seen = (
            f"launch_bound: a width of {options.width} cannot be split into {options.heads} equal"
            " heads"
        )
        raise WorkloadError(seen, "Choose another --width or --heads")
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
