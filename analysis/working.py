"""What the tables are made of, each piece computed once, when it is first asked for.

`Working` is the wiring: from a trace to prepared rows, gaps, their causes, phases and steps, and to
what of these lies in the windows. `analyze.Analysis` makes tables of it.
"""

import polars as pl

from nsysflow.analysis.accounting import Busy
from nsysflow.analysis.attribution import Attribution, attribute
from nsysflow.analysis.causes import Explained, explain
from nsysflow.analysis.comm import comm_facts, with_time
from nsysflow.analysis.copies import copy_facts
from nsysflow.analysis.gap_tables import host_questions
from nsysflow.analysis.gaps import find_gaps
from nsysflow.analysis.instances import span_inside
from nsysflow.analysis.integrity import count_damage
from nsysflow.analysis.launches import launch_rows
from nsysflow.analysis.options import Options
from nsysflow.analysis.parallel import computed_once
from nsysflow.analysis.phases import busy_inside, phase_idle, phase_work
from nsysflow.analysis.prepare import Prepared, prepare
from nsysflow.analysis.selection import of_numbers, selected_windows
from nsysflow.analysis.steps import find_steps, step_of_gaps, step_paths
from nsysflow.analysis.syncs import stall_calls, stall_rows
from nsysflow.analysis.trace import Trace
from nsysflow.analysis.windows import (
    clipped,
    clipped_time,
    narrow_charges,
    narrow_gaps,
    starts_inside,
    whole_windows,
)


class Working:
    """The pieces of one report's analysis.

    Attributes:
        trace: what the report says of itself; its rows are let go once they are in order.
        options: what the analysis was narrowed to.
    """

    def __init__(self, trace: Trace, options: Options) -> None:
        self.trace = trace.without_rows()
        self.options = options
        self._rows = trace

    @computed_once
    def _prepared(self) -> Prepared:
        prepared = prepare(self._rows, self.options)
        self._rows = self.trace
        return prepared

    @computed_once
    def _bare_gaps(self) -> pl.DataFrame:
        """All gaps, before anyone asked why."""
        return find_gaps(self._prepared)

    @computed_once
    def _explained(self) -> Explained:
        return explain(self._prepared, self._bare_gaps, dispatch_ns=self.options.dispatch_ns)

    @computed_once
    def _stalls(self) -> pl.DataFrame:
        return stall_calls(self._prepared.calls)

    @computed_once
    def _stall_rows(self) -> pl.DataFrame:
        """The stall calls, with where they were made and how busy the GPUs were meanwhile."""
        node = self._attribution.placed["stalls"]["node"]
        phase = self._attribution.name_of(node).alias("phase")
        return stall_rows(self._prepared, self._stalls.with_columns(phase), self._busy)

    @computed_once
    def _attribution(self) -> Attribution:
        launched = pl.col("launch_start_ns").alias("time_ns")
        called = pl.col("start_ns").alias("time_ns")
        questions = {
            "ops": self._prepared.ops.select("thread_no", launched),
            "hosts": host_questions(self._bare_gaps),
            "stalls": self._stalls.select("thread_no", called),
        }
        return attribute(self._prepared, self.options, questions)

    @computed_once
    def _placed_ops(self) -> pl.DataFrame:
        """All operations, with `node` and `how`."""
        return self._prepared.ops.hstack(self._attribution.placed["ops"].get_columns())

    @computed_once
    def _gap_places(self) -> pl.DataFrame:
        """Of each gap `node` and `process` (of the launch that ended it), `host_node` (where the
        host was), `asked` (whether it was asked) and `step` (that it starts in)."""
        gaps, ops = self._bare_gaps, self._placed_ops
        asked = (pl.col("next_start_ns") > pl.col("start_ns")).fill_null(value=False)
        places = gaps.select(
            ops["node"].gather(gaps["next_op"]),
            ops["process"].gather(gaps["next_op"]),
            self._attribution.placed["hosts"]["node"].alias("host_node"),
            asked.alias("asked"),
            "device_no",
            "start_ns",
        )
        step = step_of_gaps(self._steps, places, self._prepared.axis)
        return places.drop("device_no", "start_ns").with_columns(step)

    @computed_once
    def _whole_gaps(self) -> pl.DataFrame:
        """All gaps, with their causes and places."""
        return self._explained.gaps.hstack(self._gap_places.get_columns())

    @computed_once
    def _whole_work(self) -> pl.DataFrame:
        host = self._attribution.open_time.select("node", "host_wall_ns")
        return phase_work(self._attribution, self._placed_ops, host, self._prepared.axis)

    @computed_once
    def _work(self) -> pl.DataFrame:
        """What the phases did in the windows."""
        if not self._narrowed:
            return self._whole_work
        axis, windows = self._prepared.axis, self._windows
        host = clipped_time(self._attribution.open_time, windows)
        begun = phase_work(self._attribution, self._ops, host, axis)
        ops = self._placed_ops.select("node", "process", "device_no", "start_ns", "end_ns")
        return busy_inside(self._attribution, begun, clipped(ops, windows, axis), axis)

    @computed_once
    def _idle(self) -> pl.DataFrame:
        """The idle in the windows, by phase and cause."""
        return phase_idle(self._attribution, self._gaps)

    @computed_once
    def _spans(self) -> pl.DataFrame:
        """`process`, `path`, `span_ns`: how long the phases' instances ran in the windows."""
        if not self._narrowed:
            return self._whole_work.select("process", "path", "span_ns")
        return span_inside(self._attribution, self._placed_ops, self._windows)

    @computed_once
    def _step_paths(self) -> pl.DataFrame:
        return step_paths(
            self._attribution,
            self._whole_work,
            self.options.step,
            captures=self.trace.captures,
            report=self.trace.report,
        )

    @computed_once
    def _steps(self) -> pl.DataFrame:
        return find_steps(self._attribution, self._step_paths, self._placed_ops)

    @computed_once
    def _chosen_steps(self) -> pl.DataFrame:
        """The steps that start in the windows."""
        if not self._narrowed:
            return self._steps
        inside = starts_inside(self._steps, self._windows, self._prepared.axis)
        # of processes that share a GPU one's window may hold another step of the other
        return inside if self.options.steps is None else of_numbers(inside, self.options.steps)

    @computed_once
    def _work_of_steps(self) -> pl.DataFrame:
        """What the phases did in the steps that start in the windows, to the ends of these: a phase
        that a window cuts has done less than is declared."""
        if not self._narrowed:
            return self._whole_work
        attribution = self._attribution
        inside = attribution.within(self._step_paths).join(self._chosen_steps, on="range")
        ops = self._placed_ops.join(
            inside, on=["node", "device_no"], how="semi", maintain_order="left"
        )
        no_host = attribution.open_time.select("node", "host_wall_ns").clear()
        return phase_work(attribution, ops, no_host, self._prepared.axis)

    @computed_once
    def _launch_rows(self) -> pl.DataFrame:
        return launch_rows(self._prepared)

    @computed_once
    def _damage(self) -> dict[str, int]:
        return count_damage(self._prepared)

    @computed_once
    def _busy(self) -> Busy:
        return Busy.of(self._prepared.ops)

    @computed_once
    def _narrowed(self) -> bool:
        options = self.options
        asked = (options.device, options.range, options.from_ns, options.to_ns, options.steps)
        return any(choice is not None for choice in asked)

    @computed_once
    def _windows(self) -> pl.DataFrame:
        if not self._narrowed:
            return whole_windows(self._prepared.ops)
        return selected_windows(
            self._prepared, self._attribution, self._placed_ops, self._steps, self.options
        )

    @computed_once
    def _ops(self) -> pl.DataFrame:
        """The operations that start in the windows."""
        if not self._narrowed:
            return self._placed_ops
        return starts_inside(self._placed_ops, self._windows, self._prepared.axis)

    @computed_once
    def _gaps(self) -> pl.DataFrame:
        """The gaps, or their parts, in the windows."""
        if not self._narrowed:
            return self._whole_gaps
        return narrow_gaps(self._whole_gaps, self._windows, self._prepared.axis)

    @computed_once
    def _charges(self) -> pl.DataFrame:
        charges = self._explained.charges
        return narrow_charges(charges, self._gaps) if self._narrowed else charges

    @computed_once
    def _copies(self) -> pl.DataFrame:
        facts = copy_facts(self._prepared)
        if not self._narrowed:
            return facts
        return starts_inside(facts, self._windows, self._prepared.axis)

    @computed_once
    def _placed_copies(self) -> pl.DataFrame:
        """The memcpys in the windows, with `phase`."""
        facts = self._copies.join(self._ops.select("op", "node"), on="op", maintain_order="left")
        phase = self._attribution.name_of(facts["node"]).alias("phase")
        return facts.with_columns(phase)

    @computed_once
    def _placed_comm(self) -> pl.DataFrame:
        """All communication kernels, with `phase`, and how long they ran in the windows."""
        facts = comm_facts(self._prepared, self._placed_ops)
        phase = self._attribution.name_of(facts["node"]).alias("phase")
        facts = facts.with_columns(phase)
        return with_time(self._prepared, facts, self._windows, self._busy)
