"""The tables as people read them: declared as data, or made by a function that computes what it
shows."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from nsysflow.report.blocks.accounting import (
    accounting_block,
    mfu_block,
    phases_block,
    run_block,
    syncs_block,
)
from nsysflow.report.blocks.declared import DECLARED
from nsysflow.report.blocks.ranks import rank_groups_block, rank_steps_block, ranks_block
from nsysflow.report.fields import Limits, declared_block
from nsysflow.report.layout import Block
from nsysflow.report.results import RunTables

COMPUTED: Final[Mapping[str, Callable[[RunTables, Limits], Block]]] = {
    "accounting": accounting_block,
    "mfu": mfu_block,
    "phases": phases_block,
    "rank_groups": rank_groups_block,
    "rank_steps": rank_steps_block,
    "ranks": ranks_block,
    "run": run_block,
    "syncs": syncs_block,
}
"""The blocks that are computed, by the name of their table."""


def block_of(table: str) -> Callable[[RunTables, Limits], Block]:
    """The function that makes the block of a table."""
    if table in DECLARED:
        return partial(declared_block, DECLARED[table])
    return COMPUTED[table]
