"""`nsysflow diff`: did it get better, and why?"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import click

from nsysflow.base.progress import progress
from nsysflow.cli.options import Command, option

if TYPE_CHECKING:
    from rich.text import Text

    from nsysflow.compare.comparison import Comparison, Stage

Form: TypeAlias = Literal["md", "json", "csv"]

_PATH: Final = click.Path(path_type=Path, readable=False)  # the loader says it better: exit code 1

_SIDES: Final = "What to compare"
_PRINT: Final = "What to print"
_WRITE: Final = "What to write"


class _Diff(Command):
    """A command of which `--base` and `--new` take all paths that follow."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args))


def spread(args: Sequence[str]) -> list[str]:
    """`--base a b c --new d` as `--base a --base b --base c --new d`, which click understands."""
    words: list[str] = []
    side = None
    for index, word in enumerate(args):
        if word.startswith("-"):
            side = word if word in ("--base", "--new") else None
            if side is None or args[index + 1 : index + 2] == [] or args[index + 1][:1] == "-":
                words.append(word)
        else:
            words += [word] if side is None else [side, word]
    return words


@click.command(cls=_Diff)
@click.argument("reports", nargs=-1, type=_PATH, metavar="[BASE NEW]")
@option(
    "--base",
    section=_SIDES,
    multiple=True,
    type=_PATH,
    metavar="REPORT...",
    help="Captures from before the change; give three or more, as runs differ.",
)
@option(
    "--new",
    section=_SIDES,
    multiple=True,
    type=_PATH,
    metavar="REPORT...",
    help="Captures from after the change.",
)
@option("--step", section=_SIDES, metavar="NVTX", help="Take this range as one step.")
@option(
    "--force",
    section=_SIDES,
    is_flag=True,
    help="Compare even if GPUs, ranks, precision, steps or kernels differ.",
)
@option(
    "--html",
    section=_WRITE,
    type=_PATH,
    metavar="FILE",
    help="Also write the comparison to FILE, for a browser.",
)
@option("--full", section=_PRINT, is_flag=True, help="Print all rows, not one screen.")
@option("--md", "form", section=_PRINT, flag_value="md", help="Print Markdown for a pull request.")
@option("--json", "form", section=_PRINT, flag_value="json", help="Print a JSON document.")
@option(
    "--csv",
    "form",
    section=_PRINT,
    flag_value="csv",
    help="Print a row per kernel, copy and wait as CSV.",
)
@option(
    "--figures",
    section=_WRITE,
    type=_PATH,
    metavar="DIR",
    help="Also draw the bridge, as SVG and PNG in DIR.",
)
def diff(
    reports: tuple[Path, ...],
    base: tuple[Path, ...],
    new: tuple[Path, ...],
    step: str | None,
    html: Path | None,
    form: "Form | None",
    figures: Path | None,
    *,
    force: bool,
    full: bool,
) -> None:
    """Show whether a step got faster, and what made the difference.

    BASE and NEW are captures of a program before and after a change: reports, folders of runs, or
    the report.json that analyze writes. Reports that differ only in their rank are one capture.
    All steps after start-up are compared. More than two captures give a table over time.

    \b
    Example:
        nsysflow diff before.sqlite after.sqlite
        nsysflow diff --base a b c --new d e f
        nsysflow diff before/report.json after/report.json --md
        nsysflow diff before.sqlite after.sqlite --html diff.html
        nsysflow diff monday tuesday wednesday
    """
    _check_usage(reports, base, new)
    from nsysflow.cli.exports import check_folder, write_of_comparison
    from nsysflow.compare.comparison import compared, over_time
    from nsysflow.report.diff import require_comparable
    from nsysflow.runs.captures import sides_of

    if figures is not None:
        check_folder(figures, "comparison")
    with progress("analysing") as watching:
        alone, before, after = sides_of((reports, base, new), step=step, progress=watching)
    if len(alone) > 2:
        if html is not None or figures is not None:
            raise click.UsageError(_two_sides("--html" if html is not None else "--figures"))
        stages = over_time(alone)
        require_comparable((stage.since_first for stage in stages), force=force)
        _show_over_time(stages, form)
        return
    if reports:
        before, after = alone[:1], alone[1:]
    if not after:
        msg = f"{reports[0]} and the others are ranks of one capture: name a second capture"
        raise click.UsageError(msg)
    comparison = compared(before, after)
    require_comparable([comparison], force=force)
    if html is not None:
        _write_html(comparison, html, [*reports, *base, *new])
    _show(comparison, form, full=full)
    if figures is not None:
        write_of_comparison(comparison, figures)


def _two_sides(option: str) -> str:
    """Why a table over time cannot have that option."""
    return f"{option} shows two sides: name two captures, or several with --base A B --new C D"


def _write_html(comparison: "Comparison", file: Path, reports: Sequence[Path]) -> None:
    """Write the page of a comparison."""
    from nsysflow.report.html.diff import diff_html
    from nsysflow.runs.captures import files_of
    from nsysflow.runs.files import write_text

    write_text(diff_html(comparison), file, files_of(reports))
    click.echo(f"wrote {file}: open it in a browser", err=True)


def _check_usage(reports: Sequence[Path], base: Sequence[Path], new: Sequence[Path]) -> None:
    """Refuse what does not go together."""
    if reports and (base or new):
        msg = "give two captures, or both --base and --new, but not all of them"
    elif bool(base) != bool(new):
        msg = f"{'--new' if base else '--base'} is missing: nsysflow diff --base a b c --new d e f"
    elif not base and len(reports) < 2:
        msg = "give two captures: nsysflow diff BASE NEW"
    else:
        return
    raise click.UsageError(msg)


def _show(comparison: "Comparison", form: "Form | None", *, full: bool) -> None:
    from nsysflow.report.diff import markdown, page
    from nsysflow.report.diff_document import diff_csv, diff_json

    match form:
        case "json":
            click.echo(diff_json(comparison))
        case "csv":
            click.echo(diff_csv(comparison), nl=False)
        case "md":
            click.echo(markdown(comparison), nl=False)
        case None:
            _print(lambda width: page(comparison, width=width, full=full))


def _show_over_time(stages: "Sequence[Stage]", form: "Form | None") -> None:
    from nsysflow.report.diff import rows, table
    from nsysflow.report.diff_document import csv_of
    from nsysflow.report.text import block_lines, set_block

    match form:
        case "json":
            click.echo(json.dumps(rows(stages), indent=1))
        case "csv":
            click.echo(csv_of(rows(stages)), nl=False)
        case "md":
            click.echo("\n".join(block_lines(table(stages))), nl=False)
        case None:
            _print(lambda width: set_block(table(stages), width))


def _print(lines: "Callable[[int], Iterable[Text]]") -> None:
    """Lines that are made for a width, on the screen."""
    from nsysflow.base.screen import console, line_width, print_lines

    print_lines(console(), lines(line_width()))
