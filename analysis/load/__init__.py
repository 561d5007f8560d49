"""Reports of every kind as canonical frames: `load(path)`."""

from nsysflow.analysis.load.dispatch import load

__all__ = ["load"]
