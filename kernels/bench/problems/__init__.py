"""How each kernel is benchmarked: one file per kernel of the catalog, with its name."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from nsysflow.catalog.catalog import kernels
from nsysflow.kernels.bench.problem import Benchmark

BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    kernel.name: import_module(f"{__name__}.{kernel.name}").BENCHMARK for kernel in kernels()
}
