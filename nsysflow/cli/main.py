"""The command line: parse, call, print. A command is imported when it is called or asked for its
options; polars and rich load inside the commands."""

import atexit
import codecs
import gc
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, TextIO

import click

import nsysflow
from nsysflow.base.endings import in_one_message
from nsysflow.base.errors import ExitCode, near_or_all
from nsysflow.base.progress import progress
from nsysflow.runs.resources import keep_memory, use_one_core_for

_HANDLER: Final = "nsysflow.plain"

_PLAIN: Final = {"█": "#", "▓": "=", "▒": "+", "░": ".", "·": "-", "…": "~"}
"""Replacements for the letters that bars are made of: as wide, and all different."""


def take_any_text(stream: TextIO | None) -> None:
    """Let a stream write another letter where its encoding lacks one, instead of raising."""
    if isinstance(stream, TextIOWrapper):
        codecs.register_error(_HANDLER, _plain)
        stream.reconfigure(errors=_HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return _PLAIN.get(error.object[error.start], "?"), error.start + 1


OBJECTS_BETWEEN_COLLECTIONS: Final = 200_000
"""Python looks for unused objects that refer to each other after so many new ones. With its default
of 700 it looks 134 times for a page. That takes a twentieth of the time and finds next to nothing,
as the 100,000 objects of a page are nearly all modules and what they define.
"""

_PATH = click.Path(path_type=Path, readable=False)  # the loader says it better, with exit code 1

SUMMARIES: Final = {
    "demo": "Analyse a real report that comes with nsysflow.",
    "profile": "Record a program and show what the GPU waited for.",
    "analyze": "Show what each GPU waited for in a report.",
    "show": "Open a report in the browser: its timeline, findings and tables.",
    "explain": "Explain a finding of a report, or a name.",
    "whatif": "Show what a change to a program would save.",
    "diff": "Show whether a step got faster, and what made the difference.",
    "check": "Check that a program is within its budgets.",
    "doctor": "Show what works here, and what to type for the rest.",
    "list": "List the built-in workloads and kernels.",
    "pack": "Make a copy of a report that is safe to share.",
    "cache": "List the reports whose answers are kept.",
    "mcp": "Let coding agents read the reports in FOLDER.",
    "skill": "Print a guide for coding agents.",
    "bench": "Check the fused kernels, and time them on a GPU.",
    "completion": "Print a script that makes your shell complete names.",
}
"""Each command and the first sentence of its help, in the order in which a newcomer needs them. The
sentences stand here too, so that `-h` imports no command: that took 0.07 of 0.20 s."""

_HOMES: Final = {
    "demo": ("main", "demo"),
    "doctor": ("main", "doctor"),
    "list": ("main", "list_all"),
    "pack": ("main", "pack"),
    "mcp": ("agents", "mcp"),
    "skill": ("agents", "skill"),
}
"""Where a command is that has no module of its own name: in `nsysflow.cli`, and by what name
there."""


class _Group(click.Group):
    """Commands that end alike, imported when they are looked up. A bug keeps its traceback."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with in_one_message():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with in_one_message():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*SUMMARIES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUMMARIES:
            return None
        module, attribute = _HOMES.get(cmd_name, (cmd_name, cmd_name))
        command: click.Command = getattr(import_module(f"nsysflow.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*SUMMARIES.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in SUMMARIES or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        msg = f"no command {name!r}. {near_or_all(name, SUMMARIES, where='nsysflow -h')}"
        raise click.UsageError(msg, ctx)


@click.group(
    cls=_Group,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
    epilog="Every command has its own page: nsysflow COMMAND -h. To complete names in your shell:"
    " nsysflow completion -h.",
)
@click.version_option(nsysflow.__version__, "-V", "--version", prog_name="nsysflow")
def main() -> None:
    """Show where a GPU waits, why, and what to change.

    \b
    Example:
        nsysflow demo
        nsysflow profile -- python train.py
        nsysflow analyze report.sqlite
    """
    keep_memory()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)  # Python would look through all objects twice before it ends
    take_any_text(sys.stdout)


@click.command()
def demo() -> None:
    """Analyse a real report that comes with nsysflow.

    It holds five training steps on an H200, with the line of code that the GPU waits for. You need
    neither a GPU nor nsys, and no file is written.

    \b
    Example:
        nsysflow demo
    """
    use_one_core_for([Path(nsysflow.__file__).with_name("samples")])  # before polars is imported
    from nsysflow.cli.output import page_printout
    from nsysflow.runs.analyze import analyze_demo

    with progress("analysing"):
        results = analyze_demo()
    page_printout(results, full=False, top=None, at_least_ns=0).show()
    click.echo("\nNow yours: nsysflow profile -- python train.py")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.option(
    "--forget-costs",
    is_flag=True,
    help="Forget what recording cost earlier programs on this machine.",
)
def doctor(*, as_json: bool, forget_costs: bool) -> None:
    """Show what works here, and what to type for the rest.

    Looks at nsys, the GPU and its driver, Python's packages and permissions, and tries nsys on a
    tiny program. The exit code is 1 if a GPU cannot be profiled here. Each `profile` that times a
    step without recording learns what recording costs here; others estimate the plain step by it.

    \b
    Example:
        nsysflow doctor
        nsysflow doctor --json
    """
    from nsysflow.base.screen import console, line_width, print_lines
    from nsysflow.record.doctor import diagnose, doctor_json, doctor_page
    from nsysflow.record.machine import look_at_machine

    if forget_costs:
        from nsysflow.runs.costs import forget_costs as forget

        forget()
    with progress("trying nsys"):
        machine = look_at_machine()
    diagnosis = diagnose(machine)
    if as_json:
        click.echo(doctor_json(diagnosis, machine.home))
    else:
        print_lines(console(), doctor_page(diagnosis, machine.home, width=line_width()))
    if not diagnosis.profile:
        sys.exit(ExitCode.FAILED)


@click.command()
@click.argument("report", type=_PATH)
@click.option(
    "-o",
    "--output",
    "out",
    type=_PATH,
    metavar="OUT",
    required=True,
    help="Write the copy here: a .sqlite or .pftrace, also compressed as .xz, .gz or .zst.",
)
def pack(report: Path, out: Path) -> None:
    """Make a copy of a report that is safe to share.

    An nsys export holds the program's whole environment, its command line, paths and process list.
    The copy keeps only what the analysis reads, so it gives the same numbers. Any other trace is
    copied in Perfetto's format, which needs nsysflow[perfetto].

    \b
    Example:
        nsysflow pack report.sqlite -o small.sqlite.xz
        nsysflow pack trace.json.gz -o small.pftrace.xz
    """
    from nsysflow.analysis.load.pack import pack as pack_report
    from nsysflow.nsys.run import exporter
    from nsysflow.runs.packed import is_for_perfetto, pack_trace
    from nsysflow.runs.sources import single_report

    report = single_report(report).path
    with progress("packing"):
        copy = pack_trace if is_for_perfetto(out) else pack_report
        copy(report, out, export=exporter(None))
    click.echo(f"wrote {out} ({_sizes(report, out)})", err=True)


def _sizes(report: Path, copy: Path) -> str:
    """How large a copy is, and its original if that is one file."""
    from nsysflow.base.units import size

    length = copy.stat().st_size
    if not report.is_file():
        return size(length)
    before = report.stat().st_size
    return f"{size(length)}, {'un' if length > before else ''}packed from {size(before)}"


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print them as one JSON document.")
def list_all(*, as_json: bool) -> None:
    """List the built-in workloads and kernels.

    Below each workload are its variants, for --variant.

    \b
    Example:
        nsysflow list
        nsysflow list --json
    """
    import json
    from dataclasses import asdict
    from textwrap import wrap

    from nsysflow.base.screen import line_width
    from nsysflow.catalog.catalog import kernels, workloads

    summaries = {kernel.name: kernel.summary for kernel in kernels()}
    if as_json:
        held = {"workloads": [asdict(workload) for workload in workloads()], "kernels": summaries}
        click.echo(json.dumps(held, indent=2))
        return
    rows = [
        (f"  {variant.name}", variant.summary) if variant else (workload.name, workload.summary)
        for workload in workloads()
        for variant in (None, *workload.variants)
    ]
    indent = max(len(name) for name, _ in (*rows, *summaries.items())) + 4
    for title, named in (("Workloads", rows), ("Kernels", summaries.items())):
        click.echo(f"{title}:")
        for name, summary in named:
            for number, line in enumerate(wrap(summary, line_width() - indent)):
                click.echo(f"{'' if number else f'  {name}':{indent}}{line}")
