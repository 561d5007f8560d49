"""The status file that each process of a profiled program leaves in the run's folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from nsysflow.runtime.scratch import scratch_file

FILES: Final = "child-*.json"
"""The names of status files; `*` is the process id."""

WindowState = Literal["never", "open", "closed"]


@dataclass(frozen=True)
class ChildStatus:
    """What one process did, as of its last write.

    A process writes when its first loop begins, when the window opens and closes, and when it ends.

    Attributes:
        pid: the process id.
        versions: of python, and of torch, cuda, triton and nvtx if it loaded them.
        at_end: whether this was written when Python ended by itself. False after a signal or
            `os._exit`: the process may have done more than is counted here.
        rank: its rank under torchrun.
        gpu: the name of the GPU that it used.
        ranges: how many NVTX ranges it opened through `nsysflow.region` and `steps`.
        steps: how many steps began.
        captured: how many of them began inside the window.
        window: `never` opened, `open` (the program ended inside it) or `closed`. Counted in steps:
            without a GPU a profiler that waits for CUDA records none of it.
        unprofiled_step_ns: mean wall time of a warm-up step, with no capture running.
        config: the settings of a built-in workload, with shapes and seed; None for other programs.
    """

    pid: int
    versions: dict[str, str]
    at_end: bool = True
    rank: int | None = None
    gpu: str | None = None
    ranges: int = 0
    steps: int = 0
    captured: int = 0
    window: WindowState = "never"
    unprofiled_step_ns: int | None = None
    config: dict[str, Any] | None = None


def write_status(folder: Path, status: ChildStatus) -> None:
    """Write the status file, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with scratch_file(folder, ".json") as scratch:
        scratch.write_text(json.dumps(asdict(status)), encoding="utf-8")
        scratch.replace(folder / FILES.replace("*", str(status.pid)))
