"""How `layernorm_relu_add` is benchmarked."""

from typing import Final

import torch
from torch.nn import functional as F

from nsysflow.kernels.bench.problem import Benchmark, Cost, Problem, Random, Shape, Tolerance
from nsysflow.kernels.layernorm_relu_add import (
    layernorm_relu_add,
    layernorm_relu_add_bytes,
    layernorm_relu_add_ref,
)

FLOPS: Final = 9
"""Per element: mean 1, deviation 3, scale 1, g and b 2, relu 1, skip 1."""
BACKWARD_FLOPS: Final = 16
"""Per element: norm again 2, mask 3, dg and db 3, w 1, its means 3, dx 4."""
MARGIN: Final = 1e-4
"""Closer to relu's corner, float32 and float64 may be on different sides of it."""


def make(shape: Shape, random: Random) -> Problem:
    """A problem: layer norm of rows x cols, with gradients for all four inputs."""
    rows, cols = shape["rows"], shape["cols"]
    x, skip = random.normal(rows, cols), random.normal(rows, cols)
    g, b = random.normal(cols, scale=0.1, mean=1.0), random.normal(cols, scale=0.1)
    normed = F.layer_norm(x.double(), (cols,), g.double(), b.double())
    dy = torch.where(normed.abs() < MARGIN, 0, random.normal(rows, cols))
    one_way = layernorm_relu_add_bytes(x, g)
    return Problem(
        inputs=(x, g, b, skip),
        reference=lambda *given: (layernorm_relu_add_ref(*given),),
        kernels={"triton": lambda *given: (layernorm_relu_add(*given),)},
        wanted=(0, 1, 2, 3),
        slopes=(dy,),
        tolerance=Tolerance(relative=1e-5, absolute=1e-4),
        cost={
            "fwd": Cost(bytes=one_way, flops=FLOPS * x.numel()),
            "bwd": Cost(bytes=one_way, flops=BACKWARD_FLOPS * x.numel()),
            "fwd+bwd": Cost(bytes=2 * one_way, flops=(FLOPS + BACKWARD_FLOPS) * x.numel()),
        },
    )


BENCHMARK: Final = Benchmark(
    make=make,
    shape={"rows": 8192, "cols": 4096},
    toy={"rows": 5, "cols": 33},
    swept=(("rows",), ("cols",)),
    directions=("fwd", "bwd", "fwd+bwd"),
)
