"""Runs of the autograd engine: `backward`."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

from nsysflow.runtime.auto.ranges import Ranges

_NOT_RUNNING: Final = -1


def annotate(torch: ModuleType, ranges: Ranges) -> None:
    """Put a range around each run that is in no other: `Tensor.backward` and `torch.autograd.grad`
    all come to one function."""
    run = torch.autograd._engine_run_backward
    in_range = ranges.around("backward", run)
    is_compiling, running = ranges.is_compiling, torch._C._current_graph_task_id

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or running() != _NOT_RUNNING:
            return run(*args, **kwargs)
        return in_range(*args, **kwargs)

    torch.autograd._engine_run_backward = ranges.hide(_engine_run_backward)
