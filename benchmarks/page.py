"""Measure report.html: how long it takes to write, how large it is, how quickly a browser shows it.

    python -m benchmarks.page --kernels 1_000_000

A real report is repeated in time until it has so many kernels (big_trace.py). `analyze` and
`analyze --html` are run in turn. Then a headless Chromium opens the page: first paint, until all is
decoded, and each step of zooming and panning, from the event until the next frame is drawn. Rows go
to the screen and, with machine and versions, to a CSV file.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.analyze import (
    NSYSFLOW,
    TRACES,
    add_rows,
    big_trace,
    machine,
    report_option,
    rows_option,
    run,
)
from tests.browser import program

WATCH_PAINT: Final = """
    new PerformanceObserver((seen) => {
        for (const each of seen.getEntries()) window[each.name] = each.startTime;
    }).observe({ type: "paint", buffered: true });
"""

STEP: Final = """
(name) => {
  const canvas = document.getElementById("timeline-canvas");
  const drawn = () => new Promise((done) => requestAnimationFrame(() => {
    const after = new MessageChannel();
    after.port1.onmessage = done;
    after.port2.postMessage(0);
  }));
  const real = { bubbles: true, cancelable: true };
  const wheels = { in: -120, out: 120 };
  const box = canvas.getBoundingClientRect();
  const event = name in wheels
    ? new WheelEvent("wheel", {
        clientX: box.left + 0.6 * box.width, clientY: box.top + 100, deltaY: wheels[name], ...real,
      })
    : new KeyboardEvent("keydown", { key: name, ...real });
  const began = performance.now();
  canvas.dispatchEvent(event);
  return drawn().then(() => performance.now() - began);
}
"""
"""Does one step; gives the milliseconds until the next frame is drawn."""

WALK: Final = (
    "0",
    *(6 * (12 * ("in",) + 6 * ("ArrowRight",) + 6 * ("ArrowLeft",))),
    *(72 * ("out",)),
)
"""From the whole trace to single kernels in 72 steps, with pans in between, and back."""


@dataclass(frozen=True)
class Figure:
    """One thing measured: the median, and the worst of them."""

    what: str
    values: list[float]
    unit: str

    def row(self) -> dict[str, str]:
        """As columns."""
        return {
            "what": self.what,
            "median": f"{median(self.values):.4g}",
            "worst": f"{max(self.values):.4g}",
            "unit": self.unit,
        }


def writing(trace: Path, repeat: int, page: Path) -> Iterator[Figure]:
    """The time and memory of `analyze` without and with the page, run in turn; leaves the page."""
    without: list[tuple[float, float]] = []
    with_page: list[tuple[float, float]] = []
    for _ in range(repeat):
        for runs, options in ((without, []), (with_page, ["--html"])):
            with tempfile.TemporaryDirectory(dir=TRACES) as folder:
                out = Path(folder, "out")
                runs.append(run(NSYSFLOW, "analyze", trace, "-o", out, *options)[:2])
                if options:
                    (out / "report.html").replace(page)
    for what, runs in (("analyze", without), ("analyze --html", with_page)):
        yield Figure(what, [seconds for seconds, _ in runs], "s")
        yield Figure(f"{what}, peak memory", [peak_mb for _, peak_mb in runs], "MB")
    yield Figure("report.html", [page.stat().st_size / 1e6], "MB")


def showing(browser: Browser, page: Path, repeat: int) -> Iterator[Figure]:
    """What a reader waits for."""
    seen: dict[str, list[float]] = {"first paint": [], "all decoded": []}
    for _ in range(repeat):
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        opened.add_init_script(WATCH_PAINT)
        opened.goto(page.as_uri())
        opened.wait_for_selector("html[data-timeline=ready]", state="attached")
        seen["all decoded"].append(opened.evaluate("performance.now()"))
        seen["first paint"].append(opened.evaluate("window['first-contentful-paint']"))
        for step, wall_ms, cpu_ms in walked(opened):
            kind = "zoom step" if step in ("in", "out") else "pan step"
            seen.setdefault(kind, []).append(wall_ms)
            seen.setdefault(f"{kind}, CPU of the main thread", []).append(cpu_ms)
        opened.close()
    yield from (Figure(what, values, "ms") for what, values in seen.items())


def walked(page: Page) -> Iterator[tuple[str, float, float]]:
    """Each step of the walk, until the next frame is drawn: the time that passed, and the CPU time,
    which other programs do not lengthen."""
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cpu_ms() -> float:
        metrics = {
            each["name"]: each["value"] for each in tools.send("Performance.getMetrics")["metrics"]
        }
        return 1000 * float(metrics["ThreadTime"])

    page.focus("#timeline-canvas")
    for number, step in enumerate(WALK):
        before_ms = cpu_ms()
        wall_ms = page.evaluate(STEP, step)
        if number:  # the first only brings the whole trace into view
            yield step, wall_ms, cpu_ms() - before_ms


def measured(trace: Path, repeat: int) -> Iterator[dict[str, str | int]]:
    """Rows for one trace, with the browser's version."""
    page = trace.with_suffix(".html")
    figures = [*writing(trace, repeat, page)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        figures += showing(browser, page, repeat)
        for figure in figures:
            yield {"chromium": browser.version, **figure.row()}
        browser.close()


@click.command()
@click.option("--kernels", default="10_000,1_000_000", show_default=True, help="Sizes of traces.")
@click.option("--repeat", default=3, show_default=True, help="Runs of everything.")
@report_option
@rows_option("page.csv")
def main(kernels: str, repeat: int, report: Path, rows_file: Path) -> None:
    """Measure the page of a big trace made from a real report."""
    for size in map(int, kernels.split(",")):
        shared = machine() | {"report": report.name.split(".")[0], "kernels": size}
        rows = [shared | row for row in measured(big_trace(report, size), repeat)]
        for row in rows:
            figures = f"{row['median']:>9}{row['worst']:>9} {row['unit']}"
            click.echo(f"{size:>9,}  {row['what']:<30}{figures}")
        add_rows(rows_file, rows)


if __name__ == "__main__":
    os.environ["NSYSFLOW_CACHE"] = "off"  # each process reads the report itself
    main()
