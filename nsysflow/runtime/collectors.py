"""Who profiles this process: nsys, torch.profiler (Kineto), or nobody."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, get_args

from nsysflow.runtime.protocol import COLLECTOR

Collector = Literal["nsys", "kineto"]


def attached_collector(environ: Mapping[str, str]) -> Collector | None:
    """The collector that these environment variables stand for; None if nothing records."""
    collectors: tuple[Collector, ...] = get_args(Collector)
    for collector in collectors:
        if environ.get(COLLECTOR) == collector:
            return collector
    # nsys sets both for the programs it starts; other tools that record NVTX set the second
    if environ.get("NSYS_PROFILING_SESSION_ID") or environ.get("NVTX_INJECTION64_PATH"):
        return "nsys"
    return None


COLLECTOR_HERE: Collector | None = attached_collector(os.environ)
"""The collector of this process. It does not change after the process has started."""
