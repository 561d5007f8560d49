"""The group of commands: their order, how they end, and what a mistyped one may have meant."""

from typing import Any

import click

from nsysflow.endings import in_one_message
from nsysflow.nearest import near_or_all


class Group(click.Group):
    """Commands that end alike, listed as they were added. A bug keeps its traceback."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401
        with in_one_message():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        with in_one_message():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        msg = f"no command {name!r}. {near_or_all(name, self.commands, where='nsysflow -h')}"
        raise click.UsageError(msg, ctx)
