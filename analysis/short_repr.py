"""How traces and analyses show themselves in a console or a notebook."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import polars as pl

from nsysflow.base.errors import NsysflowError

_Form = Callable[[str, str, Sequence[str]], str]
"""Makes a text of a kind, a name and facts."""


class Displayable(ABC):
    """Shows itself in a console by its facts, and in a notebook by a page; neither ever fails.

    Attributes:
        page: makes the HTML for notebooks; None for the facts. Pages lie above the analysis, which
            cannot import them: `nsysflow.runs.library` gives one to what it returns.
    """

    page: Callable[[Any], str] | None = None

    @abstractmethod
    def _name(self) -> str:
        """The names of the reports that it is of."""

    @abstractmethod
    def _facts(self) -> list[str]:
        """What matters most of it, a few words each: GPUs, times, steps."""

    def __repr__(self) -> str:
        return self._shown(as_text)

    def _repr_html_(self) -> str:
        return self._shown(as_html, self.page)

    def _shown(self, form: _Form, page: Callable[[Any], str] | None = None) -> str:
        """The page; without one, the facts. An error becomes the text: debuggers and notebooks call
        this, and must not stop."""
        kind = type(self).__name__
        try:
            return form(kind, self._name(), self._facts()) if page is None else page(self)
        except NsysflowError as error:
            return form(kind, self._name(), [error.seen])
        except Exception as error:
            return form(kind, "?", [f"{type(error).__name__}: {error}"])


def as_text(kind: str, name: str, facts: Sequence[str]) -> str:
    """`<Trace of train.sqlite: NVIDIA H200, 315 GPU operations>`."""
    return f"<{kind} of {name}: {', '.join(facts)}>"


def as_html(kind: str, name: str, facts: Sequence[str]) -> str:
    """The same for notebooks, a fact a line."""
    return "<br>".join([f"<b>{kind} of {escape(name)}</b>", *map(escape, facts)])


def gpu_names(names: pl.Series) -> str:
    """`2 x NVIDIA H200`, or the name alone; empty where none is known."""
    counts = Counter(names.drop_nulls())
    return ", ".join(f"{count:,} x {name}" if count > 1 else name for name, count in counts.items())


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
