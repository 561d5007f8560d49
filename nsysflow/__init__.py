"""nsysflow: where a GPU waits, why, and what to change.

    analysis = nsysflow.analyze("report.sqlite")
    analysis.gap_summary                     # a polars frame, like every table of the analysis
    run = nsysflow.analyze(["rank0.sqlite", "rank1.sqlite"])
    run.ranks

Names are imported on first use: polars would triple the time of `nsysflow -h`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsysflow.analysis.analyze import Analysis
    from nsysflow.analysis.options import Options, StepPart
    from nsysflow.analysis.trace import Trace
    from nsysflow.report.results import Results
    from nsysflow.runs.library import analyze, open
    from nsysflow.runs.questions import check, diff, explain, whatif
    from nsysflow.runs.sources import load
    from nsysflow.runtime.regions import region
    from nsysflow.runtime.steps import steps

__version__ = "0.1.0"
__all__ = [
    "Analysis",
    "Options",
    "Results",
    "StepPart",
    "Trace",
    "__version__",
    "analyze",
    "check",
    "diff",
    "explain",
    "load",
    "open",
    "region",
    "steps",
    "whatif",
]

_HOMES = {
    "Analysis": "nsysflow.analysis.analyze",
    "Options": "nsysflow.analysis.options",
    "Results": "nsysflow.report.results",
    "StepPart": "nsysflow.analysis.options",
    "Trace": "nsysflow.analysis.trace",
    "analyze": "nsysflow.runs.library",
    "check": "nsysflow.runs.questions",
    "diff": "nsysflow.runs.questions",
    "explain": "nsysflow.runs.questions",
    "load": "nsysflow.runs.sources",
    "open": "nsysflow.runs.library",
    "region": "nsysflow.runtime.regions",
    "steps": "nsysflow.runtime.steps",
    "whatif": "nsysflow.runs.questions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'nsysflow' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
