"""The tables as people read them: declared as data, or made by `block` of the module of its name.

Only a block that computes what it shows has a module of its own.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module

from nsysflow.report.blocks.declared import DECLARED
from nsysflow.report.fields import Limits, declared_block
from nsysflow.report.layout import Block
from nsysflow.report.results import RunTables


def block_of(table: str) -> Callable[[RunTables, Limits], Block]:
    """The function that makes the block of a table."""
    if table in DECLARED:
        return partial(declared_block, DECLARED[table])
    block: Callable[[RunTables, Limits], Block] = import_module(f"{__name__}.{table}").block
    return block
