"""CUDA graphs."""

from collections.abc import Callable

import torch


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """`work` as a CUDA graph, which one launch replays.

    Args:
        work: launches kernels on static tensors, allocates none that outlives it, and waits for
            nothing. It runs once before the capture, for code that loads lazily.
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
