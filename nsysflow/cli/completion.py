"""What a shell completes: workloads, ranges, names; and the script that makes it do so."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from nsysflow.catalog.catalog import workloads as built_in

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TYPED: Final = "nsysflow.typed"
"""Where a context keeps the words of its command: click has parsed none of them when an option
still lacks its value."""

_SHELLS: Final = ("bash", "zsh", "fish")


def workloads(_ctx: click.Context, _param: click.Parameter, typed: str) -> "list[CompletionItem]":
    """The workloads that begin so."""
    from click.shell_completion import CompletionItem  # takes 4 ms, which -h has not

    return [
        CompletionItem(workload.name, help=workload.summary)
        for workload in built_in()
        if workload.name.startswith(typed)
    ]


def variants(ctx: click.Context, _param: click.Parameter, typed: str) -> "list[CompletionItem]":
    """The variants of the workload that was typed, which begin so."""
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(variant.name, help=variant.summary)
        for workload in built_in()
        if workload.name in ctx.meta[TYPED]
        for variant in workload.variants
        if variant.name.startswith(typed)
    ]


def ranges(ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """The ranges of the reports that were typed, which begin so."""
    from nsysflow.runs.ranges import range_names

    reports = [path for path in map(Path, ctx.meta[TYPED]) if path.exists()]
    names = {name for report in reports for name in range_names(report)}
    return sorted(name for name in names if name.startswith(typed))


def explained(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """The names that `explain` has a page on, which begin so."""
    from nsysflow.report.explain.names import names_by_kind

    names = dict.fromkeys(name for group in names_by_kind().values() for name in group)
    return [name for name in names if name.startswith(typed)]


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes your shell complete names.

    These are commands, options, workloads, variants, tables, names for explain, and the ranges of
    the report that you typed: one that was analysed before, or a plain .sqlite.

    \b
    Example:
        eval "$(nsysflow completion bash)"      # put this line into ~/.bashrc
        eval "$(nsysflow completion zsh)"       # put this line into ~/.zshrc
        nsysflow completion fish > ~/.config/fish/completions/nsysflow.fish
    """
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    if completer is None:
        msg = f"this version of click completes nothing in {shell}"
        raise click.UsageError(msg)
    root = ctx.find_root()
    click.echo(completer(root.command, {}, "nsysflow", "_NSYSFLOW_COMPLETE").source())
