"""The class of a kernel, by its short name (spec §6). The rules are data: classes.toml."""

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import polars as pl
from polars.exceptions import ComputeError

from nsysflow.analysis.timeline.operation_parts import COMMUNICATION
from nsysflow.errors import SettingsError

OTHER: Final = "other"

Rules = tuple[tuple[str, str], ...]
"""(class, pattern) in order of precedence."""

_EXAMPLE: Final = pl.Series(["vectorized_elementwise_kernel"])

_EXAMPLE_FILE: Final = "[[class]]\n  name = \"attention\"\n  pattern = '^my_attn_'"


@cache
def kernel_classes() -> Rules:
    """Our rules, communication first, then classes.toml."""
    text = (
        files("nsysflow.analysis.tables.kernels")
        .joinpath("classes.toml")
        .read_text(encoding="utf-8")
    )
    return (("comm", COMMUNICATION), *_rules(tomllib.loads(text)))


def read_kernel_classes(file: Path) -> Rules:
    """The rules of a user's file, in the form of classes.toml.

    Raises:
        SettingsError: the file cannot be read, or holds something else.
    """
    try:
        rules = _rules(tomllib.loads(file.read_text(encoding="utf-8")))
        for _, pattern in rules:
            _EXAMPLE.str.contains(pattern)
    except OSError as error:
        seen = f"{file} cannot be read: {error.strerror}"
        raise SettingsError(seen, "Name a TOML file with kernel classes") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        seen = f"{file} holds no kernel classes ({type(error).__name__}: {error})"
        raise SettingsError(seen, "It must hold classes such as", _EXAMPLE_FILE) from error
    except ComputeError as error:
        seen = (
            f"{file} holds a pattern that is no regular expression ({' '.join(str(error).split())})"
        )
        raise SettingsError(seen, "It must hold classes such as", _EXAMPLE_FILE) from error
    return rules


def class_of(short_name: pl.Expr, more: Rules = ()) -> pl.Expr:
    """The first class whose pattern matches a kernel's short name, else `other`.

    Args:
        short_name: without namespace and template arguments.
        more: rules that come before ours and after communication.
    """
    comm, *ours = kernel_classes()
    matched = [
        pl.when(short_name.str.contains(pattern)).then(pl.lit(name))
        for name, pattern in (comm, *more, *ours)
    ]
    return pl.coalesce(*matched, pl.lit(OTHER))


def _rules(table: dict[str, Any]) -> Rules:
    return tuple((row["name"], row["pattern"]) for row in table["class"])
