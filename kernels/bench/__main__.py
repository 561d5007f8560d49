"""`python -P -m nsysflow.kernels.bench`: what `nsysflow bench` starts."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from nsysflow.bench_options import DTYPES, KERNELS, VARIANTS, bench_options
from nsysflow.errors import BenchError, NsysflowError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
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
    """Judge the kernels, and time them where there is a GPU."""
    if inject_error and (csv_file or json_file):
        msg = "--inject-error makes a result that is not true, and --csv and --json keep results"
        raise click.UsageError(msg)
    for needed in ("torch", "triton"):
        if find_spec(needed) is None:
            msg = f"the kernels need {needed}, which is not installed here:\n  pip install {needed}"
            raise BenchError(msg)
    import torch

    on_gpu = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
    if not on_gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    from nsysflow.kernels.bench.session import Request, run

    request = Request(
        kernels=kernels or tuple(KERNELS),
        variants=variants or VARIANTS,
        dtypes=dtypes or DTYPES,
        sweep=sweep,
        csv_file=csv_file,
        json_file=json_file,
        inject_error=inject_error,
    )
    sys.exit(run(request, on_gpu=on_gpu))


if __name__ == "__main__":
    try:
        main(prog_name="nsysflow bench")
    except NsysflowError as error:
        click.echo(f"nsysflow: {error}", err=True)
        sys.exit(error.exit_code)
