"""What recording cost earlier programs on this machine, kept in the user's cache folder."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from nsysflow.base.atomic import staged_file
from nsysflow.nsys.installations import user_cache
from nsysflow.runs.cache import OFF, VARIABLE
from nsysflow.runs.manifest import Manifest

FILE: Final = "recording-costs.json"

MOST_KEPT: Final = 20
"""Of so many programs, the last ones."""

SCATTER_PCT: Final = 5
"""The same recording took 27 to 36 % of the host's time when it was made again (docs/facts.md,
"Savings and plain runs"): no machine's cost is known more exactly."""

LEAST_KEPT: Final = 3
"""Programs differ by more than recordings of one do: fewer say nothing about another one. One alone
made the plain step of 63 ms one of 104 ms (docs/facts.md)."""

MOST_PCT: Final = 90
"""A host keeps some of its time."""

Costs = Mapping[str, tuple[int, ...]]
"""Per kind of recording (`kind_of`), the share of the host's time that it took, in percent."""


def costs_file() -> Path:
    """Where they are kept; it need not exist."""
    return user_cache() / FILE


def kind_of(manifest: Manifest) -> str:
    """What the cost of a recording depends on: GPU, driver, nsys, system, and what is recorded."""
    versions = manifest.versions
    return ", ".join(
        [
            *manifest.gpus[:1],
            manifest.collector,
            *(f"{name} {versions[name]}" for name in ("driver", "nsys", "os") if name in versions),
            f"trace {','.join(manifest.trace)}",
            f"backtraces {manifest.backtraces}",
            f"samples {manifest.sample_python}",
            "annotated" if manifest.annotation is not None else "not annotated",
        ]
    )


def kept_costs() -> Costs:
    """All that is known of this machine; nothing where the file is missing or damaged."""
    if os.environ.get(VARIABLE) == OFF:
        return {}
    try:
        return msgspec.json.decode(costs_file().read_bytes(), type=dict[str, tuple[int, ...]])
    except (OSError, msgspec.DecodeError):
        return {}


def usual_pct(manifest: Manifest) -> tuple[int, int] | None:
    """What share of the host's time a recording like this one took on this machine, at least and at
    most; None where none is known."""
    return range_of(kept_costs().get(kind_of(manifest), ()))


def range_of(shares: tuple[int, ...]) -> tuple[int, int] | None:
    """The least and the most that recording takes, by what it took; None where too few say so."""
    if len(shares) < LEAST_KEPT:
        return None
    return max(0, min(shares) - SCATTER_PCT), min(MOST_PCT, max(shares) + SCATTER_PCT)


def keep_cost(manifest: Manifest, pct: int) -> None:
    """Keep what a recording took. Where that fails, nothing is kept."""
    if os.environ.get(VARIABLE) == OFF:
        return
    kind, kept = kind_of(manifest), kept_costs()
    every = {**kept, kind: (*kept.get(kind, ()), pct)[-MOST_KEPT:]}
    with suppress(OSError):
        costs_file().parent.mkdir(parents=True, exist_ok=True)
        with staged_file(costs_file()) as scratch:
            scratch.write_text(json.dumps(every, indent=2) + "\n", encoding="utf-8")


def forget_costs() -> None:
    """Forget all of them.

    Raises:
        OSError: the file cannot be removed.
    """
    costs_file().unlink(missing_ok=True)
