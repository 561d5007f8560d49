"""The command line: parse, call, print. Polars and rich load inside the commands."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import nsysflow
from nsysflow.bench_options import KERNELS
from nsysflow.cli_bench import bench
from nsysflow.cli_profile import profile
from nsysflow.errors import NsysflowError
from nsysflow.options import TABLES, microseconds, split_domains, window_options
from nsysflow.progress import progress
from nsysflow.settings import configured

if TYPE_CHECKING:
    from nsysflow.report.results import Results

ALLOCATOR: Final = "narenas:1,oversize_threshold:0,dirty_decay_ms:-1"
"""Polars' allocator keeps the memory it got, for all threads: a frame of the analysis lives for
milliseconds, and giving it back to the system and asking again is what costs. 45 % fewer page
faults and 13 % less memory at 1 M kernels (docs/facts.md). Read when polars loads."""

_PATH = click.Path(path_type=Path, readable=False)  # the loader says it better, with exit code 1


class _Group(click.Group):
    """Print a NsysflowError as one message and its exit code; let bugs keep their traceback."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except NsysflowError as error:
            click.echo(f"nsysflow: {error}", err=True)
            sys.exit(error.exit_code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(nsysflow.__version__, prog_name="nsysflow")
def main() -> None:
    """Say where a GPU waits, why, and what to change.

    \b
    Example:
        nsysflow demo
        nsysflow profile -- python train.py
        nsysflow analyze report.sqlite
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", ALLOCATOR)


main.add_command(profile)
main.add_command(bench)


@main.command(cls=configured())
@click.argument("reports", nargs=-1, required=True, type=_PATH, metavar="REPORT...")
@click.option("-o", "--output", "folder", type=_PATH, metavar="DIR", help="Write the files here.")
@click.option("--force", is_flag=True, help="Write into a folder that nsysflow did not make.")
@click.option("--no-files", is_flag=True, help="Print only, write nothing.")
@click.option(
    "--table",
    type=click.Choice(TABLES),
    metavar="NAME",
    help=f"Print one table instead: {', '.join(TABLES)}.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "md", "parquet"]),
    help="How to print a table (default: gap_summary, as a table).",
)
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead.")
@click.option("--gaps-csv", type=_PATH, metavar="FILE", help="Write only gaps.csv; - is stdout.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Rows of each list.")
@click.option(
    "--min-gap-us",
    "at_least_ns",
    callback=microseconds,
    default="0",
    metavar="US",
    help="Leave shorter gaps out of lists and files; the sums keep them.",
)
@click.option(
    "--kernel-classes",
    "classes",
    type=_PATH,
    metavar="FILE",
    help="Classes of kernels of your own, tried before ours.",
)
@window_options
def analyze(
    reports: tuple[Path, ...],
    folder: Path | None,
    *,
    force: bool,
    no_files: bool,
    table: str | None,
    form: str | None,
    as_json: bool,
    gaps_csv: Path | None,
    top: int | None,
    at_least_ns: int,
    classes: Path | None,
    **window: Any,  # noqa: ANN401
) -> None:
    """Say what each GPU waited for in REPORT.

    A REPORT is an nsys export (.sqlite, also .xz, .gz or .zst; a parquetdir), an .nsys-rep, or a
    trace of torch.profiler. Several are the ranks of one run, and need -o.

    Prints a page and writes the tables to REPORT.nsysflow/. With --table, --json or --gaps-csv it
    gives that instead, and the tables only with -o.

    \b
    Example:
        nsysflow analyze report.sqlite
        nsysflow analyze rank0.sqlite rank1.sqlite -o run1
        nsysflow analyze report.sqlite --table kernels --top 20
        nsysflow analyze report.sqlite --gaps-csv - --min-gap-us 100 | head
    """
    if form is not None and table is None:
        table = "gap_summary"
    alone = [table is not None, as_json, gaps_csv is not None]
    _check_usage(folder, alone, no_files=no_files)
    from nsysflow import flow, show

    written = not no_files and (folder is not None or not any(alone))
    if written and folder is None and len(reports) > 1:
        msg = "several reports need -o DIR for the files, or --no-files"
        raise click.UsageError(msg)
    chosen = flow.output_folder(reports, folder, force=force) if written else None
    wanted = TABLES if written or as_json else flow.PAGE
    tables = (table,) if table is not None and not written else wanted
    results = _analyze(reports, window, classes, tables)
    if chosen is not None:
        with progress(f"writing {chosen}"):
            flow.write_folder(results, chosen, top=top, at_least_ns=at_least_ns)
    if table is not None:
        show.show_table(results, table, form or "table", top=top, at_least_ns=at_least_ns)
    elif as_json:
        show.show_json(results)
    elif gaps_csv == Path("-"):
        show.show_gaps(results, at_least_ns=at_least_ns)
    elif gaps_csv is not None:
        rows = flow.write_gaps(results, gaps_csv, reports, at_least_ns=at_least_ns)
        click.echo(f"wrote {gaps_csv}: {rows} gaps", err=True)
    else:
        show.show_page(results, top=top, at_least_ns=at_least_ns)
    if chosen is not None:
        click.echo(f"wrote {chosen}: summary.md, report.json and the tables as CSV", err=True)


@main.command()
def demo() -> None:
    """Analyse the report that comes with nsysflow.

    Five training steps on an H200, with the line that holds the GPU up. Needs no GPU and no
    nsys, and writes nothing.

    \b
    Example:
        nsysflow demo
    """
    from nsysflow import flow, show

    with progress("analysing"):
        results = flow.analyze_demo()
    show.show_page(results, top=None, at_least_ns=0)
    click.echo("\nNow yours: nsysflow profile --backtrace -- python train.py")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead.")
def doctor(*, as_json: bool) -> None:
    """Say what this machine can do, and what to type.

    Looks at nsys, the GPU and its driver, Python's packages and permissions, and tries nsys on a
    tiny program. Exits with 1 where profiling a GPU cannot work.

    \b
    Example:
        nsysflow doctor
        nsysflow doctor --json
    """
    from nsysflow.doctor import diagnosed, look
    from nsysflow.show import show_diagnosis

    with progress("trying nsys"):
        machine = look()
    diagnosis = diagnosed(machine)
    show_diagnosis(diagnosis, machine, json=as_json)
    if not diagnosis.profile:
        sys.exit(1)


@main.command()
@click.argument("report", type=_PATH)
@click.option("-o", "--output", "out", type=_PATH, metavar="OUT", required=True, help="The copy.")
def pack(report: Path, out: Path) -> None:
    """Copy REPORT to OUT, fit to share.

    An nsys export holds the program's whole environment, its command line, paths and process list.
    The copy keeps only what the analysis reads, and analyses to the same numbers.

    \b
    Example:
        nsysflow pack report.sqlite -o small.sqlite.xz
    """
    from nsysflow.analysis.pack import pack as pack_report
    from nsysflow.flow import the_report
    from nsysflow.nsys import exporter

    report = the_report(report)
    with progress("packing"):
        pack_report(report, out, export=exporter(None))
    whole = f" of {report.stat().st_size:,}" if report.is_file() else ""
    click.echo(f"wrote {out}: {out.stat().st_size:,}{whole} bytes", err=True)


@main.command("list")
@click.option("--json", "as_json", is_flag=True, help="As one document.")
def list_all(*, as_json: bool) -> None:
    """List the built-in workloads with their variants, and the kernels.

    \b
    Example:
        nsysflow list
        nsysflow list --json
    """
    from nsysflow.catalog import workloads

    if as_json:
        held = {"workloads": [asdict(each) for each in workloads()], "kernels": dict(KERNELS)}
        click.echo(json.dumps(held, indent=2))
        return
    rows = [
        (f"  {variant.name}", variant.summary) if variant else (each.name, each.summary)
        for each in workloads()
        for variant in (None, *each.variants)
    ]
    width = max(len(name) for name, _ in (*rows, *KERNELS.items()))
    for title, named in (("Workloads", rows), ("Kernels", KERNELS.items())):
        click.echo(f"{title}:")
        for name, summary in named:
            click.echo(f"  {name:{width}}  {summary}")


def _check_usage(folder: Path | None, alone: list[bool], *, no_files: bool) -> None:
    """Refuse options that contradict each other.

    Raises:
        click.UsageError: they do.
    """
    if sum(alone) > 1:
        msg = "--table, --json and --gaps-csv each want the output for themselves; choose one"
        raise click.UsageError(msg)
    if no_files and folder is not None:
        msg = "-o DIR and --no-files contradict each other"
        raise click.UsageError(msg)


def _analyze(
    reports: tuple[Path, ...],
    window: dict[str, Any],
    classes: Path | None,
    tables: tuple[str, ...],
) -> "Results":
    from nsysflow import flow
    from nsysflow.analysis.kernel_classes import read_kernel_classes
    from nsysflow.analysis.options import Options

    added, removed = split_domains(window.pop("domains"))
    rules = () if classes is None else read_kernel_classes(classes)
    with progress("analysing"):
        return flow.analyze_reports(
            reports,
            Options(domains_added=added, domains_removed=removed, kernel_classes=rules, **window),
            tables=tables,
        )
