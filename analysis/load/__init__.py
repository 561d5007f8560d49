"""Reports of every kind as canonical frames: `load(path)`, and the name of a report."""

from nsysflow.analysis.load.dispatch import load, report_name

__all__ = ["load", "report_name"]
