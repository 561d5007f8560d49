"""The tables as files: CSV for people and diff, Parquet for programs, and report.json."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf, nan
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import polars as pl
import polars.selectors as cs

import nsysflow
from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.tables import TABLES
from nsysflow.report.phase_tree import phase_names
from nsysflow.report.results import Results

SCHEMA_VERSION: Final = 1
"""Of report.json: additions keep it, a change of meaning raises it."""

_IN_JSON_ONLY: Final = ("accounting", "gap_histogram", "integrity")
CSV_TABLES: Final = tuple(name for name in TABLES if name not in _IN_JSON_ONLY)
"""The tables that become a CSV file of their own."""

WHERE_THERE: Final = ("gpu_metrics", "mfu", "arrivals", "ranks")
"""Those of them that are written only where they have rows: most reports sample no counters, say
nothing of FLOPs, and are of one rank."""

GapsFormat = Literal["auto", "csv", "parquet"]
"""How the file of all gaps is written; `auto` takes Parquet where CSV would be large."""

GAPS_CSV: Final = "gaps.csv"
GAPS_PARQUET: Final = "gaps.parquet"
LARGEST_GAPS_CSV_BYTES: Final = 50_000_000
"""Larger ones open slowly in an editor or a spreadsheet."""

_SAMPLED_ROWS: Final = 1000

_DECIMALS: Final = 6
"""Enough for a share of a second in ns, and stable in a diff."""


def named_table(results: Results, name: str, *, at_least_ns: int = 0) -> pl.DataFrame:
    """A table as it is written; of gaps only those of `at_least_ns` and longer."""
    table = results.table(name)
    return table.filter(pl.col("duration_ns") >= at_least_ns) if name == "gaps" else table


def write_csv(table: pl.DataFrame, target: Path | BinaryIO) -> None:
    """Comma, newline, UTF-8, plain numbers, nothing for null."""
    _plain(table).write_csv(target, float_scientific=False)


def write_gaps_csv(results: Results, target: BinaryIO, *, at_least_ns: int = 0) -> int:
    """The gaps of `at_least_ns` and longer as CSV, slice by slice; returns how many."""
    rows = 0
    for index, gaps in enumerate(results.gap_slices(at_least_ns)):
        _plain(gaps).write_csv(target, include_header=index == 0, float_scientific=False)
        rows += len(gaps)
    return rows


def write_parquet(table: pl.DataFrame, target: Path | BinaryIO) -> None:
    """The same columns with their types."""
    table.write_parquet(target)


def write_files(
    results: Results, folder: Path, *, at_least_ns: int = 0, gaps_format: GapsFormat = "auto"
) -> None:
    """Every table's file and report.json into an existing folder."""
    # half of the writing is the gaps; the other tables are computed meanwhile
    with ThreadPoolExecutor(max_workers=1) as writer:
        written = writer.submit(
            _write_gaps, results, folder, form=gaps_format, at_least_ns=at_least_ns
        )
        for name in CSV_TABLES:
            if name == "gaps":
                continue
            table = results.table(name)
            if name not in WHERE_THERE or not table.is_empty():
                write_csv(table, folder / f"{name}.csv")
        (folder / "report.json").write_text(report_json(results), encoding="utf-8")
        written.result()


def _write_gaps(results: Results, folder: Path, *, form: GapsFormat, at_least_ns: int) -> None:
    """gaps.csv, or gaps.parquet if that is asked for or the CSV would be too large."""
    large = form == "auto" and _gaps_csv_bytes(results, at_least_ns) > LARGEST_GAPS_CSV_BYTES
    if form == "parquet" or large:
        write_parquet(named_table(results, "gaps", at_least_ns=at_least_ns), folder / GAPS_PARQUET)
        return
    with (folder / GAPS_CSV).open("wb") as file:
        write_gaps_csv(results, file, at_least_ns=at_least_ns)


def _gaps_csv_bytes(results: Results, at_least_ns: int) -> float:
    """About how long gaps.csv gets: its first rows stand for all."""
    sample = next(iter(results.gap_slices(at_least_ns))).head(_SAMPLED_ROWS)
    sampled = len(_plain(sample).write_csv(include_header=False).encode())
    return sampled / max(len(sample), 1) * results.count_gaps(at_least_ns)


def report_json(results: Results) -> str:
    """All tables but the per-gap rows as one JSON document, a row a line."""
    rows = _json_rows
    parts = {
        "schema": json.dumps(SCHEMA_VERSION),
        "tool": json.dumps({"name": "nsysflow", "version": nsysflow.__version__}),
        "report": json.dumps(_about(results), ensure_ascii=False),
        "devices": _json_list(_devices(results)),
        "phases": _json_list(_phases(results)),
        **{
            name: rows(results.table(name))
            for name in ("syncs", "starved", "kernels", "launches", "copies", "comm")
        },
        "gap_summary": rows(results.table("gap_summary")),
        "gap_histogram": rows(results.table("gap_histogram")),
        "steps": _steps(results),
        "gpu_metrics": rows(results.table("gpu_metrics")),
        "mfu": rows(results.table("mfu")),
        "arrivals": rows(results.table("arrivals")),
        "ranks": rows(results.table("ranks")),
        "findings": "[]",
        "integrity": rows(results.table("integrity")),
    }
    body = ",\n".join(f"{json.dumps(key)}: {text}" for key, text in parts.items())
    return f"{{\n{body}\n}}\n"


def _plain(table: pl.DataFrame) -> pl.DataFrame:
    finite = cs.float().replace([nan, inf, -inf], None)
    return table.with_columns(finite.round(_DECIMALS))


def _json_rows(table: pl.DataFrame) -> str:
    # a line break inside a string is escaped, so the raw ones stand between rows
    lines = _plain(table).write_ndjson().rstrip("\n")
    return "[\n" + lines.replace("\n", ",\n") + "\n]" if lines else "[]"


def _json_list(rows: Sequence[dict[str, Any]]) -> str:
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def _about(results: Results) -> dict[str, Any]:
    return {
        "reports": [
            {"report": each.trace.report, "source": each.trace.source} for each in results.analyses
        ],
        "selection": results.selection,
        "notes": [{"kind": note.kind, "text": note.text} for note in results.notes],
    }


def _devices(results: Results) -> list[dict[str, Any]]:
    """Accounting with the causes under a key of their own."""
    causes = {f"{cause}_ns": cause for cause in CAUSES}
    found = []
    for row in _plain(results.table("accounting")).iter_rows(named=True):
        device: dict[str, Any] = {}
        for column, value in row.items():
            if column in causes:
                device.setdefault("causes", {})[causes[column]] = value
            else:
                device[column] = value
        found.append(device)
    return found


def _phases(results: Results) -> list[dict[str, Any]]:
    """Phases with the list of names behind each path, since names may hold a `/`."""
    table = _plain(results.table("phases"))
    names = phase_names(table.select("path", "depth").rows())
    rows = table.iter_rows(named=True)
    return [{**row, "names": list(each)} for row, each in zip(rows, names, strict=True)]


def _steps(results: Results) -> str:
    about = {
        "name": json.dumps(results.step_name, ensure_ascii=False),
        "unprofiled_step_ns": json.dumps(results.unprofiled_step_ns),
        "captures": _json_rows(results.captures),
        "rows": _json_rows(results.table("steps")),
    }
    return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in about.items()) + "}"
