"""DataLoaders with times: in the loop that takes batches, and in the workers that fetch them."""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress
from functools import wraps
from types import ModuleType
from typing import Any, Final

from nsysflow.runtime.auto.ranges import Ranges
from nsysflow.runtime.loaders import LOADERS, Requests, Results, WorkerTimes, worker_file
from nsysflow.runtime.protocol import RUN_FOLDER


def annotate_loaders(torch: ModuleType, ranges: Ranges) -> None:
    """Time what DataLoaders do: in this process, and in the workers that it starts."""
    _time_worker(torch.utils.data._utils.worker, ranges)
    _time_passes(torch.utils.data.dataloader._BaseDataLoaderIter, ranges)


_RUN: Final = "_nsysflow_run"
"""The attribute of torch's iterator that holds its `LoaderRun`."""


def _time_passes(iterator: Any, ranges: Ranges) -> None:
    """Time each wait of the loop for a batch."""
    init, following = iterator.__init__, iterator.__next__
    is_compiling, waited = ranges.is_compiling, LOADERS.waited

    @wraps(init)
    def __init__(self: Any, loader: Any) -> None:
        init(self, loader)
        run = LOADERS.opened(loader)
        setattr(self, _RUN, run)
        weakref.finalize(self, LOADERS.closed, run)

    @wraps(following)
    def __next__(self: Any) -> Any:
        if is_compiling():
            return following(self)
        begun_ns = time.monotonic_ns()
        batch = following(self)
        run = vars(self).get(_RUN)
        if run is not None:
            if run.files is None:
                run.know([worker.pid for worker in getattr(self, "_workers", ())])
            waited(run, begun_ns, time.monotonic_ns())
        return batch

    iterator.__init__ = ranges.hide(__init__)
    iterator.__next__ = ranges.hide(__next__)


def _time_worker(worker: Any, ranges: Ranges) -> None:
    """Time the batches of a worker, in its process. A spawned one finds this by its name, as it
    finds torch's own function."""
    loop = worker._worker_loop

    @wraps(loop)
    def _worker_loop(kind: Any, dataset: Any, requests: Any, results: Any, *args: Any) -> Any:
        folder = os.environ.get(RUN_FOLDER)
        times = None
        with suppress(OSError):  # the folder is gone or full
            times = WorkerTimes(worker_file(folder, os.getpid())) if folder else None
        if times is not None:
            requests, results = Requests(requests, times), Results(results, times)
        return loop(kind, dataset, requests, results, *args)

    worker._worker_loop = ranges.hide(_worker_loop)
