"""Every table of the analysis, declared once.

The choices of `--table`, the files, report.json, the page, `Analysis` and docs/tables.md are made
from this list. Its order is theirs.
"""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table.

    Attributes:
        name: as `--table`, `Analysis` and files spell it. Its columns are `schema.NAME`, its block
            on the page is `nsysflow/report/blocks/NAME.py` where `page_rows` is not None.
        about: what a row is, for help and docs.
        made_by: the function that makes it, as `module:function` in `nsysflow.analysis`.
        of: whether each report has one, or the run as a whole.
        csv: whether it becomes a CSV file: always, only with rows, or never.
        json_key: its key in report.json; None where it is not in there.
        page_rows: how many rows the terminal page shows; 0 where the page only has a sentence on
            it, None where it has nothing.
        full_rows: the same for summary.md and `--full`.
        judged: whether a page shows the judged steps of it; if not, the whole window.
        complete: whether a page shows it as a whole, whatever `--top` says.
        in_slices: whether it is made and written slice by slice, as it has a row per gap.
        ranked_by: what people read it by, largest first, where files keep another order.
        each: the table with a row per event that it sums up; `--format parquet` gives that.
        by_device: the table with a row per device, where its own rows are of all devices.
        by_stack: the table with a row per stack, where its own rows name only a stack's innermost
            function and line.
        filled_by: what to do so that it has rows, or why it has none.
        shown: the columns that people act on, most important first. Where a line is narrow, the
            last ones give way. Empty for the order of the schema.
        listed: whether `--table` offers it; the others are parts of a listed one.
    """

    name: str
    about: str
    made_by: str
    of: Literal["report", "run"] = "report"
    csv: Literal["always", "with rows", "never"] = "always"
    json_key: str | None
    page_rows: int | None = None
    full_rows: int | None = None
    judged: bool = True
    complete: bool = False
    in_slices: bool = False
    ranked_by: str | None = None
    each: str | None = None
    by_device: str | None = None
    by_stack: str | None = None
    filled_by: str
    shown: str = ""
    listed: bool = True

    @property
    def at_once(self) -> bool:
        """Whether it is worth computing beforehand: of one report, and not read slice by slice."""
        return self.of == "report" and not self.in_slices

    @property
    def parts(self) -> tuple[str, ...]:
        """The tables that are not listed by themselves, but belong to this one."""
        return tuple(filter(None, (self.each, self.by_device, self.by_stack)))


_RECORD_CUDA: Final = "record with --trace cuda,nvtx while the GPU is in use"

_ALL_RANKS: Final = "give the reports of all ranks: nsysflow analyze rank*.sqlite -o DIR"

DECLARED: Final = (
    Table(
        name="findings",
        about="what to change, what that would save, and on which numbers it rests",
        made_by="findings.findings:findings_table",
        of="run",
        json_key="findings",
        ranked_by=None,
        complete=True,
        filled_by="no change is known that would save 1 % of a step or more",
        shown="finding saving_high_ns saving_pct title rule phase source steps method report",
    ),
    Table(
        name="accounting",
        about="per GPU, where its time went: compute, exposed communication and copies, idle",
        made_by="tables.accounting:accounting_table",
        csv="never",
        json_key="devices",
        page_rows=64,
        full_rows=64,
        complete=True,
        filled_by=_RECORD_CUDA,
        shown=(
            "report device window_ns compute_ns idle_ns comm_exposed_ns copy_exposed_ns "
            "host_ns sync_ns launch_ns gaps"
        ),
    ),
    Table(
        name="kernels",
        about="kernels by full name, with class, time, grid and block",
        made_by="tables.kernels:kernel_table",
        json_key="kernels",
        page_rows=3,
        full_rows=20,
        filled_by=_RECORD_CUDA,
        shown=(
            "total_ns short_name class count median_ns device report share_pct tiny_pct grid block"
        ),
    ),
    Table(
        name="waited",
        about="time without compute by what the next compute operation waited for",
        made_by="tables.waited:waited_table",
        json_key="waited",
        ranked_by="total_ns",
        filled_by="in this selection the GPU computes all the time",
        shown="total_ns kind name stream phase waits largest_ns window_pct device report process",
    ),
    Table(
        name="gap_summary",
        about="idle time by place, cause and culprit",
        made_by="tables.gaps:gap_summary",
        json_key="gap_summary",
        page_rows=0,
        full_rows=15,
        ranked_by="total_ns",
        filled_by="this selection has no idle time between two operations",
        shown=("total_ns cause phase source culprit window_pct device report per_step_ns gaps"),
    ),
    Table(
        name="gap_histogram",
        about="gaps by length and cause",
        made_by="tables.gaps:gap_histogram",
        csv="never",
        json_key="gap_histogram",
        filled_by="this selection has no idle time between two operations",
        shown="length cause gaps idle_ns device report",
    ),
    Table(
        name="phases",
        about="per NVTX range and its place: what ran for it, how long, and the idle time",
        made_by="tables.phases:phase_table",
        json_key="phases",
        page_rows=7,
        full_rows=30,
        filled_by="put NVTX ranges around the parts of the program: nsysflow.region",
        shown=(
            "path instances median_ns busy_ns idle_ns host_wall_ns launches process report kernels"
        ),
    ),
    Table(
        name="host_stacks",
        about="what the host was running while the GPU waited for it, by function and line",
        made_by="tables.host_stacks:host_stack_table",
        csv="with rows",
        json_key="host_stacks",
        page_rows=3,
        full_rows=20,
        by_stack="idle_stacks",
        filled_by="record what Python runs with --sample-python 1000",
        shown=("idle_ns function source via phase cause share_pct samples thread process report"),
    ),
    Table(
        name="syncs",
        about="waits, blocking copies and allocations, ranked by the idle time behind them",
        made_by="tables.syncs:sync_table",
        json_key="syncs",
        page_rows=3,
        full_rows=10,
        by_device="induced",
        filled_by="this selection has no waits, blocking copies or allocations",
        shown=(
            "induced_idle_ns api source phase blocked_ns report process start_ns bytes copy_label"
        ),
    ),
    Table(
        name="step_groups",
        about="the window by kind of step: start-up, steady, one-off, periodic, cut off",
        made_by="tables.step_groups:step_groups",
        csv="with rows",
        json_key="step_groups",
        page_rows=3,
        full_rows=20,
        judged=False,
        filled_by="name the range that is one step with --step NAME, or use nsysflow.steps",
        shown=(
            "kind steps count total_ns excess_ns idle_ns cause largest_ns phase source device "
            "process report every comm_exposed_ns largest_cause culprit second_cause"
        ),
    ),
    Table(
        name="gaps",
        about="every gap, with its cause, place, source line and neighbours",
        made_by="tables.gaps:gap_table",
        json_key=None,
        full_rows=10,
        in_slices=True,
        ranked_by="duration_ns",
        filled_by="this selection has no idle time between two operations",
        shown=(
            "duration_ns start_ns cause phase source culprit device report waiting_phase next_op "
            "step"
        ),
    ),
    Table(
        name="steps",
        about="every step, with its time split as in accounting",
        made_by="tables.steps:step_table",
        json_key="steps",
        full_rows=20,
        judged=False,
        filled_by="name the range that is one step with --step NAME, or use nsysflow.steps",
        shown=(
            "report process device step kind duration_ns idle_ns compute_ns host_ns "
            "launch_ns sync_ns comm_exposed_ns copy_exposed_ns"
        ),
    ),
    Table(
        name="step_parts",
        about="each step, part by part: kernels, copies, and idle time by cause and place",
        made_by="tables.step_parts:step_part_table",
        csv="never",
        json_key="series",
        judged=False,
        filled_by=_RECORD_CUDA,
        shown="step ns part kind name phase source count device report process",
    ),
    Table(
        name="starved",
        about="stretches in which the GPU waited for launches, and what a CUDA graph would take",
        made_by="tables.starved:starved_table",
        json_key="starved",
        full_rows=10,
        filled_by="this selection has no launch-bound stretch of 8 operations or more",
        shown=(
            "launch_idle_ns phase ops graph_estimate_ns start_ns device report "
            "median_kernel_ns median_interval_ns"
        ),
    ),
    Table(
        name="launches",
        about="per phase, what launching cost: calls, latency, queue time, run-ahead",
        made_by="tables.launches:launch_table",
        json_key="launches",
        filled_by="put NVTX ranges around the parts of the program: nsysflow.region",
        shown=(
            "path launches starved_pct api_median_ns process report latency_median_ns "
            "run_ahead_median starved_launches queue_median_ns"
        ),
    ),
    Table(
        name="copies",
        about="copies by direction, kind and phase",
        made_by="tables.copies:copy_table",
        json_key="copies",
        full_rows=10,
        each="each_copy",
        filled_by="this selection has no copies",
        shown=(
            "direction copy_label phase count bytes device report exposed_ns induced_idle_ns gpu_ns"
        ),
    ),
    Table(
        name="each_copy",
        about="every copy",
        made_by="tables.copies:each_copy",
        csv="never",
        json_key=None,
        filled_by="this selection has no copies",
        listed=False,
    ),
    Table(
        name="mfu",
        about="FLOPs per second of steps and phases, and their share of the GPU's peak",
        made_by="tables.mfu:mfu_table",
        csv="with rows",
        json_key="mfu",
        full_rows=30,
        filled_by="give --flops-per-step",
        shown="path mfu_pct time_ns device report flops_per_s flops unit steps",
    ),
    Table(
        name="comm",
        about="communication kernels by operation and phase, with their exposed time",
        made_by="tables.comm:comm_table",
        json_key="comm",
        page_rows=3,
        full_rows=20,
        each="collectives",
        filled_by="this selection has no communication kernels",
        shown=(
            "operation phase count exposed_ns hidden_pct bytes device report median_ns "
            "total_ns name"
        ),
    ),
    Table(
        name="collectives",
        about="every communication kernel",
        made_by="tables.comm:collectives",
        csv="never",
        json_key=None,
        filled_by="this selection has no communication kernels",
        listed=False,
    ),
    Table(
        name="ranks",
        about="per rank, how late it came to the collectives and how long it waited in them",
        made_by="ranks.ranks:Ranks",
        of="run",
        csv="with rows",
        json_key="ranks",
        page_rows=4,
        full_rows=64,
        filled_by=_ALL_RANKS,
        shown=(
            "report device late_ns cost_ns waited_ns times_last matched cost_work_ns "
            "cost_copy_ns cost_group_ns cost_host_ns process clock_ns residual_ns"
        ),
    ),
    Table(
        name="rank_groups",
        about="per group of ranks, who held the others up, how often, what that cost and why",
        made_by="ranks.ranks:Ranks",
        of="run",
        csv="with rows",
        json_key="rank_groups",
        page_rows=3,
        full_rows=64,
        filled_by=_ALL_RANKS,
        shown=(
            "kind members rank cost_step_ns steps_last steps times_last collectives "
            "cost_work_ns cost_copy_ns cost_group_ns cost_host_ns through cost_ns waited_ns "
            "report device group"
        ),
    ),
    Table(
        name="arrivals",
        about="per collective, when the first and the last rank came",
        made_by="ranks.ranks:Ranks",
        of="run",
        csv="with rows",
        json_key="arrivals",
        filled_by=_ALL_RANKS,
        shown=(
            "collective operation spread_ns last_report last_device cost_ns done_ns start_ns "
            "bytes group ranks ends_spread_ns"
        ),
    ),
    Table(
        name="rank_steps",
        about="per rank and step, its parts, and how late the rank came",
        made_by="ranks.ranks:Ranks",
        of="run",
        csv="with rows",
        json_key="rank_steps",
        page_rows=12,
        full_rows=32,
        complete=True,
        filled_by=_ALL_RANKS,
        shown=(
            "rank step duration_ns late_ns cost_ns compute_ns comm_exposed_ns "
            "copy_exposed_ns idle_ns report device"
        ),
    ),
    Table(
        name="rank_outliers",
        about="ranks with a part of the step that is far from the other ranks'",
        made_by="ranks.ranks:Ranks",
        of="run",
        csv="with rows",
        json_key="rank_outliers",
        page_rows=3,
        full_rows=64,
        filled_by=_ALL_RANKS,
        shown="rank part ns median_ns z report device",
    ),
    Table(
        name="bandwidth",
        about="per group, operation and size, how fast NCCL moved its bytes",
        made_by="ranks.ranks:Ranks",
        of="run",
        csv="with rows",
        json_key="bandwidth",
        page_rows=3,
        full_rows=64,
        filled_by=_ALL_RANKS,
        shown=(
            "kind operation size_bytes bus_bytes_per_s peak_pct algorithm_bytes_per_s "
            "done_ns count slow_ns overlapped_pct group ranks"
        ),
    ),
    Table(
        name="gpu_metrics",
        about="per phase and kernel class, the sampled GPU counters",
        made_by="tables.gpu_metrics:gpu_metrics_table",
        csv="with rows",
        json_key="gpu_metrics",
        page_rows=3,
        full_rows=20,
        filled_by="record with nsysflow profile --gpu-metrics",
        shown=(
            "name group busy_ns bound sm_active_pct tensor_active_pct device report "
            "dram_read_pct dram_write_pct sm_issue_pct"
        ),
    ),
    Table(
        name="induced",
        about="per wait and GPU, the idle time behind it",
        made_by="tables.syncs:induced_table",
        csv="never",
        json_key=None,
        filled_by="this selection has no waits, blocking copies or allocations",
        listed=False,
    ),
    Table(
        name="idle_stacks",
        about="the stacks that the host was running while the GPU waited for it, frame by frame",
        made_by="tables.host_stacks:idle_stack_table",
        csv="never",
        json_key=None,
        filled_by="record what Python runs with --sample-python 1000",
        listed=False,
    ),
    Table(
        name="integrity",
        about="what may be wrong with the recording, and which numbers that affects",
        made_by="tables.integrity:integrity_table",
        csv="never",
        json_key="integrity",
        page_rows=0,
        full_rows=64,
        judged=False,
        complete=True,
        filled_by="no check found anything",
        shown="check impact count share_pct report",
    ),
)
"""All tables, in the order in which people read them."""

TABLES: Final = {table.name: table for table in DECLARED if table.listed}
"""The tables that `--table` offers, by name."""
