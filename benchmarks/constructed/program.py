"""A random program that makes the GPU wait for known reasons. Needs torch and a GPU, not nsysflow.

    python benchmarks/constructed/program.py --seed 7

It is a sequence of *elements*. Each launches a kernel, does one thing that makes the GPU wait, and
launches the next kernel. NVTX ranges say which element it is and when that thing began and ended:
`e007 sync`, and inside `e007 call` and `e007 python`. So `__main__.py` can tell from the report
what each idle nanosecond was made of, without any of nsysflow's rules.
"""

import argparse
import ctypes
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

os.environ["CUDA_CACHE_DISABLE"] = "1"  # a module that was compiled in another run loads too fast

import torch

cuda: Any = torch.cuda  # much of it has no types

CYCLES_PER_US: Final = 1_755
"""Of an H100 at its base clock."""

MODULE: Final = """\
.version 7.0
.target sm_70
.address_size 64
.visible .entry kernel_{number}(.param .u64 out) {{
    .reg .u64 %p; .reg .u32 %v;
    ld.param.u64 %p, [out];
    mov.u32 %v, {number};
    {body}
    st.global.u32 [%p], %v;
    ret;
}}
"""


@contextmanager
def marked(name: str) -> Iterator[None]:
    """An NVTX range."""
    cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        cuda.nvtx.range_pop()


def spin(us: float) -> None:
    """Launch a kernel that takes about so long."""
    cuda._sleep(int(us * CYCLES_PER_US))


def busy(us: float) -> None:
    """Keep this thread in Python for so long."""
    until_ns = time.perf_counter_ns() + int(us * 1000)
    while time.perf_counter_ns() < until_ns:
        pass


class Program:
    """The elements, and what they work with.

    Attributes:
        random: draws lengths and sizes.
        name: the element that runs, such as `e007`.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.name = ""
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._number = torch.zeros(1, device="cuda")
        self._small = torch.zeros(1024, device="cuda")
        self._host = torch.zeros(1 << 20)
        self._flag = torch.zeros(1, dtype=torch.int32).pin_memory()
        self._flags = 0
        self._copies = torch.zeros(1 << 20, device="cuda")
        self._modules = seed * 10_000
        self._jobs: queue.SimpleQueue[tuple[str, float, threading.Event]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()
        self._graphs = [self._graph(self.random.randint(200, 1200)) for _ in range(24)]

    def _graph(self, kernels: int) -> cuda.CUDAGraph:
        """A graph that is not instantiated yet."""
        graph = cuda.CUDAGraph(keep_graph=True)
        with cuda.graph(graph):
            for _ in range(kernels):
                self._small.add_(1.0)
        return graph

    def _work(self) -> None:
        """The second thread: it computes, then launches."""
        cuda.set_device(0)
        while True:
            name, us, done = self._jobs.get()
            with marked(f"{name} python"):
                busy(us)
            spin(10)
            done.set()

    def _called(self, call: Callable[[], object], python_us: float) -> None:
        """Call, compute for so long, and launch the next kernel."""
        with marked(f"{self.name} call"):
            call()
        with marked(f"{self.name} python"):
            busy(python_us)
        spin(10)

    def host(self) -> None:
        """Python between two kernels."""
        spin(self.random.uniform(5, 40))
        with marked(f"{self.name} python"):
            busy(self.random.uniform(120, 2000))
        spin(10)

    def sleep(self) -> None:
        """The thread sleeps between two kernels."""
        spin(self.random.uniform(5, 40))
        with marked(f"{self.name} python"):
            time.sleep(self.random.uniform(120e-6, 2e-3))
        spin(10)

    def thread(self) -> None:
        """Another thread computes and launches, while this one waits for it."""
        spin(self.random.uniform(5, 40))
        done = threading.Event()
        self._jobs.put((self.name, self.random.uniform(120, 2000), done))
        done.wait()

    def launch(self) -> None:
        """Kernels that take the GPU less time than their launches take the host."""
        self._small.add_(1.0)  # PyTorch looks a kernel up once
        with marked(f"{self.name} loop"):
            for _ in range(self.random.randint(30, 200)):
                self._small.add_(1.0)

    def sync(self) -> None:
        """Wait for the GPU; what Python does then is longer than the kernel was."""
        us = self.random.uniform(50, 600)
        spin(us)
        wait = self.random.choice((cuda.synchronize, cuda.current_stream().synchronize))
        self._called(wait, us + self.random.uniform(100, 800))

    def early_sync(self) -> None:
        """Wait for the GPU; what Python does then would fit beside the kernel."""
        us = self.random.uniform(400, 1200)
        spin(us)
        event = cuda.Event()
        event.record()
        self._called(event.synchronize, us * self.random.uniform(0.2, 0.7))

    def read_back(self) -> None:
        """Read a number from the GPU."""
        us = self.random.uniform(50, 600)
        spin(us)
        self._called(self._number.item, us + self.random.uniform(150, 800))

    def pageable_copy(self) -> None:
        """Copy from pageable memory to the GPU, which the host waits for."""
        spin(self.random.uniform(5, 40))
        size = self.random.randint(1 << 17, 1 << 20)
        into, values = self._copies[:size], self._host[:size]
        self._called(lambda: into.copy_(values), self.random.uniform(3000, 5000))

    def allocate(self) -> None:
        """Allocate memory of the GPU."""
        self._allocated("cuMemAlloc_v2", "cuMemFree_v2", self.random.randint(64, 1024))

    def free(self) -> None:
        """Free memory of the GPU."""
        size_bytes = self.random.randint(64, 1024) << 20
        kept = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
        del kept
        cuda.synchronize()
        spin(10)
        self._called(cuda.empty_cache, self.random.uniform(150, 600))

    def pin(self) -> None:
        """Allocate pinned memory of the host."""
        self._allocated("cuMemAllocHost_v2", "cuMemFreeHost", self.random.randint(1, 16))

    def _allocated(self, allocate: str, free: str, size_mib: int) -> None:
        """Allocate with a function of the driver, and free later."""
        spin(10)
        address, size = ctypes.c_void_p(), ctypes.c_size_t(size_mib << 20)
        us = self.random.uniform(150, 600)
        self._called(lambda: self._driver[allocate](ctypes.byref(address), size), us)
        cuda.synchronize()
        self._driver[free](address)

    def load(self) -> None:
        """Load a module, which the driver compiles."""
        spin(10)
        self._modules += 1
        body = "\n    ".join(
            "mad.lo.u32 %v, %v, %v, 7;" for _ in range(self.random.randint(10, 400))
        )
        text = MODULE.format(number=self._modules, body=body).encode()
        module = ctypes.c_void_p()
        self._called(
            lambda: self._driver.cuModuleLoadData(ctypes.byref(module), text),
            self.random.uniform(60, 400),
        )

    def instantiate(self) -> None:
        """Make a graph executable: neither a launch nor a wait."""
        spin(10)
        graph = self.random.choice(self._graphs)
        self._called(graph.instantiate, self.random.uniform(60, 400))

    def held(self) -> None:
        """A kernel is queued, and waits for a value that the host writes later."""
        spin(self.random.uniform(5, 40))
        self._flags += 1
        stream = ctypes.c_void_p(cuda.current_stream().cuda_stream)
        address = ctypes.c_uint64(self._flag.data_ptr())
        self._driver.cuStreamWaitValue32_v2(stream, address, ctypes.c_uint32(self._flags), 0)
        spin(10)
        with marked(f"{self.name} held"):
            busy(self.random.uniform(120, 2000))
            ctypes.c_int32.from_address(self._flag.data_ptr()).value = self._flags

    def run(self, elements: int) -> None:
        """Run so many elements in random order, after one of each."""
        kinds = (
            "host", "sleep", "thread", "launch", "sync", "early_sync", "read_back", "pageable_copy",
            "allocate", "free", "pin", "load", "instantiate", "held",
        )  # fmt: skip
        self.name = "warm"
        for kind in kinds:
            with marked("warm-up"):
                getattr(self, kind)()
        cuda.synchronize()
        kind = ""
        for number in range(elements):
            # What is left of a wait is charged to what comes next, until the host waits again.
            after = ("sync", "read_back") if kind == "early_sync" else kinds
            kind = self.random.choice(after)
            self.name = f"e{number:03d}"
            with marked(f"{self.name} {kind}"):
                getattr(self, kind)()
        cuda.synchronize()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--elements", type=int, default=120)
    arguments = parser.parse_args()
    Program(arguments.seed).run(arguments.elements)
