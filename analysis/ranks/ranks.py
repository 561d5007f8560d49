"""The ranks of a run, merged from the digests of its reports: a frame for each table of the run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import polars as pl

from nsysflow.analysis.frames.columns import whole_ns
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.ranks.arrivals import (
    RANKS,
    aligned,
    arrivals_table,
    clocks_of,
    ranks_table,
    unknown_clocks,
    with_costs,
)
from nsysflow.analysis.ranks.bandwidth import bandwidth_table
from nsysflow.analysis.ranks.digest import Digest
from nsysflow.analysis.ranks.groups import (
    RunSteps,
    groups_of,
    kernels_of,
    kinds_of,
    lanes_together,
    ranks_of,
    steps_of,
    with_kind,
)
from nsysflow.analysis.ranks.outliers import (
    NOTICED,
    outliers_table,
    parts_of_ranks,
    rank_steps_table,
    typical_rank,
)
from nsysflow.analysis.ranks.savings import Run, gained_without, run_of, with_savings
from nsysflow.analysis.ranks.stragglers import RANK_GROUPS, groups_table, waited_for


def rank_names(ranks: pl.DataFrame) -> Callable[[str, int], str]:
    """A function from a report and a device to what their rank is called: the report; the GPU where
    all ranks are in one report; both where a report has several.

    Args:
        ranks: with `report` and `device`.
    """
    places = ranks[["report", "device"]].unique()
    several_gpus = places["report"].is_duplicated().any()
    several_reports = places["report"].n_unique() > 1

    def name(report: str, device: int) -> str:
        if not several_reports:
            return f"GPU {device}"
        return f"{report} GPU {device}" if several_gpus else report

    return name


@dataclass(frozen=True, kw_only=True)
class Meetings:
    """The communication kernels of several ranks that end together.

    Attributes:
        lanes: of `lanes_together`.
        kinds: of `kinds_of`.
        clocks: of `clocks_of`, by which they do.
    """

    lanes: pl.DataFrame
    kinds: pl.DataFrame
    clocks: pl.DataFrame


class Matched:
    """The collectives of whole reports, matched across ranks."""

    def __init__(self, digests: Sequence[Digest]) -> None:
        self.digests = tuple(digests)
        self.ranks = ranks_of(digests)
        self._gained: dict[int, pl.DataFrame] = {}

    @computed_once
    def steps(self) -> RunSteps:
        """The steps of all ranks: of `kernels.steps_of`."""
        return steps_of(self.digests, self.ranks)

    @computed_once
    def _every_kernel(self) -> pl.DataFrame:
        return kernels_of(self.digests, self.ranks)

    @computed_once
    def _meetings(self) -> Meetings:
        """What ends together: first each lane by its own ends, then all by common clocks."""
        kernels, clocks = self._every_kernel, unknown_clocks(len(self.digests))
        together = lanes_together(kernels, clocks)
        parties = kinds_of(kernels, together)[["kind", "party"]]
        met = kernels.join(together, on="lane").filter(pl.col("turn") < pl.col("shared"))
        met = met.join(parties, on="kind")
        clocks = clocks_of(met, len(self.digests))
        together = lanes_together(kernels, clocks)
        return Meetings(lanes=together, kinds=kinds_of(kernels, together), clocks=clocks)

    @computed_once
    def _groups(self) -> pl.DataFrame:
        """Of `groups_of`."""
        return groups_of(self._meetings.kinds)

    @computed_once
    def kernels(self) -> pl.DataFrame:
        """All communication kernels, plus `kind`, `party`, `lowest`, `group` and `pair` of those in
        lanes that meet others."""
        together = self._meetings.lanes
        kinds = self._meetings.kinds.join(self._groups[["party", "group"]], on="party")
        lowest = pl.col("members").list.first().alias("lowest")
        return (
            self._every_kernel.join(together, on="lane", how="left", maintain_order="left")
            .with_columns(pl.when(pl.col("turn") < pl.col("shared")).then("kind"))
            .drop("shared")
            .join(kinds.select("kind", "party", lowest, "group", "pair"), on="kind", how="left")
            .with_columns(pl.coalesce("pair", "point_to_point").alias("pair"))
        )

    @computed_once
    def clocks(self) -> pl.DataFrame:
        """`report_no`, `clock_ns` of the reports that groups join to the first that is in one."""
        met = self.rows[["report_no"]].unique()
        known = self._meetings.clocks.join(met, on="report_no", how="semi")
        return known.filter(pl.col("component") == pl.col("component").min()).drop("component")

    @computed_once
    def rows(self) -> pl.DataFrame:
        """Those of collectives that end together, with who held up the others and why: of
        `with_costs`."""
        return with_costs(aligned(self.kernels.drop_nulls("kind"), self._meetings.clocks))

    def gained(self, rank: int) -> pl.DataFrame:
        """How much shorter each step would be if nobody waited for a rank: `gained_without`."""
        if rank not in self._gained:
            self._gained[rank] = gained_without(rank, self._run, self.digests, self.ranks)
        return self._gained[rank]

    @computed_once
    def _run(self) -> Run | None:
        """What is replayed without a rank."""
        return run_of(self.digests, self.rows)

    @computed_once
    def groups(self) -> pl.DataFrame:
        """`group`, `members`, `pair`, `kind` of each group."""
        return with_kind(self._groups.drop("party").unique("group"), self.rows, self.steps)


class Ranks:
    """The tables of a run, each computed when it is first read.

    Attributes:
        matched: the collectives of the whole reports.
    """

    def __init__(self, matched: Matched, part: Literal["begun", "judged"]) -> None:
        self.matched = matched
        self._part = part

    @classmethod
    def of(cls, digests: Sequence[Digest]) -> Self:
        """What was selected of a run, from the digests in the order that numbers the ranks."""
        return cls(Matched(digests), "begun")

    @computed_once
    def judged(self) -> "Ranks":
        """What is judged of the run, and its one-off steps: a rank that is late in every tenth step
        costs the others, though such a step is not typical."""
        return Ranks(self.matched, "judged")

    def table(self, name: str) -> pl.DataFrame:
        """The table of the run of that name."""
        frame: pl.DataFrame = getattr(self, name)
        return frame

    @property
    def met(self) -> bool:
        """Whether any ranks have collectives together, in the whole reports."""
        return not self.matched.rows.is_empty()

    @property
    def several(self) -> bool:
        """Whether the run has several ranks."""
        return len(self.matched.ranks) > 1

    @computed_once
    def _rows(self) -> pl.DataFrame:
        """The collectives that start in this part on every rank."""
        rows = self._marked(self.matched.rows)
        return rows.filter(pl.col("counts").all().over("collective")).drop("counts")

    def _marked(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """`kernels` with `counts`: whether each starts in this part."""
        if self._part == "begun":
            return kernels.with_columns(pl.col("begun").alias("counts"))
        steps = self._steps.select("rank", "step", of_step=pl.lit(value=True)).unique()
        marked = kernels.join(steps, on=["rank", "step"], how="left", maintain_order="left")
        counts = pl.col("judged") | pl.col("of_step").fill_null(value=False)
        return marked.with_columns(counts.alias("counts")).drop("of_step")

    @computed_once
    def _steps(self) -> RunSteps:
        steps, judged = self.matched.steps, pl.col("judged")
        if self._part == "begun":
            return steps
        return steps.filter(judged | (judged.any() & (pl.col("kind") == "one-off")))

    @computed_once
    def ranks(self) -> pl.DataFrame:
        """RANKS."""
        matched = self.matched
        counted = self._marked(matched.kernels).filter("counts")
        table = ranks_table(matched.ranks, counted, self._rows, matched.clocks)
        communicating = matched.kernels["rank"].unique()
        return (
            table.filter(pl.col("rank").is_in(communicating.implode()))
            if len(communicating) > 1
            else RANKS.to_frame()
        )

    @computed_once
    def arrivals(self) -> pl.DataFrame:
        """ARRIVALS."""
        return arrivals_table(self._rows, self.matched.ranks)

    @computed_once
    def rank_groups(self) -> pl.DataFrame:
        """RANK_GROUPS."""
        matched = self.matched
        table = groups_table(matched.groups, self._rows, self._steps, matched.ranks)
        table = with_savings(table, matched.groups, self._steps, matched.gained)
        return table.select([*RANK_GROUPS]).match_to_schema(RANK_GROUPS)

    @computed_once
    def costs(self) -> pl.DataFrame:
        """`group`, `rank`, `cost_ns`: what each rank cost each of its groups."""
        return self._rows.group_by("group", "rank").agg(pl.col("cost_ns").sum())

    def waited_for(self, group: int, rank: int) -> pl.DataFrame:
        """`report`, `waited_ns` of each other rank of a group: how long it waited for this rank
        alone."""
        return waited_for(self._rows.filter(pl.col("group") == group), rank, self.matched.ranks)

    @computed_once
    def rank_steps(self) -> pl.DataFrame:
        """RANK_STEPS."""
        steps = self._steps if len(self.matched.ranks) > 1 else self._steps.clear()
        return rank_steps_table(steps, self._rows)

    @computed_once
    def rank_outliers(self) -> pl.DataFrame:
        """RANK_OUTLIERS."""
        return outliers_table(self._parts, self.matched.ranks)

    @computed_once
    def _parts(self) -> pl.DataFrame:
        matched = self.matched
        return parts_of_ranks(matched.steps, matched.digests, matched.ranks)

    @computed_once
    def bandwidth(self) -> pl.DataFrame:
        """BANDWIDTH."""
        matched = self.matched
        alone = self._marked(matched.kernels).filter("counts", pl.col("kind").is_null())
        names = [
            digest.gpus.with_columns(pl.lit(number, pl.Int64).alias("report_no"))
            for number, digest in enumerate(matched.digests)
        ]
        gpus = pl.concat(names) if names else pl.DataFrame()
        return bandwidth_table(self._rows, alone, matched.groups[["group", "kind"]], gpus)

    @computed_once
    def computing(self) -> pl.DataFrame:
        """`rank`, `compute_ns`: the mean of its judged steps, of ranks that have such steps."""
        judged = self.matched.steps.filter("judged").group_by("rank")
        return judged.agg(whole_ns(pl.col("compute_ns").mean())).sort("rank")

    @property
    def busiest(self) -> tuple[int, ...]:
        """The rank that computes longest, where that is `NOTICED` longer than the typical one."""
        computing = self.computing.sort("compute_ns", "rank")
        usual = computing.filter(pl.col("rank") == self.typical)
        if usual.is_empty():
            return ()
        more_ns = computing["compute_ns"][-1] - usual["compute_ns"][0]
        longer = more_ns * NOTICED > usual["compute_ns"][0]
        return (int(computing["rank"][-1]),) if longer else ()

    @property
    def typical(self) -> int | None:
        """The rank whose steps are closest to those of all; None without ranks."""
        return typical_rank(self._parts)

    @property
    def outlying(self) -> tuple[int, ...]:
        """The ranks that are far from the others, the furthest first."""
        return tuple(self.rank_outliers["rank"].unique(maintain_order=True))

    def report_of(self, rank: int) -> str:
        """The report of a rank."""
        return str(self.matched.ranks["report"][rank])
