"""The options of `nsysflow bench`, for the command and for the process that does its work.

That process imports torch and the kernels, the command does not; so what both know is here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

KERNELS: Final[Mapping[str, str]] = {
    "copy": "a plain copy: the benchmark's check of itself",
    "advantage": "generalized advantage estimation with V-trace clips",
    "prio": "rows drawn by priority, with their importance weights",
    "select_copy": "the minibatch of the rows drawn, in one launch",
    "rolloutcopy": "the three kernels above as one",
    "mingru_scan": "the MinGRU recurrence, forward and backward",
    "narrow_linear": "a linear layer with few outputs, forward and backward",
    "ppo_loss": "PPO's clipped loss and its gradient",
    "layernorm_relu_add": "layer norm, ReLU and a skip connection, forward and backward",
    "sum_many": "the sums of thousands of tensors in one launch",
    "muon": "the Muon optimizer's step with its clip",
}
"""What each does, in the order of a training step."""

VARIANTS: Final = ("ref", "compile", "compile-max", "triton", "cuda")
DTYPES: Final = ("bf16", "float")

_FILE: Final = click.Path(path_type=Path, dir_okay=False)

_PARAMETERS: Final = (
    click.argument("kernels", nargs=-1, type=click.Choice([*KERNELS]), metavar="[KERNEL]..."),
    click.option(
        "--variant", "variants", multiple=True, type=click.Choice(VARIANTS), help="Only this."
    ),
    click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="Only this."),
    click.option(
        "--sweep", is_flag=True, help="On a GPU, also a quarter and four times of each size."
    ),
    click.option("--csv", "csv_file", type=_FILE, metavar="FILE", help="Add the rows to FILE."),
    click.option("--json", "json_file", type=_FILE, metavar="FILE", help="The same, a line each."),
    click.option("--inject-error", is_flag=True, help="Spoil the first result, to see it noticed."),
)


def bench_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the benchmark's argument and options."""
    for parameter in reversed(_PARAMETERS):
        function = parameter(function)
    return function


def words_of(command: click.Command, typed: Mapping[str, Any]) -> list[str]:
    """What to type so that `command` is given these values."""
    words: list[str] = []
    for parameter in command.params:
        value = typed.get(str(parameter.name))
        if isinstance(parameter, click.Argument):
            words += value or ()
        elif value is True:
            words.append(parameter.opts[0])
        else:
            values = value if isinstance(value, tuple) else (value,)
            words += [word for each in values if each for word in (parameter.opts[0], str(each))]
    return words
