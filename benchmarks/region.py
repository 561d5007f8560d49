"""The cost of marking a range, a decorated call and a step: medians in ns.

    python benchmarks/region.py
    nsys profile --trace=nvtx --sample=none python benchmarks/region.py

The first command measures the cost without a profiler, the second under nsys. The cost of the empty
loop is subtracted.
"""

import time
from collections.abc import Callable
from statistics import median

import click

from nsysflow import region, steps
from nsysflow.runtime.protocol import COLLECTOR_HERE
from nsysflow.runtime.regions import Region

TIMES = 20_000
ROUNDS = 15


@region(Region.LOSS)
def decorated() -> None:
    """Do nothing, in a range."""


def plain() -> None:
    """Do nothing, without a range."""


def ranges() -> None:
    for _ in range(TIMES):
        with region(Region.FORWARD):
            pass


def ranges_with_payload() -> None:
    for index in range(TIMES):
        with region(Region.STEP, index):
            pass


def nothing() -> None:
    for _ in range(TIMES):
        pass


def decorated_calls() -> None:
    for _ in range(TIMES):
        decorated()


def plain_calls() -> None:
    for _ in range(TIMES):
        plain()


def marked_steps() -> None:
    for _ in steps(range(TIMES)):
        pass


def each_ns(loop: Callable[[], None]) -> float:
    """The median time of one iteration of the loop."""
    taken_ns = []
    for _ in range(ROUNDS):
        begin_ns = time.perf_counter_ns()
        loop()
        taken_ns.append(time.perf_counter_ns() - begin_ns)
    return median(taken_ns) / TIMES


def main() -> None:
    click.echo(f"recorded by: {COLLECTOR_HERE or 'nothing'}; ns each, medians of {ROUNDS}")
    for name, loop, without in (
        ("with region(name)", ranges, nothing),
        ("with region(name, payload)", ranges_with_payload, nothing),
        ("@region(name)", decorated_calls, plain_calls),
        ("one step of steps(…)", marked_steps, nothing),
    ):
        click.echo(f"  {name:<28}{each_ns(loop) - each_ns(without):8.0f}")


if __name__ == "__main__":
    main()
