"""Places in words: a phase and source lines."""

from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.base.names import SourceLine


def line(source: str, via: str = "") -> str:
    """`train.py:42 in check`, or `train.py:9 via transformers/trainer.py:2541 in _run_epoch`.

    Args:
        source: the program's line; empty where none is known.
        via: the framework's line, if `source` only calls that framework; else empty.
    """
    if not source or not via:
        return source or via
    return f"{without_function(source)} via {via}"


def without_function(source: str) -> str:
    """`train.py:42` of `train.py:42 in check`."""
    return source.rpartition(" in ")[0] or source


def place(phase: str, source: str = "", *, before: bool = False) -> str:
    """` in step/metrics, train.py:42 in check`: follows on what happens.

    Args:
        phase: a path; empty outside all ranges.
        source: a `line`; empty where none is known.
        before: whether the line is that of the launch after it.
    """
    where = f" in {phase}" if phase and phase != OUTSIDE else " outside any range"
    if not source:
        return where
    return f"{where}, {'before ' if before else ''}{source}"


def in_function(source: str) -> str:
    """`step (train.py)` of `train.py:42 in step`: the same after lines were inserted above."""
    found = SourceLine.of(source)
    return f"{found.function} ({found.file})" if found and found.function else source
