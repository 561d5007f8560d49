"""One run: the tables of its reports, one report per rank."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote

import polars as pl

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.findings.findings import Findings, find_of_run, findings_table, nothing_found
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.other_loop import largest_loop, with_other_loop
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.options import typed_steps
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.tables.index import TablesOfRun, declaration
from nsysflow.analysis.tables.report_tables import ReportTables
from nsysflow.analysis.trace import Displayable, Note, facts_of
from nsysflow.base.names import OUTSIDE, are_named_as_ranks


def or_outside(path: str) -> pl.Expr:
    """A column of paths, with `(outside ranges)` where no range was open."""
    return pl.col(path).fill_null("").replace("", OUTSIDE)


def sorted_by_rank(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """The table of that name in the order in which people read it."""
    by = declaration(name).ranked_by
    return table if by is None else table.sort(by, descending=True, maintain_order=True)


def gpu_name(report: str, device: int, *, several: bool) -> str:
    """What the page calls a GPU: its index, with its report where there are several."""
    return f"{report} GPU {device}" if several else f"GPU {device}"


def typical_report(ranks: Ranks) -> str:
    """The name of the report that stands for all; the first one where none has ranks."""
    typical = ranks.typical
    return ranks.matched.digests[0].report if typical is None else ranks.report_of(typical)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where reports come from, as far as they do not say it themselves.

    Attributes:
        paths: each report's path, as it was typed, by the report's name.
        on_cpu: whether the manifest says that the run was made without a GPU.
        ranks: whether the manifests say that the reports are ranks.
        killed: whether a manifest says that no process of the program ended by itself.
        plain_step_ns: a step of the plain run, of the slowest process; None without one.
        later_step_ns: a step after the recording, of the slowest process; None without one.
        later_middle: the number of the middle one of these steps; None where they have none.
        record_later: the command that records steps like that; empty without one.
        typed: the paths that were given, which give the same run again.
        versions: of what took part, by name; empty without a manifest.
        started: when the run was recorded, in UTC; empty without a manifest.
    """

    paths: Mapping[str, Path] = field(default_factory=dict)
    on_cpu: bool = False
    ranks: bool = False
    killed: bool = False
    plain_step_ns: int | None = None
    later_step_ns: int | None = None
    later_middle: float | None = None
    record_later: str = ""
    typed: tuple[Path, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""

    def of_loop(self) -> "Origin":
        """The same of another loop of the program, of which no step was timed unrecorded."""
        return replace(self, plain_step_ns=None, later_step_ns=None)


class RunTables(TablesOfRun):
    """The tables of a run, or of its judged part: each has the rows of all reports, and is an
    attribute, e.g. `run.ranks`, computed when it is first asked for.

    Attributes:
        report_tables: the tables of each report.
    """

    def __init__(self, report_tables: Sequence[ReportTables]) -> None:
        self.report_tables = tuple(report_tables)
        self._tables: dict[str, pl.DataFrame] = {}

    @property
    @abstractmethod
    def whole(self) -> "Results":
        """The whole run."""

    @property
    @abstractmethod
    def ranks_of_run(self) -> Ranks:
        """The ranks of this part: who held the others up, in which group, and why."""

    def table(self, name: str) -> pl.DataFrame:
        """The table of that name, with the rows of all reports."""
        if name not in self._tables:
            self._tables[name] = self._make(name)
        return self._tables[name]

    def _make(self, name: str) -> pl.DataFrame:
        if name == "findings":
            return findings_table(self.whole.found)
        if declaration(name).scope == "report":
            return self.together(lambda report: report.table(name))
        if self.whole.is_one_rank:
            return declaration(name).schema.to_frame()  # so no digest is made
        return self.ranks_of_run.table(name)

    def together(self, rows_of: Callable[[ReportTables], pl.DataFrame]) -> pl.DataFrame:
        """The rows of a frame that each report has."""
        return pl.concat([rows_of(report) for report in self.report_tables])

    def longest_gaps(self, limit: int, at_least_ns: int) -> pl.DataFrame:
        """The longest rows of `gaps`, longest first, without making the others."""
        longest = self.together(lambda report: report.longest_gaps(limit, at_least_ns))
        order = ["duration_ns", "report", "device", "start_ns"]
        return longest.sort(order, descending=[True, False, False, False]).head(limit)

    def count_gaps(self, at_least_ns: int) -> int:
        """How many gaps last `at_least_ns` or longer."""
        return sum(report.count_gaps(at_least_ns) for report in self.report_tables)

    def gap_slices(self, at_least_ns: int) -> Iterator[pl.DataFrame]:
        """The rows of `gaps` that last `at_least_ns` or longer, a slice at a time."""
        for report in self.report_tables:
            yield from report.gap_slices(at_least_ns)

    @property
    def reports(self) -> tuple[str, ...]:
        """The names of the analysed reports, as in the tables."""
        return tuple(report.trace.report for report in self.report_tables)

    @property
    def step_name(self) -> str | None:
        """The range that is one step, of the first report that has steps; None without steps."""
        return next((report.step_name for report in self.report_tables if report.step_name), None)

    @property
    def steps_inferred(self) -> bool:
        """Whether steps of any report are inferred from repeating kernels."""
        return any(report.steps_inferred for report in self.report_tables)

    @property
    def captures(self) -> pl.DataFrame:
        """`report`, `process`, `capture`, `unprofiled_step_ns`: the processes that captured a
        window of their steps."""
        return self.together(
            lambda report: report.trace.captures.select(
                pl.lit(report.trace.report).alias("report"),
                os_pid(pl.col("process")).alias("process"),
                "capture",
                "unprofiled_step_ns",
            )
        )

    @property
    def unrecorded_step_ns(self) -> int | None:
        """How long a step takes that is not recorded: in the plain run, else after the recording,
        else before the window; None where none was timed."""
        origin = self.whole.origin
        return origin.plain_step_ns or origin.later_step_ns or self.unprofiled_step_ns

    @property
    def unprofiled_step_ns(self) -> int | None:
        """How long a step took before the window: the median of the processes that measured it."""
        median_ns = self.captures["unprofiled_step_ns"].median()
        return round(median_ns) if isinstance(median_ns, float) else None

    @computed_once
    def step_keys(self) -> pl.DataFrame:
        """`report`, `process`, `device`, `step` of each row of `steps`, without their times."""
        return self.together(lambda report: report.step_keys)

    @computed_once
    def _counts(self) -> dict[tuple[str, int], int]:
        """How many judged steps each GPU has."""
        return {
            key: count for report in self.report_tables for key, count in report.step_counts.items()
        }

    @property
    def of_steps(self) -> bool:
        """Whether these are the tables of judged steps, so that figures are given per step."""
        return bool(self._counts)

    @property
    def step_count(self) -> int:
        """How many judged steps there are, on the GPU that has most; 1 where none are judged."""
        return max(self._counts.values(), default=1)

    def steps_on(self, report: str, device: int) -> int:
        """How many judged steps a GPU has; 1 where none are judged."""
        return self._counts.get((report, device), 1)

    @property
    def per_step(self) -> str:
        """What a caption says where figures are per step."""
        return "; per step" if self.of_steps else ""


class PartTables(RunTables):
    """The tables of a part of a run."""

    def __init__(self, run: "Results", report_tables: Sequence[ReportTables]) -> None:
        super().__init__(report_tables)
        self._run = run

    @property
    def whole(self) -> "Results":
        """The run that this is a part of."""
        return self._run

    @property
    def ranks_of_run(self) -> Ranks:
        """The ranks in the judged part."""
        return self._run.ranks_of_run.judged


class Results(Displayable, RunTables):
    """The tables of one or more analysed reports, each computed when it is first asked for.

    Each is an attribute, e.g. `run.ranks`, with the rows of all reports.

    Attributes:
        analyses: one per report.
        origin: where the reports come from.
        digests: of all reports of the run, where only some were analysed; None where all were.
        notes: what the reader should know, each note once: first of the run, then of its reports.
    """

    def __init__(
        self,
        analyses: Sequence[Analysis],
        *,
        origin: Origin | None = None,
        notes: Sequence[Note] = (),
        ranks: Ranks | None = None,
        of_loop: bool = False,
    ) -> None:
        """Take the analyses.

        Args:
            analyses: one per report.
            origin: where the reports come from.
            notes: on the run.
            ranks: those of the whole run where only some were analysed.
            of_loop: whether these are of another loop, beside the steps.
        """
        super().__init__(analyses)
        self.analyses = tuple(analyses)
        self.origin = origin or Origin()
        self.digests = None if ranks is None else ranks.matched.digests
        self._ranks = ranks
        self._of_loop = of_loop
        of_reports = (note for analysis in analyses for note in analysis.notes)
        self.notes = tuple(dict.fromkeys((*notes, *of_reports)))

    def _name(self) -> str:
        return ", ".join(self.reports)

    def _facts(self) -> list[str]:
        return facts_of(self.accounting, self.steps)

    @property
    def all_notes(self) -> tuple[Note, ...]:
        """The notes on the reports, and on what was found in them."""
        return tuple(dict.fromkeys((*self.notes, *self.found.notes)))

    @property
    def whole(self) -> "Results":
        """This run."""
        return self

    @computed_once
    def judged(self) -> PartTables:
        """The judged part of the run: its typical steps, or all of it where there are none."""
        return PartTables(self, [analysis.judged for analysis in self.analyses])

    @computed_once
    def run_steps(self) -> PartTables:
        """All steps after start-up, the long ones too; all of it where no steps are judged."""
        return PartTables(self, [analysis.run_steps for analysis in self.analyses])

    @computed_once
    def ranks_of_run(self) -> Ranks:
        """The ranks of the run."""
        return self._ranks or Ranks.of([digest(analysis) for analysis in self.analyses])

    @property
    def many(self) -> bool:
        """Whether the run has more reports than were analysed: of the others there are digests."""
        return self.digests is not None

    @property
    def is_one_rank(self) -> bool:
        """Whether there is nobody to compare with: one report, of one rank."""
        return len(self.analyses) == 1 and not self.many and self.analyses[0].is_one_rank

    @computed_once
    def are_unrelated(self) -> bool:
        """Whether these are several reports in which nothing says that they are ranks of one
        run."""
        names = self.every_report
        if len(names) < 2 or self.origin.ranks or are_named_as_ranks(names):
            return False
        return not self.ranks_of_run.met

    @computed_once
    def typical(self) -> "Results":
        """Of many ranks, the one that stands for all; of few, all of them."""
        if not self.many or len(self.analyses) == 1:
            return self
        name = typical_report(self.ranks_of_run)
        analyses = [each for each in self.analyses if each.trace.report == name]
        return Results(analyses[:1], origin=self.origin, notes=self.notes, ranks=self._ranks)

    @computed_once
    def found(self) -> Findings:
        """What to change in the run, in the order in which to act, with all that is known of it;
        nothing in reports that are no ranks of one run."""
        if len(self.analyses) == 1 and not self.many:
            return self.analyses[0].found
        subjects = [JudgedReport(each) for each in self.analyses]
        if self.are_unrelated:
            return nothing_found(subjects)
        found = find_of_run(subjects, self.ranks_of_run)
        if self.many or self._of_loop:
            return found
        row = largest_loop(self.table("run"), self.loops_of_all)
        return with_other_loop(found, row, lambda name: self.of_loop(name).found)

    @property
    def loops_of_all(self) -> list[str]:
        """The other loops that all reports of the run have, by their range."""
        loops = self.table("run").filter(pl.col("part") == "loop")
        reports = loops.group_by("phase").agg(pl.col("report").n_unique())
        return reports.filter(pl.col("report") == len(self.reports))["phase"].to_list()

    def of_loop(self, step: str) -> "Results":
        """The same run with another range as its step; each analysed report has it."""
        analyses = [each.of_loop(step) for each in self.analyses]
        return Results(analyses, origin=self.origin.of_loop(), of_loop=True)

    @property
    def every_report(self) -> tuple[str, ...]:
        """The names of all reports of the run, also of those that are not analysed whole."""
        return self.reports if self.digests is None else tuple(d.report for d in self.digests)

    @property
    def selection(self) -> str:
        """The options that narrow the window, as they are typed; empty for whole reports."""
        options = self.analyses[0].options
        typed = {
            "--device": options.device,
            "--range": options.range,
            "--from": None if options.from_ns is None else options.from_ns / 1e9,
            "--to": None if options.to_ns is None else options.to_ns / 1e9,
        }
        words = [
            f"{name} {quote(str(value))}" for name, value in typed.items() if value is not None
        ]
        return " ".join([*words, *filter(None, [typed_steps(options.steps)])])

    @property
    def choice(self) -> str:
        """All options that choose what is judged, as they are typed; empty without any."""
        options = self.analyses[0].options
        judging = {"--step": options.step, "--skip": options.skip}
        words = [
            *filter(None, [self.selection]),
            *(f"{name} {quote(str(of))}" for name, of in judging.items() if of is not None),
            *(["--whole"] if options.whole else []),
            *(f"--own {quote(name)}" for name in options.own),
        ]
        return " ".join(words)

    def step_again(self, step: str) -> str:
        """The run with another range as its step, as it is typed after a command."""
        paths = [str(path) for path in self.origin.typed] or [*self.reports]
        return " ".join([*map(quote, paths), "--step", quote(step)])

    @property
    def again(self) -> str:
        """The run and all options that choose what is judged, as they are typed after a command."""
        paths = [str(path) for path in self.origin.typed] or [*self.reports]
        return " ".join([*map(quote, paths), *filter(None, [self.choice])])


def names_of_gpus(results: Results) -> pl.Series:
    """The name of each GPU of the run, also of ranks that are not looked at whole."""
    if results.digests is None:
        return results.table("accounting")["name"]
    return pl.concat([each.gpus["name"] for each in results.digests])
