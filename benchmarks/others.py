"""Compare with other analysers: the same report, in turn.

    python -m benchmarks.others --kernels 1_000_000 --nsys nsys --hta PYTHON

A real report is repeated in time until it has so many kernels (big_trace.py). `nsys stats` makes
its summaries of it, nsysflow its page and all its files. Then the same kernels, calls and ranges as
torch.profiler writes them: HTA (HolisticTraceAnalysis, installed for the Python that --hta names)
computes its breakdowns of time and idle time, nsysflow its page. Each runs in a process of its own.
Medians go to the screen and, with machine and versions, to a CSV file.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from benchmarks.analyze import (
    NSYSFLOW,
    TRACES,
    Result,
    add_rows,
    big_trace,
    machine,
    medians,
    report_option,
    rows_option,
    run,
)

NSYS_REPORTS: Final = (
    "nvtx_sum",
    "osrt_sum",
    "cuda_api_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_gpu_trace",
)
"""Those that a look at a CUDA program starts with."""

HTA: Final = """
import sys
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
trace.get_temporal_breakdown(visualize=False)
trace.get_gpu_kernel_breakdown(visualize=False)
trace.get_idle_time_breakdown(visualize=False)
trace.get_cuda_kernel_launch_stats(visualize=False)
"""


WRITE_KINETO: Final = """
import sys
from pathlib import Path
from benchmarks.formats import kineto_text
from nsysflow.analysis.load import load
with open(sys.argv[2], "w", encoding="utf-8") as text:
    text.writelines(kineto_text(load(Path(sys.argv[1]))))
"""


def kineto_trace(trace: Path) -> Path:
    """The same trace as torch.profiler writes it, made unless an earlier run left it."""
    path = trace.with_suffix(".pt.trace.json")
    if not path.exists():
        part = path.with_suffix(".part")
        run(sys.executable, "-c", WRITE_KINETO, trace, part)
        part.rename(path)
    return path


def measure(trace: Path, nsys: str | None, hta: str | None) -> Iterator[Result]:
    """Everything once."""
    with tempfile.TemporaryDirectory(dir=TRACES) as folder:
        yield run(NSYSFLOW, "analyze", trace, "--no-files").as_result("nsysflow, page")
        yield run(NSYSFLOW, "analyze", trace, "-o", Path(folder, "out")).as_result(
            "nsysflow, all files"
        )
        if nsys:
            reports = [f"--report={name}" for name in NSYS_REPORTS]
            to = ("--format=csv", f"--output={folder}/nsys")
            yield run(nsys, "stats", *reports, *to, trace).as_result("nsys stats, 7 reports")
            made = sum(file.stat().st_size > 0 for file in Path(folder).glob("nsys_*.csv"))
            if made < len(NSYS_REPORTS):
                raise click.ClickException(f"nsys stats wrote {made} of {len(NSYS_REPORTS)} files")
    if hta:
        kineto = kineto_trace(trace)
        yield run(NSYSFLOW, "analyze", kineto, "--no-files").as_result("nsysflow, page of Kineto")
        yield run(hta, "-c", HTA, kineto).as_result("HTA, 4 breakdowns")


@click.command()
@click.option("--kernels", default="1_000_000", show_default=True, help="Size of the trace.")
@click.option("--repeat", default=5, show_default=True, help="Runs; the median is kept.")
@click.option("--nsys", help="The nsys whose `stats` is run.")
@click.option("--hta", help="A Python that has HolisticTraceAnalysis.")
@report_option
@rows_option("others.csv")
def main(
    kernels: str, *, repeat: int, nsys: str | None, hta: str | None, report: Path, rows_file: Path
) -> None:
    """Time other analysers on the same report."""
    trace = big_trace(report, int(kernels))
    results = medians(result for _ in range(repeat) for result in measure(trace, nsys, hta))
    for each in results:
        click.echo(
            f"{each.what:<26}{each.seconds:8.2f} s{each.cpu_s:8.2f} s of CPU{each.peak_mb:8.0f} MB"
        )
    rows: list[dict[str, str | int]] = [
        {
            **machine(),
            "report": report.name.split(".")[0],
            "kernels": int(kernels),
            "what": each.what,
            "seconds": f"{each.seconds:.3f}",
            "peak_mb": f"{each.peak_mb:.0f}",
            "cpu_s": f"{each.cpu_s:.3f}",
        }
        for each in results
    ]
    add_rows(rows_file, rows)


if __name__ == "__main__":
    os.environ["NSYSFLOW_CACHE"] = "off"  # each process reads the report itself
    main()
