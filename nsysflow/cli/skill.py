"""`nsysflow skill`: a guide for coding agents."""

import click


@click.command()
def skill() -> None:
    """Print a guide for coding agents.

    It says how to record, read, change and verify, in the form of a skill file.

    \b
    Example:
        mkdir -p .claude/skills/nsysflow
        nsysflow skill > .claude/skills/nsysflow/SKILL.md
    """
    from nsysflow.agents.skill import skill as text

    click.echo(text(), nl=False)
