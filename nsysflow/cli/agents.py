"""`nsysflow mcp` and `nsysflow skill`: let coding agents read reports, and a guide for them."""

from pathlib import Path

import click

from nsysflow.base.errors import not_installed
from nsysflow.cli.analyze import options_of_settings
from nsysflow.cli.options import Command


@click.command(cls=Command)
@click.argument(
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    default=".",
)
@click.pass_context
def mcp(ctx: click.Context, /, folder: Path) -> None:
    """Let coding agents read the reports in FOLDER.

    Speaks the Model Context Protocol on standard input and output; agents start it by themselves.
    They read only what is in FOLDER, by default the current folder. Nothing is written, and
    nothing is sent anywhere. Needs: pip install 'nsysflow[mcp]'.

    \b
    Example:
        claude mcp add nsysflow -- nsysflow mcp runs
        codex mcp add nsysflow -- nsysflow mcp runs
    """
    try:
        from nsysflow.agents.server import server_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise not_installed("mcp", "mcp") from error
    from nsysflow.agents.folder import Folder, Reports

    options = options_of_settings(ctx).options()
    server_of(Reports(Folder(folder), options)).run("stdio")


@click.command()
def skill() -> None:
    """Print a guide for coding agents.

    It says how to record, read, change and verify, in the form of a skill file.

    \b
    Example:
        mkdir -p .claude/skills/nsysflow
        nsysflow skill > .claude/skills/nsysflow/SKILL.md
    """
    click.echo(guide(), nl=False)


def guide() -> str:
    """The guide, as Markdown with the front matter that skill files have."""
    from importlib.resources import files  # takes 10 ms, which -h has not

    return files("nsysflow.agents").joinpath("skill.md").read_text(encoding="utf-8")
