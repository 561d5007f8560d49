"""Advice is for the frameworks that a program uses (spec §16.13)."""

from dataclasses import replace

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.frameworks import PYTORCH, frameworks_of
from nsysflow.analysis.findings.judged_report import JudgedReport
from tests.analyses import NAMES, analysed, loaded

OF_PYTORCH = (
    r"(?i)torch|\baten\b|DataLoader|\.item\(\)|autocast|channels_last|num_workers|\.cpu\(\)"
)


@pytest.mark.parametrize("rule", explanations())
def test_advice_for_others_is_none_for_pytorch(rule: str) -> None:
    explained = explanations()[rule]
    others = {key: explained.advice.get(key, ()) for key in ("any", "jax", "cupy", "tensorflow")}
    lines = pl.Series(
        [line for key, of in others.items() for line in of if key != "jax"], dtype=pl.String
    )
    assert not lines.str.contains(OF_PYTORCH.replace(r"|\.item\(\)", "")).any()


def renamed(name: str, kernel: str) -> nsysflow.Trace:
    """A report whose kernels, ranges and threads are those of another framework."""
    trace = loaded(name)
    kernels = pl.col("kind") == "kernel"
    texts = [
        pl.when(kernels)
        .then(pl.lit(kernel))
        .otherwise(pl.col(c).cast(pl.String))
        .cast(pl.Categorical)
        .alias(c)
        for c in ("name", "short_name")
    ]
    return replace(
        trace,
        ops=trace.ops.with_columns(texts),
        ranges=trace.ranges.clear(),
        threads=trace.threads.clear(),
        frames=trace.frames.clear(),
        backtraces=trace.backtraces.clear(),
        samples=trace.samples.clear(),
    )


@pytest.mark.parametrize(
    ("framework", "kernel"),
    [
        ("jax", "loop_add_fusion_3"),
        ("cupy", "cupy_multiply__float_float_float"),
        ("tensorflow", "void tensorflow::functor::ApplyAdam<float>"),
        ("cuda", "my_kernel(float *)"),
    ],
)
def test_programs_without_pytorch_get_no_advice_of_pytorch(framework: str, kernel: str) -> None:
    for name in ("nan_check-sync", "launch_bound-eager", "h2d-pageable"):
        found = find(JudgedReport(nsysflow.analyze(renamed(name, kernel))))
        assert found.valued
        for one in found.valued:
            assert one.finding.frameworks == (framework,)
            assert not any("torch" in line for line in one.finding.change)


@pytest.mark.parametrize("name", NAMES)
def test_a_real_report_names_its_framework(name: str) -> None:
    expected = "jax" if "jax" in name else PYTORCH
    assert {expected, "cuda"} & {*frameworks_of(analysed(name).timeline).names}
