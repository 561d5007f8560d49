"""Phases of `trainstep` timed twice in one run: by CUDA events, and from the report of that run.

    nsysflow profile --capture 5:5:20 -o RUN -- python benchmarks/phase_times.py run fused 8192
    python benchmarks/phase_times.py compare RUN

The first command runs a variant with a minibatch of that many segments. The second prints both
times of each phase and their difference. Before each step the GPU is kept busy for longer than the
host takes to launch the step: with an empty queue an event is reached as soon as it is recorded,
and a pair of events would time the host. The time of a pair around nothing is subtracted from the
others.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
import torch

import nsysflow
from nsysflow import catalog, region, steps
from nsysflow.kernels.timer import CUDATimerCollection
from nsysflow.runs.manifest import LOG
from nsysflow.runtime.protocol import Window
from nsysflow.workloads.common.measurement import Phase, WorkloadRegion, captured, parts_of
from nsysflow.workloads.common.run import options_of
from nsysflow.workloads.common.training import Config
from nsysflow.workloads.policy.variants import start_of, training_phases, variant_of

WINDOW: Final = Window(wait=5, warmup=5, active=20)
BUSY_CYCLES: Final = 10_000_000
"""About 5 ms at 1.98 GHz; under nsys the host launches a step in 1 to 2 ms."""
EMPTY: Final = "empty"
PREFIX: Final = "events, mean ns: "
"""How the line with the times of the events begins."""


@click.group()
def main() -> None:
    """Time the phases of trainstep by events and by the report, and compare them."""


@main.command()
@click.argument("variant", type=click.Choice(["fused", "graph"]))
@click.argument("minibatch", type=int)
def run(variant: str, minibatch: int) -> None:
    """Run the steps and print the times by events of the captured ones."""
    workload = catalog.find("trainstep")
    options = options_of(workload, "cuda", {"minibatch": minibatch, "segments": 2 * minibatch})
    config: Config[Any] = Config(
        workload="trainstep",
        variant=variant,
        on="cuda",
        precision="bf16",
        window=WINDOW,
        options=options,
    )
    torch.manual_seed(config.seed)
    step = variant_of(variant, start_of(config))
    parts = [part for part in parts_of(training_phases(step)) if not part.empty]
    pieces: dict[str, Callable[[], None]] = {part.name: part.work for part in parts}
    if variant == "graph":
        pieces = {WorkloadRegion.REPLAY: captured(lambda: _do(parts))}
    for work in pieces.values():
        work()
    timers = CUDATimerCollection([*pieces, EMPTY])
    first = WINDOW.wait + WINDOW.warmup
    for index in steps(range(first + WINDOW.active)):
        torch.cuda._sleep(BUSY_CYCLES)  # type: ignore[no-untyped-call]
        timed = timers if index >= first else CUDATimerCollection([*pieces, EMPTY], enabled=False)
        for name, work in pieces.items():
            with region(name), timed.region(name):
                work()
        with timed.region(EMPTY):
            pass
    means_ns = {timing.name: (timing.total_ns or 0) / WINDOW.active for timing in timers.read()}
    click.echo(PREFIX + json.dumps(means_ns))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
def compare(folder: Path) -> None:
    """Print both times of each phase of a run."""
    lines = [line for line in (folder / LOG).read_text().splitlines() if line.startswith(PREFIX)]
    pairs_ns: dict[str, float] = json.loads(lines[-1].removeprefix(PREFIX))
    empty_ns = pairs_ns.pop(EMPTY)
    analysis = nsysflow.analyze(nsysflow.load(folder / "report.sqlite"))
    spans_ns = {
        path.rpartition("/")[2]: span_ns / instances
        for path, span_ns, instances in analysis.phases.select(
            "path", "span_ns", "instances"
        ).iter_rows()
    }
    click.echo(
        f"{'us':10} {'events':>9} {'analysis':>9} {'apart':>8}"
        f"   (empty pair of events: {empty_ns / 1e3:.2f})"
    )
    for name, pair_ns in pairs_ns.items():
        events_ns, report_ns = pair_ns - empty_ns, spans_ns[name]
        apart_pct = 100 * (events_ns / report_ns - 1)
        click.echo(f"{name:10} {events_ns / 1e3:9.2f} {report_ns / 1e3:9.2f} {apart_pct:+7.2f} %")


def _do(parts: Sequence[Phase]) -> None:
    for part in parts:
        part.work()


if __name__ == "__main__":
    main()
