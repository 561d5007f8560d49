"""Whether Python is sampled while a run is recorded, and how often."""

from dataclasses import replace
from typing import Final

from nsysflow.base.errors import CaptureError
from nsysflow.nsys import Nsys
from nsysflow.profiling.request import Request

DEFAULT_HZ: Final = 1_000


def with_sampling(request: Request, nsys: Nsys | None) -> tuple[Request, tuple[str, ...]]:
    """The request with a frequency, and what to tell the user about it.

    nsys samples by default where it can, which costs little. torch.profiler would record every call
    of a Python function instead, so that it does so only if asked.

    Args:
        request: what was asked.
        nsys: the nsys that records; None for torch.profiler.

    Raises:
        CaptureError: samples were asked for, and this nsys cannot record them.
    """
    hz = request.sample_python
    if nsys is None or hz == 0:
        return replace(request, sample_python=hz or 0), ()
    if nsys.samples_python:
        return replace(request, sample_python=hz or DEFAULT_HZ), ()
    missing = f"nsys {nsys.version_text} cannot sample Python and export what it saw"
    if hz:
        raise CaptureError(
            f"--sample-python needs a newer nsys: {missing}",
            "Record without it, or see how to get another nsys",
            "nsysflow doctor",
        )
    note = (
        f"{missing}, so the page will not say what the host ran. Use a newer nsys (see nsysflow"
        " doctor)"
    )
    return replace(request, sample_python=0), (note,)
