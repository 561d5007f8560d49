"""report.json: all tables but the single gaps in one JSON document; of two, the dearest rows."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, nan
from typing import Any, Final

import polars as pl
import polars.selectors as cs

import nsysflow
from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.tables import DECLARED
from nsysflow.compare.document import SCHEMA_VERSION
from nsysflow.report.judged import judged_json
from nsysflow.report.phase_tree import phase_names
from nsysflow.report.results import Results
from nsysflow.report.series import series_json
from nsysflow.report.verdict.judgement import judge
from nsysflow.report.verdict.validity import failures

DEAREST: Final = 1_000
"""So many rows of `arrivals` and `rank_steps` are in the document, those with the largest cost: 64
ranks have some 100,000. Nothing that reads the document needs the others; they are in the CSV."""

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


def _judged_head(results: Results) -> dict[str, str]:
    return {
        **_head(results),
        "verdict": json.dumps(verdict(results), ensure_ascii=False),
        "judged": judged_json(results, _device_rows),
    }


def _tables(
    results: Results, *, without: str | None = None, most: int | None = None
) -> dict[str, str]:
    """The tables, except the key `without`; `most` rows of each, or all."""
    parts = {}
    for table in DECLARED:
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
    return _document({**_head(results), "verdict": judged, "series": series_json(results)})


def _head(results: Results) -> dict[str, str]:
    """What the document is, and of which reports."""
    return {
        "schema": json.dumps(SCHEMA_VERSION),
        "tool": json.dumps({"name": "nsysflow", "version": nsysflow.__version__}),
        "report": json.dumps(about(results), ensure_ascii=False),
    }


def _document(parts: Mapping[str, str]) -> str:
    body = ",\n".join(f"{json.dumps(key)}: {text}" for key, text in parts.items())
    return f"{{\n{body}\n}}\n"


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
        "notes": [{"kind": note.kind, "text": note.text} for note in results.notes],
    }


def _of_many(results: Results) -> dict[str, Any]:
    """Of many ranks, how many there are, and which of the reports stands for all."""
    if not results.many:
        return {}
    return {"ranks": len(results.table("ranks")), "typical": results.typical.reports[0]}


def verdict(results: Results) -> dict[str, Any]:
    """Whether the recording can be judged, what is concluded, and where to change it first."""
    found = judge(results)
    first = next((each.finding for each in results.found.valued), None)
    return {
        "valid": found.valid,
        "why": found.why,
        "bound": found.bound,
        "bound_pct": found.bound_pct,
        "phase": first.phase if first else None,
        "source": (first.source or None) if first else None,
        "text": found.text,
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
    names = phase_names(table.select("path", "depth").rows())
    rows = table.iter_rows(named=True)
    return _json_list([{**row, "names": list(each)} for row, each in zip(rows, names, strict=True)])


def _steps(results: Results, most: int | None) -> str:
    """The steps with the name of their range, and what each process says of its window."""
    about = {
        "name": json.dumps(results.step_name, ensure_ascii=False),
        "unprofiled_step_ns": json.dumps(results.unprofiled_step_ns),
        "captures": _json_rows(results.captures),
        "rows": _json_rows(results.table("steps")[:most]),
    }
    return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in about.items()) + "}"


def _dearest(name: str, results: Results, most: int | None) -> str:
    """The rows of a table that cost most, in its order."""
    rows = results.table(name).with_row_index("row")
    dearest = rows.sort("cost_ns", "row", descending=[True, False], nulls_last=True)
    return _json_rows(dearest.head(DEAREST).sort("row").drop("row")[:most])


_SHAPES: Final[Mapping[str, Callable[[Results, int | None], str]]] = {
    "accounting": _devices,
    "phases": _phases,
    "steps": _steps,
    "step_parts": lambda results, _: series_json(results),
    "arrivals": partial(_dearest, "arrivals"),
    "rank_steps": partial(_dearest, "rank_steps"),
}
"""The tables that are more or less than a list of their rows."""


def _json_rows(table: pl.DataFrame) -> str:
    # a line break inside a string is escaped, so the raw ones stand between rows
    lines = plain(table).write_ndjson().rstrip("\n")
    return "[\n" + lines.replace("\n", ",\n") + "\n]" if lines else "[]"


def _json_list(rows: Sequence[dict[str, Any]]) -> str:
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"
