"""One name for ranges that differ only in a number, such as that of a step (spec §7.6, §7.7)."""

from typing import Final

import polars as pl

OUTSIDE: Final = "(outside ranges)"
"""The name of the place where no range is open."""

NOT_RECORDED: Final = "(launch not recorded)"
"""The place of idle time before work whose launch is not in the report."""

SERIAL_NUMBERS: Final = r"(?s), (?:seq|op_id|sizes|input_op_ids) =.*$"
"""What PyTorch's `emit_nvtx` adds to an operator's name, so that equal operators group."""

OPERATOR: Final = r"(?s), seq =|::.*, (?:op_id|sizes|input_op_ids) ="
"""Matches the raw name of an operator's range: one with autograd's sequence number, or with C++
namespaces and a number. `emit_nvtx` also adds an `op_id` to the program's own `record_function`."""

_TIMES: Final = (
    *("step", "timestep", "iter", "iteration", "epoch", "batch", "minibatch", "microbatch"),
    *("episode", "rollout", "update", "round", "cycle", "request", "frame", "token"),
)
"""Words whose number says when. After `layer`, `stage`, `rank` or `worker` it says where."""

_LEAST_NAMES: Final = 2
"""A number is removed only if other names differ in it: `batch 64` may be a size."""

_PROFILER_STEP: Final = "ProfilerStep"
"""PyTorch's own name of a step, `ProfilerStep#7`: its number is removed even alone."""


def _counted() -> str:
    """The pattern of a name that ends in a word of `_TIMES` and a number."""
    word = "|".join(_TIMES)
    inside = "|".join(word.capitalize() for word in _TIMES)
    said = r"(?:[ _-]+(?i:id|idx|index|no|nr|number)\.?|Id|Idx|Index|No|Nr|Number)?"
    number = r"[ _:#=(\[-]*[0-9]+(?:[./][0-9]+)*[\])]?\s*$"
    return rf"(?s)^((?:.*[^\p{{L}}])?(?i:{word})|.*\p{{Ll}}(?:{inside})){said}{number}"


_COUNTED: Final = _counted()


def uncounted(name: pl.Expr) -> pl.Expr:
    """A name without the number that counts steps; null if it has none."""
    return name.str.extract(_COUNTED, 1)


def grouped(names: pl.Series) -> pl.Series:
    """Raw names of ranges, normalised: equal operators and all steps get one name.

    Only distinct names are searched for numbers; a report has few of them.
    """
    plain = names.str.replace(SERIAL_NUMBERS, "")
    counted = plain.unique().to_frame("name").with_columns(uncounted(pl.col("name")).alias("stem"))
    enough = (pl.len().over("stem") >= _LEAST_NAMES) | (pl.col("stem") == _PROFILER_STEP)
    counted = counted.drop_nulls().filter(enough)
    if counted.is_empty():
        return plain
    return plain.replace(counted["name"], counted["stem"])
