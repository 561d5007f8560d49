"""The part `series` of report.json: step by step, what each took, for comparisons (spec §19)."""

import json
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.kernels import MATRIX_CLASSES, with_traits
from nsysflow.analysis.tables.kernels.classes import Rules
from nsysflow.report.analysed import Analysed
from nsysflow.report.results import Results

COMPARED: Final = ("steady", "one-off")
"""The kinds of steps that are compared: all after start-up that were recorded whole."""

_TRACK: Final = ("report", "process", "device")
_WHAT: Final = ("part", "kind", "name", "short_name", "grid", "phase", "source", "via")
_SUMS: Final = ("ns", "duration_ns", "count")


def series_json(results: Results) -> str:
    """The names of kernels, copies and culprits, and a track per process and GPU."""
    parts = pl.concat([_compared_parts(each) for each in results.analyses])
    names = parts.select("name", "short_name").unique("name", keep="first", maintain_order=True)
    number = {name: at for at, name in enumerate(names["name"])}
    gpus, ranges = _gpus(results), _step_ranges(results)
    tracks = []
    for (report, process, device), rows in parts.group_by(*_TRACK, maintain_order=True):
        about = {
            "report": report,
            "process": process,
            "device": device,
            "gpu": gpus.get((report, device)),
            **ranges.get((report, process), _NO_STEPS),
        }
        tracks.append(_track(about, rows, number))
    named = [json.dumps(row, ensure_ascii=False) for row in names.rows(named=True)]
    classes = results.analyses[0].options.kernel_classes
    held = {
        "unit": json.dumps(_unit(parts, classes)),
        "names": _list(named),
        "tracks": _list(tracks),
    }
    return _object(held)


_NO_STEPS: Final[dict[str, Any]] = {"step_name": None, "unprofiled_step_ns": None}


def _gpus(results: Results) -> dict[tuple[Any, ...], str | None]:
    """The name of each GPU, by report and index."""
    devices = results.table("accounting").select("report", "device", "name")
    return {(report, device): name for report, device, name in devices.rows()}


def _step_ranges(results: Results) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The range that is one step, and such a step unprofiled, by report and process."""
    key = ["report", "process"]
    measured = results.captures.select(*key, "unprofiled_step_ns").unique(key, keep="first")
    ranges = results.step_names.join(measured, on=key, how="left")
    return {tuple(row[:2]): dict(zip(_NO_STEPS, row[2:], strict=True)) for row in ranges.rows()}


def _compared_parts(analysis: Analysed) -> pl.DataFrame:
    """The STEP_PARTS of the steps that are compared, with `kind_of_step`."""
    key = ["process", "device", "step"]
    kind = pl.col("kind").cast(pl.String).alias("kind_of_step")
    steps = analysis.steps.select(*key, kind)
    rows = analysis.step_parts.join(steps, on=key, how="left", maintain_order="left")
    return rows.filter(pl.col("step").is_null() | pl.col("kind_of_step").is_in(COMPARED))


def _unit(parts: pl.DataFrame, classes: Rules) -> str | None:
    """The arithmetic of most time in kernels that multiply matrices, as their names tell."""
    computing = parts.filter(pl.col("part") == "compute").group_by("name", "short_name")
    traits = with_traits(computing.agg(pl.col("duration_ns").sum()), classes)
    matrix = traits.filter(pl.col("class").is_in(MATRIX_CLASSES)).drop_nulls("unit")
    sums = matrix.group_by("unit").agg(pl.col("duration_ns").sum())
    most = sums.sort("duration_ns", "unit", descending=[True, False])
    return most["unit"][0] if len(most) else None


def _track(about: dict[str, Any], rows: pl.DataFrame, number: dict[str, int]) -> str:
    """One process on one GPU: its steps, and a row per part with what it took of each."""
    steps = (
        rows.group_by("step")
        .agg(pl.col("kind_of_step").first(), pl.col("ns").sum())
        .sort("step")
        .with_row_index("at")
    )
    placed = rows.join(steps.select("step", "at"), on="step", nulls_equal=True).sort("at")
    grouped = placed.group_by(*_WHAT, maintain_order=True).agg("at", *_SUMS).sort(*_WHAT)
    lines = [_row(row, number, len(steps)) for row in grouped.iter_rows(named=True)]
    series = {
        "steps": steps["step"].to_list(),
        "kinds": steps["kind_of_step"].to_list(),
        "duration_ns": steps["ns"].to_list(),
    }
    held = {name: json.dumps(value, ensure_ascii=False) for name, value in (about | series).items()}
    return _object(held | {"rows": _list(lines)})


def _row(row: dict[str, Any], number: dict[str, int], steps: int) -> str:
    """A part as JSON. `at` is left out where it is in every step, `duration_ns` where it adds
    nothing; `count` is one number where it is the same in each."""
    kept = {**row, "name": number[row["name"]]}
    del kept["short_name"]
    if len(row["at"]) == steps:
        del kept["at"]
    if row["part"] == "idle" or row["duration_ns"] == row["ns"]:
        del kept["duration_ns"]
    if len(set(row["count"])) == 1:
        kept["count"] = row["count"][0]
    known = {name: value for name, value in kept.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))


def _object(parts: dict[str, str]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in parts.items()) + "}"


def _list(lines: list[str]) -> str:
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"
