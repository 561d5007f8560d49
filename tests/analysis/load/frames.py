"""The frames that a loader fills in."""

from nsysflow.analysis import schema
from nsysflow.analysis.trace import Trace

FRAMES = {
    "ops": schema.OPS,
    "shapes": schema.SHAPES,
    "copy_details": schema.COPY_DETAILS,
    "calls": schema.CALLS,
    "ranges": schema.RANGES,
    "overhead": schema.OVERHEAD,
    "event_records": schema.EVENT_RECORDS,
    "waits": schema.WAITS,
    "threads": schema.THREADS,
    "devices": schema.DEVICES,
    "diagnostics": schema.DIAGNOSTICS,
    "backtraces": schema.BACKTRACES,
    "samples": schema.SAMPLES,
    "running": schema.RUNNING,
    "frames": schema.FRAMES,
    "gpu_samples": schema.GPU_SAMPLES,
    "captures": schema.CAPTURES,
}


def assert_schemas(trace: Trace) -> None:
    for name, of in FRAMES.items():
        assert getattr(trace, name).schema == of, name
