"""The command line: parse, call, print. Polars and rich load inside the commands."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

import nsysflow
from nsysflow.catalog import kernels, workloads
from nsysflow.cli.analyze import analyze
from nsysflow.cli.bench import bench
from nsysflow.cli.encoding import take_any_text
from nsysflow.cli.profile import profile
from nsysflow.cli.whatif import whatif
from nsysflow.errors import NsysflowError
from nsysflow.progress import progress

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
    take_any_text(sys.stdout)


main.add_command(profile)
main.add_command(analyze)
main.add_command(bench)
main.add_command(whatif)


@main.command()
def demo() -> None:
    """Analyse the report that comes with nsysflow.

    Five training steps on an H200, with the line that holds the GPU up. Needs no GPU and no
    nsys, and writes nothing.

    \b
    Example:
        nsysflow demo
    """
    from nsysflow.cli import output as show
    from nsysflow.runs.analyze import analyze_demo

    with progress("analysing"):
        results = analyze_demo()
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
    from nsysflow.cli.output import show_diagnosis
    from nsysflow.doctor import diagnose, look

    with progress("trying nsys"):
        machine = look()
    diagnosis = diagnose(machine)
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
    from nsysflow.analysis.load.pack import pack as pack_report
    from nsysflow.nsys import exporter
    from nsysflow.runs.sources import single_report

    report = single_report(report)
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
    summaries = {kernel.name: kernel.summary for kernel in kernels()}
    if as_json:
        held = {"workloads": [asdict(each) for each in workloads()], "kernels": summaries}
        click.echo(json.dumps(held, indent=2))
        return
    rows = [
        (f"  {variant.name}", variant.summary) if variant else (each.name, each.summary)
        for each in workloads()
        for variant in (None, *each.variants)
    ]
    width = max(len(name) for name, _ in (*rows, *summaries.items()))
    for title, named in (("Workloads", rows), ("Kernels", summaries.items())):
        click.echo(f"{title}:")
        for name, summary in named:
            click.echo(f"  {name:{width}}  {summary}")
