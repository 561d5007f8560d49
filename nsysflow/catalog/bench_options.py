"""The options of `nsysflow bench`, declared once for two processes.

The command line parses them, and so does the process that it starts, which people can run by hand:
`python -P -m nsysflow.kernels.bench`. Only that process imports torch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from nsysflow.catalog.kernel import dtypes, kernels, variants
from nsysflow.catalog.one_of import OneOf

_FILE: Final = click.Path(path_type=Path, dir_okay=False)

_PARAMETERS: Final = (
    click.argument(
        "kernels",
        nargs=-1,
        type=OneOf("kernel", [kernel.name for kernel in kernels()]),
        metavar="[KERNEL]...",
    ),
    click.option(
        "--variant",
        "variants",
        multiple=True,
        type=OneOf("variant", variants()),
        help="Run only this variant (can be repeated).",
    ),
    click.option(
        "--dtype",
        "dtypes",
        multiple=True,
        type=click.Choice([*dtypes()]),
        help="Run only this dtype (can be repeated).",
    ),
    click.option(
        "--sweep", is_flag=True, help="Also run a quarter and four times of each size, on a GPU."
    ),
    click.option("--csv", "csv_file", type=_FILE, metavar="FILE", help="Append the rows to FILE."),
    click.option(
        "--json",
        "json_file",
        type=_FILE,
        metavar="FILE",
        help="Append the rows to FILE, one JSON object per line.",
    ),
    click.option(
        "--inject-error",
        is_flag=True,
        help="Corrupt one result to test the correctness check.",
    ),
)


def bench_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the benchmark's argument and options."""
    for parameter in reversed(_PARAMETERS):
        function = parameter(function)
    return function
