"""From options to the selected windows (spec §2.2)."""

import polars as pl

from nsysflow.analysis.options import Options, typed_steps
from nsysflow.analysis.phases.attribution import Attribution
from nsysflow.analysis.phases.steps import paths_named
from nsysflow.analysis.steps.chosen import require_steps, selected_steps
from nsysflow.analysis.timeline.events import Events
from nsysflow.analysis.view.windows import intersect, whole_windows
from nsysflow.base.errors import SelectionError
from nsysflow.base.names import near_or_all


def selected_windows(
    events: Events,
    attribution: Attribution,
    ops: pl.DataFrame,
    steps: pl.DataFrame,
    options: Options,
) -> pl.DataFrame:
    """The windows that all options agree on: `WINDOWS`.

    Args:
        events: the trace.
        attribution: nodes and paths.
        ops: operations with `node`.
        steps: of `with_kinds`.
        options: what to narrow to.

    Raises:
        SelectionError: an option names something that the report lacks, or nothing is left.
    """
    windows, axis = whole_windows(events.ops), events.axis
    report = events.trace.report
    if options.device is not None:
        windows = _of_device(windows, events, options.device)
    if options.from_ns is not None or options.to_ns is not None:
        late = pl.lit(options.from_ns if options.from_ns is not None else axis.origin_ns)
        soon = pl.lit(options.to_ns if options.to_ns is not None else events.last_ns + 1)
        windows = windows.with_columns(
            pl.max_horizontal("start_ns", late), pl.min_horizontal("end_ns", soon)
        ).filter(pl.col("end_ns") > pl.col("start_ns"))
        if windows.is_empty():
            msg = (
                f"nothing ran in {report} in that time: it spans {axis.origin_ns / 1e9:.6f} s to"
                f" {events.last_ns / 1e9:.6f} s. Choose --from and --to inside it."
            )
            raise SelectionError(msg)
    if options.range is not None:
        paths = paths_named(attribution, options.range, report)
        projections = ops.join(attribution.projected(paths), on="node")
        windows = intersect(windows, _hulls(projections, ["range"]), axis)
        if windows.is_empty():
            msg = f"range {options.range!r} launched nothing in the selected part of {report}."
            raise SelectionError(msg)
    if options.steps:
        require_steps(steps, options.steps, report)
        windows = intersect(windows, selected_steps(steps, options.steps), axis)
        if windows.is_empty():
            raise SelectionError(
                f"{typed_steps(options.steps)} ran nothing in the selected part of {report}",
                "Leave out --range, --from and --to, or choose other steps",
            )
    return windows


def require_domains(known: set[str], options: Options, where: str) -> None:
    """Refuse an NVTX domain that is not one of the `known`, which are those of `where`.

    Raises:
        SelectionError: the report has no NVTX domain of that name.
    """
    for name in (*options.domains_added, *options.domains_removed):
        if name not in known:
            raise SelectionError(
                f"no NVTX domain {name!r} in {where}",
                near_or_all(name, sorted(known)) or "All ranges are in the default domain",
            )


def named_domains(ranges: pl.DataFrame) -> set[str]:
    """The NVTX domains of some ranges; the default domain has no name."""
    return {*ranges["domain"].drop_nulls().unique().cast(pl.String)}


def _of_device(windows: pl.DataFrame, events: Events, device: int) -> pl.DataFrame:
    devices = events.devices.select("device", "device_no").sort("device")
    chosen = devices.filter(pl.col("device") == device)
    if chosen.is_empty():
        known = ", ".join(map(str, devices["device"])) or "none"
        msg = f"no device {device} in {events.trace.report}. Devices with GPU work there: {known}."
        raise SelectionError(msg)
    windows = windows.join(chosen.select("device_no"), on="device_no", how="semi")
    if windows.is_empty():
        msg = f"no operation on device {device} in {events.trace.report} takes any time."
        raise SelectionError(msg)
    return windows


def _hulls(ops: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """From the first to the last operation of each group, per device."""
    lasting = ops.filter(pl.col("end_ns") > pl.col("start_ns"))
    return lasting.group_by("device_no", *key).agg(pl.col("start_ns").min(), pl.col("end_ns").max())
