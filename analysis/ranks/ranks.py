"""The ranks of a run, merged from the digests of its reports: a frame for each table of the run."""

from collections.abc import Sequence
from typing import Literal, Self

import polars as pl

from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.ranks.arrivals import rank_tables
from nsysflow.analysis.ranks.digest import Digest
from nsysflow.analysis.tables.schema import (
    BANDWIDTH,
    RANK_GROUPS,
    RANK_OUTLIERS,
    RANK_STEPS,
    SCHEMAS,
)


class Ranks:
    """The tables of a run, each computed when it is first read.

    Attributes:
        digests: of the reports, in the order that numbers the ranks.
    """

    def __init__(self, digests: Sequence[Digest], part: Literal["begun", "judged"]) -> None:
        self.digests = tuple(digests)
        self._part = part

    @classmethod
    def of(cls, digests: Sequence[Digest]) -> Self:
        """What was selected of a run."""
        return cls(digests, "begun")

    @computed_once
    def judged(self) -> "Ranks":
        """What is judged of the run, matched as in the whole reports."""
        return Ranks(self.digests, "judged")

    def table(self, name: str) -> pl.DataFrame:
        """The table of the run of that name."""
        frame: pl.DataFrame = getattr(self, name)
        return frame.match_to_schema(SCHEMAS[name])

    @computed_once
    def _matched(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        whole = [
            digest.collectives.with_columns(pl.lit(digest.report).alias("report"))
            for digest in self.digests
        ]
        return rank_tables(whole, [each.filter(self._part) for each in whole])

    @computed_once
    def met(self) -> bool:
        """Whether any ranks have collectives together, in the whole reports."""
        return not self._matched[0].is_empty()

    @computed_once
    def arrivals(self) -> pl.DataFrame:
        """ARRIVALS."""
        return self._matched[0]

    @computed_once
    def ranks(self) -> pl.DataFrame:
        """RANKS."""
        return self._matched[1]

    @computed_once
    def rank_groups(self) -> pl.DataFrame:
        """RANK_GROUPS."""
        return RANK_GROUPS.to_frame()

    @computed_once
    def rank_steps(self) -> pl.DataFrame:
        """RANK_STEPS."""
        return RANK_STEPS.to_frame()

    @computed_once
    def rank_outliers(self) -> pl.DataFrame:
        """RANK_OUTLIERS."""
        return RANK_OUTLIERS.to_frame()

    @computed_once
    def bandwidth(self) -> pl.DataFrame:
        """BANDWIDTH."""
        return BANDWIDTH.to_frame()

    @computed_once
    def typical(self) -> int | None:
        """The rank whose steps are closest to those of all; None without ranks."""
        return None if self.ranks.is_empty() else int(self.ranks["rank"][0])

    @computed_once
    def outlying(self) -> tuple[int, ...]:
        """The ranks that are far from the others, the furthest first."""
        return tuple(self.rank_outliers["rank"].unique(maintain_order=True))
