"""What each option of `nsysflow profile` costs the program that is recorded.

    python -m benchmarks.option_costs --rounds 5

Trains a small network for 3 s with each option, in another order each round: what one recording
leaves behind must not always slow the same next one. The program times its own steps and prints
their median. So this is what the recorded program feels: starting nsys and writing the report do
not count.
"""

import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

BARE: Final = ("--backtrace", "none", "--sample-python", "0", "--no-readings")
"""Kernels, calls and ranges alone."""

OPTIONS: Final = {
    "bare": BARE,
    "lines of waits": ("--backtrace", "waits", *BARE[2:]),
    "lines of all calls": ("--backtrace", "all", *BARE[2:]),
    "samples of Python": (*BARE[:2], "--no-readings"),
    "readings": BARE[:4],
    "memory": (*BARE, "--memory"),
    "Python's lock": (*BARE, "--gil"),
    "default": (),
}

PROGRAM: Final = """
import statistics, time, torch
from torch import nn
block = lambda: nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU())
net = nn.Sequential(*(block() for _ in range(16))).cuda()
optimizer = torch.optim.AdamW(net.parameters())
batch = torch.randn(256, 512, device="cuda")
took = []
begun = time.perf_counter()
while time.perf_counter() - begun < 3:
    start = time.perf_counter()
    loss = net(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
    took.append(time.perf_counter() - start)
print("MEDIAN_MS", 1e3 * statistics.median(took[len(took) // 3 :]), flush=True)
"""


def step_ms(program: Path, options: tuple[str, ...], out: Path) -> float:
    """The median step of the program while it is recorded, ms."""
    command = (
        sys.executable,
        "-m",
        "nsysflow",
        "profile",
        "--no-analyze",
        "--record-all",
        "--force",
    )
    asked = [*command, *options, "-o", str(out), "--", sys.executable, str(program)]
    said = subprocess.run(asked, capture_output=True, text=True, check=False)
    for line in (said.stdout + said.stderr).splitlines():
        if "MEDIAN_MS" in line:
            return float(line.split()[-1])
    raise click.ClickException(f"{' '.join(asked)} printed no step:\n{said.stderr[-2000:]}")


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How often each option is tried.")
@click.option("--seconds", default=500.0, show_default=True, help="Begin no round after these.")
def main(rounds: int, seconds: float) -> None:
    """Time a program under each option in turn."""
    begun = time.monotonic()
    took: dict[str, list[float]] = defaultdict(list)
    with TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM, encoding="utf-8")
        for number in range(rounds):
            if time.monotonic() - begun > seconds:
                break
            for name in random.Random(number).sample(list(OPTIONS), len(OPTIONS)):
                took[name].append(step_ms(program, OPTIONS[name], Path(folder, "run")))
            click.echo(
                f"round {number + 1}: " + ", ".join(f"{n} {took[n][-1]:.2f}" for n in OPTIONS)
            )
    for name, steps in took.items():
        longer = [100 * (step / bare - 1) for step, bare in zip(steps, took["bare"], strict=True)]
        quartiles = statistics.quantiles(longer, n=4) if len(longer) > 1 else longer * 3
        low, middle, high = quartiles
        click.echo(
            f"{name:20} {statistics.median(steps):6.2f} ms a step, {middle:+5.1f} %"
            f" (quartiles {low:+.1f} to {high:+.1f} %)"
        )


if __name__ == "__main__":
    main()
