"""Run one workload: `python -P -m nsysflow.workloads nan_check --variant async`.

`nsysflow profile` starts this as a child process. It prints one line with what ran and the result,
then the table of a workload that has one. It exits with 3 if the table contains a FAIL.
"""

import json
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from nsysflow import catalog
from nsysflow.base.errors import NsysflowError, WorkloadError, WrongResult
from nsysflow.catalog.options import workload_options
from nsysflow.runtime.protocol import Window

if TYPE_CHECKING:
    from nsysflow.workloads.common.training import On, Precision


class _Workloads(click.Group):
    """One command per workload of the catalog, made on demand."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [workload.name for workload in catalog.workloads()]

    def get_command(self, _ctx: click.Context, name: str) -> click.Command:
        return _command(catalog.find(name))


@click.command(cls=_Workloads, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run a workload the way `nsysflow profile` does."""


def _command(workload: catalog.Workload) -> click.Command:
    def run(**typed: Any) -> None:
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
        seen = "the workloads need torch, which is not installed here"
        raise WorkloadError(seen, "Install it", "pip install torch")
    from nsysflow.workloads.common.run import options_of, run
    from nsysflow.workloads.common.training import Config

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
        seen = (
            f"{workload.name} {variant} is too far from the float64 result in"
            f" {', '.join(outcome.table.wrong)} (see the table)"
        )
        raise WrongResult(seen, "Check which kernel is wrong", "nsysflow bench")


if __name__ == "__main__":
    try:
        main(prog_name="python -P -m nsysflow.workloads")
    except NsysflowError as error:
        click.echo(f"nsysflow: {error}", err=True)
        sys.exit(error.exit_code)
