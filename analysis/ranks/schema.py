"""What a report says of its ranks: the small frames of a digest."""

from typing import Final

import polars as pl

from nsysflow.analysis.schema import Frame
from nsysflow.analysis.tables.schema import STEPS

EXCHANGED: Final = Frame(
    """One row per communication kernel of the whole report, by device and start; sends and receives
    are among them. `step` is the one it starts in, null outside. `begun` and `judged` say whether
    it starts in what was selected and in what is judged. `…_before_ns` and `…_until_ns` are the
    exposed times of compute, communication and copies on its device, from the report's begin to its
    start and to its end: what lies between two kernels is a difference, and the rest is idle.
    `overlapped_ns` is its time while another communication kernel ran on its device. `node` is its
    number in BOUNDS; null if the report is not reduced.""",
    {
        "process": pl.Int64(),
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "name": pl.String(),
        "operation": pl.String(),
        "communicator": pl.UInt64(),
        "bytes": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "step": pl.Int64(),
        "begun": pl.Boolean(),
        "judged": pl.Boolean(),
        "compute_before_ns": pl.Int64(),
        "comm_before_ns": pl.Int64(),
        "copy_before_ns": pl.Int64(),
        "compute_until_ns": pl.Int64(),
        "comm_until_ns": pl.Int64(),
        "copy_until_ns": pl.Int64(),
        "overlapped_ns": pl.Int64(),
        "node": pl.UInt32(),
    },
)

BOUNDS: Final = Frame(
    """One row per node of a reduced program (`reduced.Reduced`) and source that it waits for.
    `slack_ns` is how much later the node was reached than this source alone required. If its
    sources come earlier, so does the node: by the least, over its sources, of how much earlier the
    source comes plus `slack_ns`.""",
    {"node": pl.UInt32(), "source": pl.UInt32(), "slack_ns": pl.Int64()},
)

STEP_NODES: Final = Frame(
    """One row per step that another step follows. The step begins at `node`, the next one at
    `next_node`.""",
    {
        "process": pl.Int64(),
        "device": pl.Int32(),
        "step": pl.Int64(),
        "node": pl.UInt32(),
        "next_node": pl.UInt32(),
    },
)

JUDGED_STEPS: Final = Frame(
    """STEPS of what was selected, without what bounds them, and with `judged`: whether the step is
    judged.""",
    {
        **{name: of for name, of in STEPS.items() if not name.startswith("bound")},
        "judged": pl.Boolean(),
    },
)
