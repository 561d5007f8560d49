"""What it costs a program that its GPU's clock, power, temperature and traffic are sampled.

    python -m benchmarks.clock_cost
    nsys profile --trace=cuda,nvtx --sample=none python -m benchmarks.clock_cost

Three programs run in turn with and without the sampler, in one process: one that the GPU limits,
one that launches limit, and one that Python limits, which feels most of a thread that takes the
GIL. It prints by how much longer steps take, with quartiles over the rounds, and what a reading of
all values takes. Without nsys there is nothing to write marks to, so only NVML is paid for.
"""

import os
import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from typing import Final

import click
import torch

from nsysflow.runtime.captures import mark_readings
from nsysflow.runtime.gpu_states import Nvml, Sampler
from nsysflow.runtime.protocol import READINGS as ASKED

READINGS: Final = 50
"""So many readings are timed."""

WAITS_S: Final = 0.5
"""The sampler has started NVML by then."""


def products() -> None:
    """Four products that take the GPU longer than the host."""
    for _ in range(4):
        torch.mm(_LARGE, _LARGE)
    torch.cuda.synchronize()


def launches() -> None:
    """500 kernels that take the GPU less time than their launches."""
    for _ in range(500):
        _SMALL.add_(1.0)
    torch.cuda.synchronize()


def python() -> None:
    """Much Python beside one kernel."""
    sum(number * number for number in range(50_000))
    _SMALL.add_(1.0)
    torch.cuda.synchronize()


PROGRAMS: Final[Mapping[str, Callable[[], None]]] = {
    "products": products,
    "launches": launches,
    "python": python,
}


def step_ns(step: Callable[[], None], seconds: float) -> float:
    """The mean time of steps over so many seconds."""
    count, begun_ns = 0, time.perf_counter_ns()
    while (lasted_ns := time.perf_counter_ns() - begun_ns) < seconds * 1e9:
        step()
        count += 1
    return lasted_ns / count


def costs(step: Callable[[], None], rounds: int, seconds: float) -> tuple[list[float], float]:
    """By how much longer steps take with the sampler, in percent per round; and the median of the
    plain ones, ns. Which comes first changes from round to round."""
    sampler = Sampler()
    sampler.prepare()
    time.sleep(WAITS_S)
    step_ns(step, seconds)
    longer, plain = [], []
    for number in range(rounds):
        took: dict[bool, float] = {}
        for sampled in (number % 2 == 0, number % 2 == 1):
            if sampled:
                sampler.begin(mark_readings)
            took[sampled] = step_ns(step, seconds)
            sampler.end(mark_readings)
        longer.append(100 * (took[True] / took[False] - 1))
        plain.append(took[False])
    return longer, median(plain)


def reading() -> str:
    """What a reading of the first GPU takes, and says."""
    nvml = Nvml.here()
    gpu = None if nvml is None else nvml.first_gpu()
    if nvml is None or gpu is None:
        raise click.UsageError("NVML does not answer here: nsysflow doctor")
    said = []
    for name, read in (("a reading", nvml.state), ("of traffic", nvml.counters)):
        lasted = []
        for _ in range(READINGS):
            begun_ns = time.perf_counter_ns()
            values = [*read(gpu)]
            lasted.append(time.perf_counter_ns() - begun_ns)
        said.append(f"{name} takes {median(lasted) / 1e3:.0f} us: {values}")
    return "\n".join(said)


@click.command()
@click.option("--rounds", default=20, show_default=True, help="Rounds of each program.")
@click.option("--seconds", default=2.0, show_default=True, help="How long each half of one lasts.")
def main(rounds: int, seconds: float) -> None:
    """Time programs with and without the sampler."""
    os.environ[ASKED] = "1"
    click.echo(reading())
    for name, step in PROGRAMS.items():
        longer, plain_ns = costs(step, rounds, seconds)
        low, middle, high = quantiles(longer, n=4)
        click.echo(
            f"{name:9} {plain_ns / 1e6:7.3f} ms a step, sampled {middle:+.2f} %"
            f" (quartiles {low:+.2f} to {high:+.2f} %)"
        )


if __name__ == "__main__":
    _LARGE = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    _SMALL = torch.zeros(1024, device="cuda")
    main()
