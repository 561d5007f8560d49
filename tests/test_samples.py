"""The shipped reports: each is of a built-in workload, small, and listed with its command."""

import re
from pathlib import Path
from typing import Final

import pytest

from nsysflow.catalog.catalog import workloads
from tests.reports import SAMPLES

README: Final = (SAMPLES / "README.md").read_text(encoding="utf-8")
ROWS: Final = dict(
    re.findall(r"^\| `([^`]+)` \| `nsysflow profile ([^`]+)` \|", README, re.MULTILINE)
)
"""The command of each report in `samples/README.md`."""

SAMPLE_MAX_BYTES: Final = 300_000
every_sample: Final = pytest.mark.parametrize(
    "sample", sorted(SAMPLES.glob("*.xz")), ids=lambda sample: sample.name
)


def name(sample: Path) -> str:
    return sample.name.removesuffix(".sqlite.xz")


def test_the_readme_has_a_row_for_each_sample_and_for_no_other() -> None:
    assert set(ROWS) == {name(sample) for sample in SAMPLES.glob("*.xz")}


@every_sample
def test_a_sample_is_called_after_the_workload_and_variant_of_its_command(sample: Path) -> None:
    workload, *words = ROWS[name(sample)].split()
    variants = {one.name: {variant.name for variant in one.variants} for one in workloads()}
    variant = words[words.index("--variant") + 1]
    assert variant in variants[workload]
    assert re.fullmatch(rf"{workload}-{variant}(-\w+)*", name(sample))


@every_sample
def test_a_sample_is_small_enough_to_ship(sample: Path) -> None:
    assert sample.stat().st_size <= SAMPLE_MAX_BYTES
