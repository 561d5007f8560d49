"""Judgement budgets, made by hand."""

from typing import Any

from nsysflow.compare.budgets import budget
from nsysflow.compare.judging import Culprit, Judgement, Measured, Verdict

LINE = Culprit(source="train.py:42 in step", what="waiting in a sync, train.py:42 in step: 9 us")


def measured(text: str, verdict: Verdict, value: float, most: float, **other: Any) -> Judgement:
    """A figure in ns, or as `other` says."""
    about: dict[str, Any] = {
        "unit": "ns",
        "low": value,
        "high": value,
        "factor": None,
        "counted": "step",
        "needed": None,
        **other,
    }
    culprits = (LINE,) if verdict == "crossed" else ()
    return Judgement(
        budget=budget(text),
        verdict=verdict,
        measured=Measured(value=value, most=most, **about),
        culprits=culprits,
    )


CROSSED = measured("step_ms<=5", "crossed", 5.6e6, 5e6, low=5.5e6, high=5.7e6)
NOISY = measured("idle_pct<5", "too noisy", 4.9, 5, unit="pct", low=None, high=None, needed=120)
WITHIN = measured("kernel:gemm.count<=8", "within", 8, 8, unit="count")
FOUND = Judgement(
    budget=budget("finding:sync-in-loop=none"), verdict="crossed", culprits=(LINE,), found_in=1
)
ALL = [CROSSED, FOUND, NOISY, WITHIN]
