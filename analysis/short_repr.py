"""How traces and analyses show themselves in a console or a notebook: facts, never frames."""

from collections import Counter
from collections.abc import Sequence
from html import escape

import polars as pl


def as_text(kind: str, name: str, facts: Sequence[str]) -> str:
    """`<Trace of train.sqlite: NVIDIA H200, 315 GPU operations>`."""
    return f"<{kind} of {name}: {', '.join(facts)}>"


def as_html(kind: str, name: str, facts: Sequence[str]) -> str:
    """The same for notebooks, a fact a line."""
    return "<br>".join([f"<b>{kind} of {escape(name)}</b>", *map(escape, facts)])


def gpu_names(names: pl.Series) -> str:
    """`2 x NVIDIA H200`, or the name alone; empty where none is known."""
    counts = Counter(names.drop_nulls())
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())


def facts_of(accounting: pl.DataFrame, steps: pl.DataFrame) -> list[str]:
    """GPUs, window, busy and idle time, and the number of steps.

    Args:
        accounting: `ACCOUNTING`.
        steps: `STEPS`.
    """
    window_ns, idle_ns = accounting.select(pl.col("window_ns", "idle_ns").sum()).row(0)
    if not window_ns:
        return ["no GPU work"]
    gpus = gpu_names(accounting["name"]) or f"{accounting.height} GPUs"
    together = " together" if accounting.height > 1 else ""
    idle_pct = 100 * idle_ns / window_ns
    count = steps["step"].n_unique()  # each process numbers its own from 0
    return [
        gpus,
        f"window {window_ns / 1e6:,.1f} ms{together}",
        f"{100 - idle_pct:.0f} % busy",
        f"{idle_pct:.0f} % idle",
        f"{count:,} step{'' if count == 1 else 's'}",
    ]
