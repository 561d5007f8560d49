"""report.json: the tables, what is judged, and the series of steps, in one JSON document."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import inf, nan
from typing import Any, Final

import polars as pl
import polars.selectors as cs

import nsysflow
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.events.kernel_classes import Rules
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES, with_traits
from nsysflow.analysis.tables.clocks import clock_means
from nsysflow.analysis.tables.index import declarations
from nsysflow.analysis.tables.report_tables import ReportTables
from nsysflow.base.names import printable_json
from nsysflow.compare.document import SCHEMA_VERSION
from nsysflow.report.phase_tree import phase_names, phase_tree
from nsysflow.report.results import Results
from nsysflow.report.step_times import run_steps, step_time
from nsysflow.report.validity import failures
from nsysflow.report.verdict import judge

PHASES: Final = 500
"""Nobody reads a tree with more phases; the table has all of them."""

Row = dict[str, Any]


def judged_json(results: Results, devices_of: Callable[[pl.DataFrame], Sequence[Row]]) -> str:
    """The judged steps, or the whole window where none are judged: each GPU with its number of
    steps, then the tree of phases over all GPUs. Figures are sums over the steps.

    Args:
        results: the run.
        devices_of: makes the rows of `devices` from an accounting.
    """
    judged, findings = results.judged, results.found
    devices = [
        {**row, "steps": judged.steps_on(row["report"], row["device"])}
        for row in devices_of(judged.table("accounting"))
    ]
    phases, left_out = phase_tree(judged, PHASES)
    contents = {
        "of_steps": judged.of_steps,
        "steps": judged.step_count,
        "step_ns": findings.typical_step_ns,
        "window_ns": sum(row["window_ns"] for row in devices),
        "devices": devices,
        "phases": [{**asdict(each), "time_ns": each.time_ns} for each in phases],
        "phases_left_out": left_out,
    }
    return json.dumps(contents, ensure_ascii=False, allow_nan=False)


_TRACK: Final = ("report", "process", "device")
_WHAT: Final = ("part", "kind", "name", "short_name", "grid", "phase", "source", "via")
_SUMS: Final = ("ns", "duration_ns", "count")


def series_json(results: Results) -> str:
    """The names of kernels, copies and culprits, and a track per process and GPU."""
    parts = pl.concat([_compared_parts(each) for each in results.analyses])
    names = parts[["name", "short_name"]].unique("name", keep="first", maintain_order=True)
    number = {name: at for at, name in enumerate(names["name"])}
    gpus, ranges, clocks = _gpus(results), _step_ranges(results), _clocks(results)
    tracks = []
    for (report, process, device), rows in parts.group_by(*_TRACK, maintain_order=True):
        track = {
            "report": report,
            "process": process,
            "device": device,
            "gpu": gpus.get((report, device)),
            **ranges.get((report, process), _NO_STEPS),
            **clocks.get((report, process, device), {}),
        }
        tracks.append(_track(track, rows, number))
    named = [json.dumps(row, ensure_ascii=False) for row in names.rows(named=True)]
    classes = results.analyses[0].options.kernel_classes
    parts_of_document = {
        "unit": json.dumps(_unit(parts, classes)),
        "names": _list(named),
        "tracks": _list(tracks),
    }
    return _object(parts_of_document)


_NO_STEPS: Final[dict[str, Any]] = {"step_name": None, "unprofiled_step_ns": None}


def _gpus(results: Results) -> dict[tuple[Any, ...], str | None]:
    """The name of each GPU, by report and index."""
    devices = results.table("accounting")[["report", "device", "name"]]
    return {(report, device): name for report, device, name in devices.rows()}


def _step_ranges(results: Results) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The range that is one step, and such a step before the window, by report and process."""
    key = ["report", "process"]
    measured = results.captures[[*key, "unprofiled_step_ns"]].unique(key, keep="first")
    names = results.together(lambda report: report.step_names)
    ranges = names.join(measured, on=key, how="left")
    return {tuple(row[:2]): dict(zip(_NO_STEPS, row[2:], strict=True)) for row in ranges.rows()}


def _clocks(results: Results) -> dict[tuple[Any, ...], dict[str, float]]:
    """The mean clock over the steps that are compared, where it is known, by report, process and
    GPU."""
    means = pl.concat(clock_means(_compared(each, each.clocks)) for each in results.analyses)
    known = means.select(*_TRACK, "sm_clock_mhz").drop_nulls("sm_clock_mhz").rows()
    return {tuple(key): {"sm_clock_mhz": round(mhz, _DECIMALS)} for *key, mhz in known}


def _compared_parts(tables: ReportTables) -> pl.DataFrame:
    """The STEP_PARTS of the steps that are compared, with `kind_of_step`, and of whole windows."""
    return _compared(tables, tables.step_parts)


def _compared(tables: ReportTables, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of the steps that are compared, with `kind_of_step`, and of whole windows."""
    key = ["process", "device", "step"]
    kind = pl.col("kind").cast(pl.String).alias("kind_of_step")
    steps = run_steps(tables).select(*key, kind)
    rows = rows.join(steps, on=key, how="left", maintain_order="left")
    return rows.filter(pl.col("step").is_null() | pl.col("kind_of_step").is_not_null())


def _unit(parts: pl.DataFrame, classes: Rules) -> str | None:
    """The arithmetic of most time in kernels that multiply matrices, as their names tell."""
    computing = parts.filter(pl.col("part") == "compute").group_by("name", "short_name")
    traits = with_traits(computing.agg(pl.col("duration_ns").sum()), classes)
    matrix = traits.filter(pl.col("class").is_in(MATRIX_CLASSES)).drop_nulls("unit")
    sums = matrix.group_by("unit").agg(pl.col("duration_ns").sum())
    most = sums.sort("duration_ns", "unit", descending=[True, False])
    return most["unit"][0] if len(most) else None


def _track(track: dict[str, Any], rows: pl.DataFrame, number: dict[str, int]) -> str:
    """One process on one GPU: its steps, and a row per part with what it took of each."""
    steps = (
        rows.group_by("step")
        .agg(pl.col("kind_of_step").first(), pl.col("ns").sum())
        .sort("step")
        .with_row_index("at")
    )
    placed = rows.join(steps[["step", "at"]], on="step", nulls_equal=True).sort("at")
    grouped = placed.group_by(*_WHAT, maintain_order=True).agg("at", *_SUMS).sort(*_WHAT)
    lines = [_row(row, number, len(steps)) for row in grouped.iter_rows(named=True)]
    series = {
        "steps": steps["step"].to_list(),
        "kinds": steps["kind_of_step"].to_list(),
        "duration_ns": steps["ns"].to_list(),
    }
    fields = {
        name: json.dumps(value, ensure_ascii=False) for name, value in (track | series).items()
    }
    return _object(fields | {"rows": _list(lines)})


def _row(row: dict[str, Any], number: dict[str, int], steps: int) -> str:
    """A part as JSON. `at` is left out where it is in every step, `duration_ns` where it adds
    nothing; `count` is one number where it is the same in each."""
    fields = {**row, "name": number[row["name"]]}
    del fields["short_name"]
    if len(row["at"]) == steps:
        del fields["at"]
    if row["part"] == "idle" or row["duration_ns"] == row["ns"]:
        del fields["duration_ns"]
    if len(set(row["count"])) == 1:
        fields["count"] = row["count"][0]
    known = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))


def _object(parts: dict[str, str]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in parts.items()) + "}"


def _list(lines: list[str]) -> str:
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


DEAREST: Final = 1_000
"""So many rows of `arrivals`, `rank_steps`, `starved` and `syncs` are in the document, those that
cost most: 64 ranks have some 100,000, and so have a million kernels. Nothing that reads the
document needs the others; they are in the CSV."""

_DECIMALS: Final = 6
"""Enough for a share of a second in ns, and stable in a diff."""


def report_json(results: Results) -> str:
    """The document: about the report, the verdict and what it is of, then the tables in their
    declared order, with one row per line."""
    return _document({**_judged_head(results), **_tables(results)})


def shown_json(results: Results, most: int) -> str:
    """What a page shows of that document: no `series`, and `most` rows of each table."""
    tables = _tables(results, without="series", most=most)
    return _document({**_judged_head(results), **tables})


def judged_part_json(results: Results, most: int) -> str:
    """What a page shows of the judged steps of that document: `verdict`, `time`, `judged`,
    `findings`, and `most` rows of `steps`."""
    findings = _json_rows(results.table("findings"))
    steps = _steps(results, most)
    return _document({**_judged_head(results), "findings": findings, "steps": steps})


def _judged_head(results: Results) -> dict[str, str]:
    return {
        **_head(results),
        "verdict": json.dumps(verdict(results), ensure_ascii=False),
        "time": json.dumps(step_times(results)),
        "judged": judged_json(results, _device_rows),
    }


def _time(results: Results) -> dict[str, Any] | None:
    """What a step takes; null where no steps are judged."""
    found = step_time(results)
    if found is None:
        return None
    pct = found.inflation_pct
    return {
        "step_ns": found.step_ns,
        "typical_step_ns": found.typical_step_ns,
        "recorded_step_ns": found.step_ns,
        "plain_step_ns": found.plain_step_ns,
        "undisturbed_step_ns": (
            results.found.undisturbed_step_ns if found.unrecorded_step_ns else None
        ),
        "inflation_pct": None if pct is None else round(pct, _DECIMALS),
    }


def step_times(results: Results) -> dict[str, Any] | None:
    """What a step takes, and without the profiler by estimate where none was timed; null where no
    steps are judged."""
    known, estimate = _time(results), results.found.plain_estimate
    if known is None:
        return None
    return {
        **known,
        "undisturbed_step_ns": results.found.undisturbed_step_ns,
        "plain_low_ns": None if estimate is None else estimate.low_ns,
        "plain_high_ns": None if estimate is None else estimate.high_ns,
        "plain_estimate": None if estimate is None else estimate.source,
    }


def _tables(
    results: Results, *, without: str | None = None, most: int | None = None
) -> dict[str, str]:
    """The tables, except the key `without`; `most` rows of each, or all."""
    parts = {}
    for table in declarations():
        if table.json_key not in (None, without):
            shaped = _SHAPES.get(table.name)
            rows = shaped(results, most) if shaped else _json_rows(results.table(table.name)[:most])
            parts[str(table.json_key)] = rows
    return parts


def compared_json(results: Results) -> str:
    """What a comparison needs of that document: no findings, and no other tables."""
    failed = failures(results)
    text = ". ".join(each.sentence for each in failed)
    judged = json.dumps({"valid": not failed, "text": text}, ensure_ascii=False)
    parts = {"verdict": judged, "time": json.dumps(_time(results)), "series": series_json(results)}
    return _document({**_head(results), **parts})


def _head(results: Results) -> dict[str, str]:
    """What the document is, and of which reports."""
    return {
        "schema": json.dumps(SCHEMA_VERSION),
        "tool": json.dumps({"name": "nsysflow", "version": nsysflow.__version__}),
        "report": json.dumps(about(results), ensure_ascii=False),
    }


def _document(parts: Mapping[str, str]) -> str:
    body = ",\n".join(f"{json.dumps(key)}: {text}" for key, text in parts.items())
    return printable_json(f"{{\n{body}\n}}\n")


def plain(table: pl.DataFrame) -> pl.DataFrame:
    """A table with rounded, finite numbers; others become null."""
    finite = cs.float().replace([nan, inf, -inf], None)
    return table.with_columns(finite.round(_DECIMALS))


def about(results: Results) -> dict[str, Any]:
    """Which reports these are, how they were narrowed, and what the reader should know."""
    return {
        "reports": [
            {"report": each.trace.report, "source": each.trace.source} for each in results.analyses
        ],
        **_of_many(results),
        "selection": results.selection,
        "notes": [{"kind": note.kind, "text": note.text} for note in results.all_notes],
    }


def _of_many(results: Results) -> dict[str, Any]:
    """Of many ranks, how many there are, and which of the reports stands for all."""
    if not results.many:
        return {}
    return {"ranks": len(results.table("ranks")), "typical": results.typical.reports[0]}


def verdict(results: Results) -> dict[str, Any]:
    """Whether the recording can be judged, what is concluded, and where to change it first."""
    judgement = judge(results)
    first = next((each.finding for each in results.found.valued), None)
    return {
        "valid": judgement.valid,
        "why": judgement.why,
        "bound": judgement.bound,
        "bound_pct": judgement.bound_pct,
        "phase": first.phase if first else None,
        "source": (first.source or None) if first else None,
        "text": judgement.text,
    }


def _devices(results: Results, most: int | None) -> str:
    """The accounting of the whole selection."""
    return _json_list(_device_rows(results.table("accounting")[:most]))


def _device_rows(accounting: pl.DataFrame) -> list[dict[str, Any]]:
    """Accounting with the causes under a key of their own."""
    causes = {f"{cause}_ns": cause for cause in CAUSES}
    devices = []
    for row in plain(accounting).iter_rows(named=True):
        device: dict[str, Any] = {}
        for column, value in row.items():
            if column in causes:
                device.setdefault("causes", {})[causes[column]] = value
            else:
                device[column] = value
        devices.append(device)
    return devices


def _phases(results: Results, most: int | None) -> str:
    """Phases with the list of names behind each path, since names may contain a `/`."""
    table = plain(results.table("phases")[:most])
    names = phase_names(table[["path", "depth"]].rows())
    rows = table.iter_rows(named=True)
    return _json_list([{**row, "names": list(each)} for row, each in zip(rows, names, strict=True)])


def steps_about(results: Results) -> dict[str, Any]:
    """Which range is a step, and how long one took before the window."""
    return {
        "name": results.step_name,
        "inferred": results.steps_inferred,
        "unprofiled_step_ns": results.unprofiled_step_ns,
    }


def _steps(results: Results, most: int | None) -> str:
    """The steps with the name of their range, and what each process says of its window."""
    fields = {
        name: json.dumps(value, ensure_ascii=False) for name, value in steps_about(results).items()
    }
    fields |= {
        "captures": _json_rows(results.captures),
        "rows": _json_rows(results.table("steps")[:most]),
    }
    return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in fields.items()) + "}"


def _dearest(name: str, cost: str, results: Results, most: int | None) -> str:
    """The rows of a table that cost most, in its order."""
    rows = results.table(name).with_row_index("row")
    dearest = rows.sort(cost, "row", descending=[True, False], nulls_last=True)
    return _json_rows(dearest.head(DEAREST).sort("row").drop("row")[:most])


_SHAPES: Final[Mapping[str, Callable[[Results, int | None], str]]] = {
    "accounting": _devices,
    "phases": _phases,
    "steps": _steps,
    "step_parts": lambda results, _: series_json(results),
    "arrivals": partial(_dearest, "arrivals", "cost_ns"),
    "rank_steps": partial(_dearest, "rank_steps", "cost_ns"),
    "starved": partial(_dearest, "starved", "launch_idle_ns"),
    "syncs": partial(_dearest, "syncs", "induced_idle_ns"),
}
"""The tables that are more or less than a list of their rows."""


def _json_rows(table: pl.DataFrame) -> str:
    # a line break inside a string is escaped, so the raw ones stand between rows
    lines = plain(table).write_ndjson().rstrip("\n")
    return "[\n" + lines.replace("\n", ",\n") + "\n]" if lines else "[]"


def _json_list(rows: Sequence[dict[str, Any]]) -> str:
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"
