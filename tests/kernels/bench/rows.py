"""Hand-made rows."""

from typing import Any

from nsysflow.kernels.bench.problem import Cost
from nsysflow.kernels.bench.rows import Machine, Measured, Row, stats_of

VERSIONS = {"driver": "580.1", "cuda": "13.0", "torch": "2.11", "triton": "3.6", "nsysflow": "0.1"}


def measured(device_ns: float = 1000.0, **others: Any) -> Measured:
    """A measurement with this device time, and twice as long in every other way."""
    device, twice = (stats_of([[times * device_ns] * 2]) for times in (1, 2))
    spans = dict.fromkeys(("span_cold", "span_warm", "graph_cold", "graph_warm"), twice)
    given: dict[str, Any] = {"device": device, "why_no_graph": None, "host_min_ns": 40_000}
    return Measured(**spans | given | {"peak_memory_bytes": 0} | others)


def row(**others: Any) -> Row:
    """A correct row that moves 4000 bytes per microsecond, on a GPU that copies 5000."""
    given: dict[str, Any] = {
        "date": "2026-11-20", "kernel": "advantage", "shape": {"S": 8, "T": 2}, "dtype": "bf16",
        "direction": "fwd", "variant": "triton", "outcome": "right", "error": 0.25, "note": None,
        "cost": Cost(bytes=4000, flops=300_000), "unit": "float32", "measured": measured(),
        "machine": Machine(gpu="NVIDIA H200", versions=VERSIONS, copy_bytes_per_s=5e9),
    }  # fmt: skip
    return Row(**given | others)
