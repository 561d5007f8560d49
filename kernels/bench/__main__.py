"""`python -P -m nsysflow.kernels.bench`: the process that `nsysflow bench` starts."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from nsysflow import catalog
from nsysflow.base.endings import in_one_message
from nsysflow.base.errors import BenchError
from nsysflow.catalog.catalog import dtypes as all_dtypes
from nsysflow.catalog.catalog import variants as all_variants
from nsysflow.catalog.options import bench_options


class _Process(click.Command):
    """A command that ends as those of `nsysflow` do."""

    def invoke(self, ctx: click.Context) -> Any:
        with in_one_message():
            return super().invoke(ctx)


@click.command(cls=_Process, context_settings={"help_option_names": ["-h", "--help"]})
@bench_options
def main(
    kernels: tuple[str, ...],
    variants: tuple[str, ...],
    dtypes: tuple[str, ...],
    *,
    sweep: bool,
    csv_file: Path | None,
    json_file: Path | None,
    inject_error: bool,
) -> None:
    """Check the kernels, and time them if there is a GPU."""
    if inject_error and (csv_file or json_file):
        raise click.UsageError("--inject-error cannot be combined with --csv or --json")
    for needed in ("torch", "triton"):
        if find_spec(needed) is None:
            seen = f"the kernels need {needed}, which is not installed here"
            raise BenchError(seen, "Install it", f"pip install {needed}")
    import torch

    on_gpu = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
    if not on_gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    from nsysflow.kernels.bench.session import Request, run

    request = Request(
        kernels=kernels or tuple(kernel.name for kernel in catalog.kernels()),
        variants=variants or tuple(all_variants()),
        dtypes=dtypes or tuple(all_dtypes()),
        sweep=sweep,
        csv_file=csv_file,
        json_file=json_file,
        inject_error=inject_error,
    )
    sys.exit(run(request, on_gpu=on_gpu))


if __name__ == "__main__":
    main(prog_name="nsysflow bench")
