"""report.html: the timeline, what is found, and all tables."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from nsysflow.report.document import shown_json
from nsysflow.report.html.contents import contents
from nsysflow.report.html.document import Kind, around, blob_data, json_data
from nsysflow.report.html.packing import Blobs, deflated
from nsysflow.report.html.ranks import heat_shown
from nsysflow.report.html.tables import MOST_ROWS
from nsysflow.report.html.timeline import timeline
from nsysflow.report.results import Results

COMMON: Final = (
    "units.js",
    *(
        f"page/{name}.js"
        for name in ("dom", "plain_table", "colours", "figures", "theme", "tips", "verdict", "ways")
    ),
    *(
        f"page/tables/{name}.js"
        for name in ("source", "filter", "order", "csv", "grid", "panel", "tabs")
    ),
    "page/print.js",
)
"""What pages of reports and of comparisons share."""

_TIMELINE: Final = {
    "rows": ("decode", "reports", "lanes", "gaps", "pyramid", "groups", "marks", "links", "load"),
    "picture": (
        *("theme", "raster", "bars", "axis", "labels", "layout", "titles", "surface"),
        *("overview", "arrows", "paint"),
    ),
    "use": (
        *("measure", "opening", "moving", "facts", "details", "hover", "search", "legend"),
        *("keys", "pointer"),
    ),
}
"""The scripts of the timeline: what is drawn, how, and what a reader does with it."""

PAGE: Final = Kind(
    body="page.html",
    scripts=(
        "state.js",
        *COMMON,
        *(
            f"page/{name}.js"
            for name in (
                *("places", "explained", "findings", "ranks", "gpu_time", "phases", "steps"),
                "flame",
                "start",
            )
        ),
        *(f"timeline/{part}/{name}.js" for part, names in _TIMELINE.items() for name in names),
        "timeline/start.js",
    ),
)


def write_html(results: Results, file: Path) -> None:
    """Write the run as a page for a browser.

    Args:
        results: the run.
        file: what to write.
    """
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        blobs = Blobs(pool)
        drawn = timeline(results, blobs)
        page = contents(results)
        heat = heat_shown(results, blobs)
        head, tail = around(PAGE, f"nsysflow: {page.reports}")
        with file.open("wb") as out:
            out.write(head)
            about = {"timeline": drawn, "page": page, "heat": heat}
            out.write(json_data("about", msgspec.json.encode(about)))
            out.write(blob_data("report", deflated(shown_json(results, MOST_ROWS).encode())))
            for name, text in blobs:
                out.write(blob_data(name, text))
            out.write(tail)
