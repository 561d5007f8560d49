"""What marking costs: a range, a decorated call and a step, in ns, as medians.

    python benchmarks/region.py
    nsys profile --trace=nvtx --sample=none python benchmarks/region.py

The first says what a program pays that nobody profiles, the second what it pays under nsys. Of
each, the cost of the same loop with nothing in it is taken off.
"""

import time
from collections.abc import Callable
from statistics import median

import click

from nsysflow import region, steps
from nsysflow.recorders import COLLECTOR_HERE
from nsysflow.regions import Region

TIMES = 20_000
ROUNDS = 15


@region(Region.LOSS)
def decorated() -> None:
    """Stands for a function with a range around it."""


def plain() -> None:
    """The same without."""


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
    """Median time of one pass through the loop."""
    taken_ns = []
    for _ in range(ROUNDS):
        begin_ns = time.perf_counter_ns()
        loop()
        taken_ns.append(time.perf_counter_ns() - begin_ns)
    return median(taken_ns) / TIMES


def main() -> None:
    click.echo(f"recorded by: {COLLECTOR_HERE or 'nobody'}; ns each, medians of {ROUNDS}")
    for name, loop, without in (
        ("with region(name)", ranges, nothing),
        ("with region(name, payload)", ranges_with_payload, nothing),
        ("@region(name)", decorated_calls, plain_calls),
        ("a step of steps(…)", marked_steps, nothing),
    ):
        click.echo(f"  {name:<28}{each_ns(loop) - each_ns(without):8.0f}")


if __name__ == "__main__":
    main()
