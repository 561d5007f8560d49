"""The kernels of `nsysflow bench` as data, from `kernels/catalog.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel that `nsysflow bench` can check and time.

    Attributes:
        summary: what it computes, in one line.
        variants: the implementations to compare, `ref` first.
        dtypes: the types it is benchmarked in.
    """

    name: str
    summary: str
    variants: tuple[str, ...]
    dtypes: tuple[str, ...]


@cache
def kernels() -> tuple[Kernel, ...]:
    """Every kernel, in the order of the catalog."""
    return tuple(
        Kernel(
            name=name,
            summary=entry["summary"],
            variants=tuple(entry["variants"]),
            dtypes=tuple(entry["dtypes"]),
        )
        for name, entry in _catalog()["kernels"].items()
    )


def variants() -> Mapping[str, str]:
    """Every variant by name, with a one-line summary."""
    found: dict[str, str] = _catalog()["variants"]
    return found


def dtypes() -> Mapping[str, str]:
    """Every dtype by the name that is typed, with torch's name."""
    found: dict[str, str] = _catalog()["dtypes"]
    return found


@cache
def _catalog() -> dict[str, Any]:
    text = (files("nsysflow") / "kernels" / "catalog.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
