"""The shipped reports: each is of a built-in workload, small, and listed with its command."""

import re
from typing import Final

from nsysflow.catalog.catalog import workloads
from tests.reports import SAMPLES

README: Final = (SAMPLES / "README.md").read_text(encoding="utf-8")
ROWS: Final = dict(
    re.findall(r"^\| `([^`]+)` \| `nsysflow profile ([^`]+)` \|", README, re.MULTILINE)
)
"""The command of each report in `samples/README.md`."""

SAMPLE_MAX_BYTES: Final = 300_000
SAMPLES_BY_NAME: Final = {
    sample.name.removesuffix(".sqlite.xz"): sample for sample in SAMPLES.glob("*.xz")
}


def test_each_sample_is_listed_small_and_called_after_its_workload_and_variant() -> None:
    assert ROWS.keys() == SAMPLES_BY_NAME.keys()
    variants = {one.name: {variant.name for variant in one.variants} for one in workloads()}
    for name, sample in SAMPLES_BY_NAME.items():
        workload, *words = ROWS[name].split()
        variant = words[words.index("--variant") + 1]
        assert variant in variants[workload], name
        assert re.fullmatch(rf"{workload}-{variant}(-\w+)*", name)
        assert sample.stat().st_size <= SAMPLE_MAX_BYTES, name
