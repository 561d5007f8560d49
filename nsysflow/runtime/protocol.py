"""What `nsysflow profile` and the program it runs agree on.

`profile` sets environment variables, which every process of the program inherits. Each process
leaves a status file in the run's folder (`process.py`), and a mark in the report that
describes the captured window.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from nsysflow.runtime.inject import nsysflow_hook

CAPTURE: Final = "NSYSFLOW_CAPTURE"
"""`wait:warmup:active`; set when only a window of steps is recorded."""

COLLECTOR: Final = "NSYSFLOW_COLLECTOR"
"""`nsys` or `kineto`: who records the ranges and the window."""

OPENER: Final = "NSYSFLOW_OPENER"
"""`cuda` or `nvtx`: what nsys waits for to open the window. `nvtx` is for runs without a GPU."""

STACKS: Final = "NSYSFLOW_STACKS"
"""Set when torch.profiler is to record the Python functions that the program calls."""

SHAPES: Final = "NSYSFLOW_SHAPES"
"""Set when torch.profiler is to record the shapes of operators, and the memory they allocate."""

READINGS: Final = "NSYSFLOW_READINGS"
"""Set when clocks, power, temperature and traffic of the GPUs are to be sampled, and how long the
launching thread waits for a CPU."""

MEMORY: Final = "NSYSFLOW_MEMORY"
"""Set when what PyTorch's allocator does is to be recorded."""

MEMORY_FILES: Final = "memory-*.json"
"""The names of the files in which processes leave that; `*` is the process id."""

LOADER_FILES: Final = "loader-*.bin"
"""The names of the files in which workers of DataLoaders leave their times; `*` is the process id.
Files of what they run have `-code` behind it."""

OPENING_RANGE: Final = "capture"
DOMAIN: Final = "nsysflow.window"
"""The NVTX range that opens the window, and its domain, which holds no phases."""

KEY: Final = "nsysflow"
"""The key under which a report describes its window: in the text of an NVTX mark, or at the top
of a Kineto trace."""

UNUSED_GRADIENTS: Final = "unused_gradients"
REPEATED_CALLS: Final = "repeated_calls"
PADDED_INPUT: Final = "padded_input"
UNCHANGED_CALLS: Final = "unchanged_calls"
PRODUCT_ORDER: Final = "product_order"
ZEROS_IN_PRODUCTS: Final = "zeros_in_products"
MERGED_ADAPTERS: Final = "merged_adapters"
MASKED_ROWS: Final = "masked_rows"
"""What a program may be seen to do with modules: the keys of lists of these (`regions.py`)."""

WORKER_CODE: Final = "worker_code"
"""The key of what workers of DataLoaders run (`worker_code.py`)."""

STEP: Final = "step"
"""The range around each step of `nsysflow.steps`."""

AUTO_DOMAIN: Final = "nsysflow.auto"
"""The NVTX domain of the ranges that we put into a program by ourselves. Where a recorder has no
domains, the name has it as a prefix: `nsysflow.auto:forward`."""

AUTO_CALL: Final = "call"
"""The instant between two automatic steps of a process without optimizer; else it is `STEP`."""

LOOK: Final = "look"
"""The instant of that domain in a step in which we watch each call of a module, which takes longer.
"""

RUN_FOLDER: Final = nsysflow_hook.RUN_FOLDER
"""The run's folder, where a process leaves its status file and its Kineto trace."""

ANNOTATE: Final = nsysflow_hook.ANNOTATE
"""`1` switches on the ranges and steps of programs that nobody prepared."""

BOUND: Final = "NSYSFLOW_BOUND"
"""Set when the recording ends once it holds enough steps."""

PLAIN: Final = "NSYSFLOW_PLAIN"
"""Set in the plain run: no profiler is attached, and each process times its steps."""

BEGUN: Final = "begun"
"""The file `begun-PID` in the run's folder says that a process has begun its first step; …"""

ENOUGH: Final = "enough"
"""… `enough-PID` that it has enough of them, recorded or, in a plain run, timed; …"""

WRITTEN: Final = "written"
"""… `written` that nsys has written the reports of all processes and does nothing more; …"""

TIMED: Final = "timed"
"""… and `timed-PID` that a process has timed enough steps since then."""

RANK: Final = "LOCAL_RANK"
"""The rank of a process, set by torchrun."""


@dataclass(frozen=True)
class Window:
    """The steps to capture: `wait` and `warmup` steps pass, then `active` steps are recorded."""

    wait: int
    warmup: int
    active: int

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: a number is negative, or no step is active.
        """
        if min(self.wait, self.warmup) < 0 or self.active < 1:
            msg = f"'{self}' is not WAIT:WARMUP:ACTIVE with at least one active step"
            raise ValueError(msg)

    @classmethod
    def parse(cls, text: str) -> Window:
        """`3:2:5` as a window.

        Raises:
            ValueError: the text is not three numbers, or no step is active.
        """
        wait, warmup, active = (int(part) for part in text.split(":"))
        return cls(wait=wait, warmup=warmup, active=active)

    def __str__(self) -> str:
        return f"{self.wait}:{self.warmup}:{self.active}"


def rank() -> int | None:
    """This process's rank on its machine; None if torchrun did not start it."""
    rank = os.environ.get(RANK)
    return int(rank) if rank is not None and rank.isdecimal() else None


Collector = Literal["nsys", "kineto"]

Backtrace = Literal["waits", "all", "none"]
"""The CUDA calls whose Python lines are recorded: those that block the host, all, or none."""


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
