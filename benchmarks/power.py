"""How small a change `nsysflow diff` can see: a part of docs/facts.md.

    python -m benchmarks.power CAPTURES/*.sqlite.xz > benchmarks/power.md

Takes several captures of each program, NAME-1.sqlite.xz, NAME-2.sqlite.xz and so on. Their steps
are drawn again, slower by a known amount, and compared. `python -m benchmarks.accuracy` adds the
result to the page.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations, product
from math import exp, log
from pathlib import Path
from random import Random
from statistics import median, stdev
from typing import Final

import polars as pl

import nsysflow
from nsysflow.compare.change import Change, change_of

REPEATS: Final = 4_000
SEED: Final = 16
BLOCK: Final = 10
"""Steps are drawn in stretches of this length, so that they stay autocorrelated."""
SLOWDOWNS_PCT: Final = (0, 1, 2, 5, 10)
STEPS: Final = (5, 10, 20, 40, 100)
RUNS: Final = (3, 5)
STEPS_OF_A_RUN: Final = 40
SIMULATED: Final = ("trainstep-fused", "dataload-sync", "launch_bound-eager", "gpt-base")
TOGETHER: Final = 2
"""So many captures of a program are compared with its others."""
SPLIT: Final = (*SIMULATED, "gpt-noitem", "launch_bound-graph")
PAIRS: Final = (
    ("gpt-base", "gpt-noitem"),
    ("gpt-base", "gpt-fused"),
    ("trainstep-fused", "trainstep-graph"),
    ("dataload-sync", "dataload-async"),
    ("launch_bound-eager", "launch_bound-graph"),
)

Run = Sequence[int]
Captures = Mapping[str, Sequence[Run]]
Draw = Callable[[], tuple[Sequence[Run], Sequence[Run]]]
"""Two sides of one program, without a change."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What simulated comparisons said: how often, by slowdown, `worse`; false alarms; too few."""

    seen: Sequence[int]
    alarms: int
    too_few: int


def captures_of(paths: Sequence[Path]) -> Captures:
    """The steps of each capture by the program's name, after start-up, one-offs among them."""
    found: dict[str, list[Run]] = {}
    for path in sorted(paths):
        steps = nsysflow.analyze(path).steps.filter(pl.col("kind").is_in(["steady", "one-off"]))
        name = path.name.partition(".")[0].rpartition("-")[0]
        found.setdefault(name, []).append(steps["duration_ns"].to_list())
    return found


def drawn(run: Run, count: int, random: Random) -> list[int]:
    """Steps like those of a run: stretches of it, in their order (moving-block bootstrap)."""
    length = min(BLOCK, count)
    steps: list[int] = []
    while len(steps) < count:
        start = random.randrange(len(run) - length + 1)
        steps += run[start : start + length]
    return steps[:count]


def slower(runs: Sequence[Run], percent: float) -> list[list[int]]:
    """The same steps, each slower by so much."""
    return [[round(step * (1 + percent / 100)) for step in run] for run in runs]


def steps_of(captures: Sequence[Run], count: int, random: Random) -> Draw:
    """Two sides of so many steps of the same capture."""

    def draw() -> tuple[Sequence[Run], Sequence[Run]]:
        run = random.choice(captures)
        return [drawn(run, count, random)], [drawn(run, count, random)]

    return draw


def runs_of(captures: Sequence[Run], count: int, random: Random) -> Draw:
    """Two sides of so many runs, whose medians differ as much as those of the captures."""
    medians = [median(run) for run in captures]

    def run() -> Run:
        like = random.choice(captures)
        scale = median(medians) / median(like) * exp(random.gauss(0, noise_of(captures)))
        return [round(step * scale) for step in drawn(like, STEPS_OF_A_RUN, random)]

    def draw() -> tuple[Sequence[Run], Sequence[Run]]:
        return [run() for _ in range(count)], [run() for _ in range(count)]

    return draw


def noise_of(captures: Sequence[Run]) -> float:
    """The standard deviation of the logs of the captures' medians."""
    return stdev(log(median(run)) for run in captures)


def simulated(draw: Draw) -> Simulated:
    """Compare two sides many times, the second slower by each of the slowdowns."""
    seen, too_few, alarms = Counter[int](), 0, 0
    for _ in range(REPEATS):
        base, new = draw()
        said = {pct: change_of(base, slower(new, pct)).verdict for pct in SLOWDOWNS_PCT}
        seen.update(pct for pct, verdict in said.items() if verdict == "worse")
        alarms += said[0] in ("better", "worse")
        too_few += said[0] == "not enough steps"
    return Simulated(seen=[seen[pct] for pct in SLOWDOWNS_PCT], alarms=alarms, too_few=too_few)


INTRODUCTION: Final = """\
## How small a change diff can see

Made on {date} by `python -m benchmarks.power` from {captures} captures of each program on an H200.
Two sides of one program are drawn {repeats} times, and one of them is made slower. The shares are
of those that said *worse*; at 0 % of those that said *worse* or *better*: false alarms (their error
is 0.3 points). *Too few* said *not enough steps*. 1 % is the floor: a change of just as much
reaches it in half of the cases, however well it is measured.

### One capture a side

Stretches of {block} steps of one capture, put together again (moving-block bootstrap).

| program | steps a side | {slowdowns} | too few |
| --- | ---: | {rules} | ---: |"""

RUNS_INTRODUCTION: Final = """
### Several captures a side

Each has {steps} steps. Their medians differ as those of the captures do: the noise.

| program | captures a side | {slowdowns} | noise |
| --- | ---: | {rules} | ---: |"""

SPLITS_INTRODUCTION: Final = """
### Captures of one program against each other

Two captures against the others, in all ways; they are numbered as their files. Each alarm sets the
last two apart from the first three: captures close in time are alike. So take those of before and
after in turn.

| program | splits | no significant change | other verdicts |
| --- | ---: | ---: | --- |"""

PAIRS_INTRODUCTION: Final = """
### Real changes

By runs, and by the steps of each capture before against each after.

| before → after | captures | by runs | shift | interval | by steps |
| --- | ---: | --- | ---: | ---: | --- |"""


def page(captures: Captures) -> Iterator[str]:
    """The lines of this part."""
    random = Random(SEED)
    slowdowns = " | ".join(f"{pct} %" for pct in SLOWDOWNS_PCT)
    rules = " | ".join(["---:"] * len(SLOWDOWNS_PCT))
    yield INTRODUCTION.format(
        date=datetime.now(UTC).date(),
        captures=len(captures[SIMULATED[0]]),
        repeats=REPEATS,
        block=BLOCK,
        slowdowns=slowdowns,
        rules=rules,
    )
    for name, count in product(SIMULATED, STEPS):
        found = simulated(steps_of(captures[name], count, random))
        yield _row(f"`{name}`", f"{count}", *_shares(found), _share(found.too_few))
    yield RUNS_INTRODUCTION.format(steps=STEPS_OF_A_RUN, slowdowns=slowdowns, rules=rules)
    for name, count in product(SIMULATED, RUNS):
        found = simulated(runs_of(captures[name], count, random))
        noise_pct = 100 * (exp(noise_of(captures[name])) - 1)
        yield _row(f"`{name}`", f"{count}", *_shares(found), f"{noise_pct:.1f} %")
    yield SPLITS_INTRODUCTION
    yield from _splits(captures)
    yield PAIRS_INTRODUCTION
    yield from (_pair(captures, *pair) for pair in PAIRS)


def _shares(found: Simulated) -> list[str]:
    """False alarms, then what was seen of each slowdown."""
    return [f"{100 * found.alarms / REPEATS:.1f} %", *map(_share, found.seen[1:])]


def _share(times: int) -> str:
    return f"{100 * times / REPEATS:.0f} %"


def _splits(captures: Captures) -> Iterator[str]:
    splits = same = 0
    for name in SPLIT:
        runs = captures[name]
        said = {picked: _split(runs, picked) for picked in combinations(range(len(runs)), TOGETHER)}
        others = {
            picked: change
            for picked, change in said.items()
            if change.verdict != "no significant change"
        }
        splits, same = splits + len(said), same + len(said) - len(others)
        words = ", ".join(_verdict(picked, change) for picked, change in others.items())
        yield _row(f"`{name}`", f"{len(said)}", f"{len(said) - len(others)}", words)
    yield _row("all", f"{splits}", f"{same} ({100 * same / splits:.0f} %)", "")


def _verdict(picked: Sequence[int], change: Change) -> str:
    """What was said from these captures to the others."""
    numbers = " and ".join(f"{at + 1}" for at in picked)
    return f"{numbers} → others: {change.verdict} {change.shift_pct:+.0f} %"


def _split(runs: Sequence[Run], picked: Sequence[int]) -> Change:
    """These captures against the others."""
    others = [run for at, run in enumerate(runs) if at not in picked]
    return change_of([runs[at] for at in picked], others)


def _pair(captures: Captures, before: str, after: str) -> str:
    base, new = captures[before], captures[after]
    change = change_of(base, new)
    by_steps = Counter(change_of([one], [other]).verdict for one, other in product(base, new))
    return _row(
        f"`{before}` → `{after}`",
        f"{len(base)}, {len(new)}",
        change.verdict,
        f"{change.shift_pct:+.1f} %",
        f"{change.low_pct:+.1f} to {change.high_pct:+.1f} %",
        ", ".join(f"{verdict} {times}" for verdict, times in by_steps.most_common()),
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print this part of the page."""
    for line in page(captures_of([Path(path) for path in sys.argv[1:]])):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
