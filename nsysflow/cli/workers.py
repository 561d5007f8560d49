"""Options that say who analyses many reports."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from nsysflow.base.errors import SelectionError
from nsysflow.cli.options import Decorated, added, option

if TYPE_CHECKING:
    from nsysflow.runs.engine import Executor

_WHO: Final = "Many reports"

_OPTIONS: Final = (
    option(
        "--executor",
        section=_WHO,
        type=click.Choice(["threads", "processes", "dask"]),
        show_default="processes; dask with --scheduler",
        help="Analyse more than 8 reports in threads, in processes, or on workers of Dask.",
    ),
    option(
        "--workers",
        section=_WHO,
        type=click.IntRange(min=1),
        metavar="N",
        show_default="as cores and memory allow; 8 of Slurm",
        help="Open so many reports at once.",
    ),
    option(
        "--scheduler",
        section=_WHO,
        metavar="ADDRESS|slurm",
        help="Use the Dask cluster with this scheduler, e.g. tcp://node1:8786, or let Slurm start"
        " the workers.",
    ),
    option(
        "--strict",
        section=_WHO,
        is_flag=True,
        help="End with an error if any report cannot be read, instead of leaving it out.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The options, as typed."""

    executor: "Executor | None"
    workers: int | None
    scheduler: str | None
    strict: bool

    def how(self) -> dict[str, Any]:
        """What `analyze_reports` is told of them.

        Raises:
            click.UsageError: they do not go together.
        """
        from nsysflow.runs.engine import Choice

        try:
            choice = Choice(executor=self.executor, workers=self.workers, scheduler=self.scheduler)
        except SelectionError as error:
            raise click.UsageError(str(error)) from error
        return {"choice": choice, "strict": self.strict}


def worker_options(command: Decorated) -> Decorated:
    """Add the options that say who analyses many reports."""
    return added(_OPTIONS, command)
