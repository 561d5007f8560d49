"""Places in words: a phase and a source line."""

from nsysflow.analysis.phases.names import OUTSIDE


def place(phase: str, source: str = "", *, before: bool = False) -> str:
    """` in step/metrics, train.py:42 in check`: follows on what happens.

    Args:
        phase: a path; empty outside all ranges.
        source: a source line; empty where none is known.
        before: whether the line is that of the launch after it.
    """
    where = f" in {phase}" if phase and phase != OUTSIDE else " outside any range"
    if not source:
        return where
    return f"{where}, {'before ' if before else ''}{source}"
