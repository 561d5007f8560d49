"""One name for ranges that differ only in an id or in the number of a step (spec §7.6, §7.7)."""

from functools import lru_cache
from typing import Final

import polars as pl

from nsysflow.analysis.phases.forms import SERIAL_NUMBERS, plain_names
from nsysflow.analysis.phases.numbers import merged

OUTSIDE: Final = "(outside ranges)"
"""The name of the place where no range is open."""

NOT_RECORDED: Final = "(launch not recorded)"
"""The place of idle time before work whose launch is not in the report."""


def grouped(raw: pl.Series) -> pl.Series:
    """Raw names of ranges, normalised: equal operators and all steps get one name.

    Only distinct names are looked at; without serial numbers a report has few of them. A name of
    which nothing would be left stays as it is.
    """
    bare = raw.str.replace(SERIAL_NUMBERS, "")
    changed = _changed(tuple(bare.unique().sort()))
    return bare if changed.is_empty() else bare.replace(changed["bare"], changed["name"])


@lru_cache(maxsize=2)  # the ranks of a run have the same names, as a rule
def _changed(names: tuple[str, ...]) -> pl.DataFrame:
    """Distinct names that change: `bare`, and the `name` that each gets."""
    distinct = pl.Series("bare", names, dtype=pl.String)
    plain = plain_names(distinct)
    forms = plain.unique()
    name = plain.replace(forms, merged(forms)).alias("name")
    return pl.DataFrame([distinct, name]).filter(
        pl.col("name") != pl.col("bare"), pl.col("name") != ""
    )
