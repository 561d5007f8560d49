"""Run one workload: `python -P -m nsysflow.workloads nan_check --variant async`.

`nsysflow profile` starts this in a child process. It prints what ran and the result, on one line,
and the table of a workload that has one; where that says FAIL it exits with 3.
"""

import json
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from nsysflow import catalog
from nsysflow.errors import NsysflowError, WorkloadError, WrongResult
from nsysflow.handshake import Window
from nsysflow.workload_options import workload_options

if TYPE_CHECKING:
    from nsysflow.workloads.config import On, Precision


class _Workloads(click.Group):
    """A command per workload of the catalog, made when it is asked for."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [workload.name for workload in catalog.workloads()]

    def get_command(self, _ctx: click.Context, name: str) -> click.Command:
        return _command(catalog.find(name))


@click.command(cls=_Workloads, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run a workload, as nsysflow profile does."""


def _command(workload: catalog.Workload) -> click.Command:
    def run(**typed: Any) -> None:  # noqa: ANN401
        _run(workload, **typed)

    return click.Command(
        workload.name, params=workload_options(workload), callback=run, help=workload.summary
    )


def _run(
    workload: catalog.Workload,
    *,
    variant: str,
    on: "On",
    precision: "Precision",
    seed: int,
    capture: Window,
    as_json: bool,
    **typed: float | None,
) -> None:
    if find_spec("torch") is None:
        msg = "the workloads need torch, which is not installed here:\n  pip install torch"
        raise WorkloadError(msg)
    from nsysflow.workloads.config import Config
    from nsysflow.workloads.run import options_of, run

    given = {name: value for name, value in typed.items() if value is not None}
    config = Config(
        workload=workload.name,
        variant=variant,
        on=on,
        precision=precision,
        seed=seed,
        window=capture,
        options=options_of(workload, on, given),
    )
    outcome = run(config)
    click.echo(json.dumps(outcome.record) if as_json else str(outcome))
    if outcome.table is not None and outcome.table.wrong:
        msg = (
            f"{workload.name} {variant} is farther from float64 than it may be, by the table:"
            f" {', '.join(outcome.table.wrong)}. See which kernel is wrong:\n  nsysflow bench"
        )
        raise WrongResult(msg)


if __name__ == "__main__":
    try:
        main(prog_name="python -P -m nsysflow.workloads")
    except NsysflowError as error:
        click.echo(f"nsysflow: {error}", err=True)
        sys.exit(error.exit_code)
