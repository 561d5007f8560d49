"""Work captured as a CUDA graph."""

from collections.abc import Callable

import torch


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """A function that replays `work` as a CUDA graph, with one launch.

    Args:
        work: launches kernels on static tensors. It must not allocate memory that outlives it, and
            must not wait. It runs once before the capture, because code loads lazily.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
