"""The tables as people read them, one module per table: `block` of the module of its name."""

from collections.abc import Callable
from importlib import import_module

from nsysflow.report.fields import Limits
from nsysflow.report.layout import Block
from nsysflow.report.results import Results


def block_of(table: str) -> Callable[[Results, Limits], Block]:
    """The function that makes the block of a table."""
    block: Callable[[Results, Limits], Block] = import_module(f"{__name__}.{table}").block
    return block
