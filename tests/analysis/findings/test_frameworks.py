"""What is said of each rule is complete, and advice is for a program's frameworks (spec §16.13)."""

import ast
import re
from dataclasses import replace
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.frameworks import PYTORCH, frameworks_of
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.tables.index import ABOUT
from tests import tiny
from tests.analyses import KINDS, analysed, loaded
from tests.analysis.findings.subjects import one_gpu
from tests.oracle.model import Frame, Sample, to_trace
from tests.reports import ROOT

EXPLAINED: Final = explanations()
OF_PYTORCH: Final = r"(?i)torch|\baten\b|DataLoader|autocast|channels_last|num_workers|\.cpu\(\)"


def test_advice_for_others_is_none_for_pytorch() -> None:
    others = ("any", "cupy", "tensorflow", "openacc", "openmp")
    advice = (each.advice.get(key, ()) for each in EXPLAINED.values() for key in others)
    assert [line for lines in advice for line in lines if re.search(OF_PYTORCH, line)] == []


def renamed(name: str, kernel: str) -> nsysflow.Trace:
    """A report whose kernels, ranges and threads are those of another framework."""
    trace = loaded(name)
    kernels = pl.col("kind") == "kernel"
    names = pl.col("name", "short_name").cast(pl.String)
    texts = pl.when(kernels).then(pl.lit(kernel)).otherwise(names).cast(pl.Categorical)
    others = ("ranges", "threads", "frames", "backtraces", "samples")
    cleared = {each: getattr(trace, each).clear() for each in others}
    return replace(trace, ops=trace.ops.with_columns(texts.name.keep()), **cleared)


@pytest.mark.parametrize(
    ("framework", "kernel", "name"),
    [
        ("jax", "loop_add_fusion_3", "launch_bound-eager"),
        ("cupy", "cupy_multiply__float_float_float", "h2d-pageable"),
        ("tensorflow", "void tensorflow::functor::ApplyAdam<float>", "nan_check-sync"),
        ("openacc", "feed_input_23_gpu", "h2d-pageable"),
        ("cuda", "my_kernel(float *)", "nan_check-sync"),
    ],
)
def test_other_programs_get_no_advice_of_pytorch(framework: str, kernel: str, name: str) -> None:
    found = find(JudgedReport(nsysflow.analyze(renamed(name, kernel))))
    assert {one.finding.frameworks for one in found.valued} == {(framework,)}
    assert not any("torch" in line for one in found.valued for line in one.finding.change)


PYTHON = "/opt/lib/python3.12/site-packages/"


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("kernel", "cupy_copy__float32_float32", ["cupy"]),
        ("kernel", "cupyx_scipy_special_gammaln__float64_float64", ["cupy"]),
        ("kernel", "__pgi_uacc_cuda_fill_42_gpu", ["openacc"]),
        ("kernel", "feed_input_23_gpu", ["openacc"]),
        ("kernel", "nvkernel_solve_F1L204_2", ["openmp"]),
        ("kernel", "__omp_offloading_31_18a8104__Z_1...", ["openmp"]),
        ("kernel", "fill_gpu", ["cuda"]),
        ("kernel", "Mul_GPU_DT_FLOAT_DT_FLOAT_kernel", ["tensorflow"]),
        ("kernel", "Cast_GPU_DT_INT64_DT_FLOAT_kernel", ["tensorflow"]),
        ("kernel", "void tensorflow::BiasNHWCKernel<float>(int, const T1 *)", ["tensorflow"]),
        # of TensorFlow, PaddlePaddle and onnxruntime
        ("kernel", "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<int>>", ["cuda"]),
        (
            "kernel",
            "void at::native::detail::chunk_cat_cuda_kernel<float, c10::BFloat16>(T2 **, T1 *)",
            ["fsdp", PYTORCH],
        ),
        ("kernel", "split_with_sizes_copy_out_contiguous_no_cast_kernel", ["fsdp", PYTORCH]),
        ("range", "FSDP::pre_forward (layers.0)", ["fsdp", PYTORCH]),
        ("range", "FullyShardedDataParallel._pre_forward", ["fsdp", PYTORCH]),
        ("range", "fsdp::all_gather_copy_in, op_id = 7", ["fsdp", PYTORCH]),
        ("range", "[pl][profile][LightningModule]Net.optimizer_step", ["lightning", PYTORCH]),
        ("range", "[pl][module]torch.nn.modules.linear.Linear: fc", ["lightning", PYTORCH]),
        ("range", "execute_context_1(96)_generation_3(3)", ["engine", PYTORCH]),
        ("range", "DeepSpeedEngine.allreduce_gradients", [PYTORCH]),
        ("range", "DeepSpeedZeroOptimizer_Stage3.step", [PYTORCH]),
        ("range", "tensor_parallel", ["cuda"]),
        ("call", "hipExtModuleLaunchKernel", ["rocm"]),
        ("gpu", "AMD Instinct MI300X", ["rocm"]),
        ("gpu", "NVIDIA H200", ["cuda"]),
        ("file", "torch/distributed/fsdp/_fully_shard/_fsdp_state.py _pre_forward", ["fsdp"]),
        ("file", "torch/distributed/fsdp/_runtime_utils.py _post_backward_hook", ["fsdp"]),
        ("file", "torch/distributed/fsdp/__init__.py <module>", []),  # imported, that is all
        ("file", "pytorch_lightning/loops/training_epoch_loop.py advance", ["lightning"]),
        ("file", "lightning/pytorch/trainer/trainer.py fit", ["lightning"]),
        ("file", "lightning/__init__.py <module>", ["cuda"]),
    ],
)
def test_names_that_frameworks_write_tell_them(kind: str, name: str, expected: list[str]) -> None:
    rows: list[tiny.Row] = [
        tiny.launch(0, 5, 1, name=name if kind == "call" else "cudaLaunchKernel"),
        tiny.kernel(10, 20, 1, name=name if kind == "kernel" else "k"),
    ]
    if kind == "range":
        rows.append(tiny.opened(0, 9, name))
    if kind == "file":
        path, function = name.split()
        rows.append(Sample(3, tiny.MAIN, (Frame(PYTHON + path, 1, function),)))
        expected = sorted({*expected, *([] if expected == ["cuda"] else [PYTORCH])})
    gpu = one_gpu(name if kind == "gpu" else None)
    plain = replace(tiny.plain_of(*rows), threads=(), devices=gpu)
    timeline = Timeline(to_trace(plain), Options())
    assert [*frameworks_of(timeline).names] == expected


def test_a_program_on_amd_gets_no_advice_for_nvidia_s_tools_and_libraries() -> None:
    trace = loaded("h200-gpt2-eager")
    amd = replace(trace, devices=trace.devices.with_columns(name=pl.lit("AMD Instinct MI300X")))
    found = find(JudgedReport(nsysflow.analyze(amd))).valued
    assert {one.finding.frameworks for one in found} == {(PYTORCH, "rocm")}
    advice = " ".join(line for one in found for line in one.finding.change)
    assert not re.search(r"Nsight|\bncu\b|cuDNN|Transformer Engine", advice)


def test_pytorch_that_is_only_imported_gives_no_advice() -> None:
    trace = renamed("launch_bound-eager", "cupy_add__float32_float32_float32")
    threads = loaded("launch_bound-eager").threads.with_columns(name=pl.lit("pt_main_thread"))
    imports = replace(trace, threads=threads)
    assert frameworks_of(nsysflow.analyze(imports).timeline).names == ("cupy",)


@pytest.mark.parametrize("name", [*KINDS, "h200-jax"])
def test_a_real_report_names_its_framework(name: str) -> None:
    expected = "jax" if "jax" in name else PYTORCH
    assert {expected, "cuda"} & {*frameworks_of(analysed(name).timeline).names}


WIDEST: Final = 94
"""So that code fits, indented, on a terminal of 100 columns."""


def rules_in_the_code() -> set[str]:
    """The names that `Finding(rule=...)` has in the rules' files."""
    names: set[str] = set()
    for file in (ROOT / "analysis" / "findings" / "rules").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "rule":
                texts = (each for each in ast.walk(node.value) if isinstance(each, ast.Constant))
                names |= {each.value for each in texts if isinstance(each.value, str)}
    return names


def test_every_rule_is_explained() -> None:
    rules = rules_in_the_code()
    assert {"sync-in-loop", "launch-bound"} <= rules
    assert rules <= {*EXPLAINED}


def test_explanations_are_complete_and_their_examples_short_python_that_changes_something() -> None:
    for rule, each in EXPLAINED.items():
        assert all((each.about, each.why, each.signs, each.leave, each.tables)), rule
        assert {*each.causes} <= {*CAUSES}, rule
        assert {*each.tables} <= {*ABOUT}, rule
        assert each.before != each.after, rule
        for code in (each.before, each.after):
            compile(code, rule, "exec")
            assert len(code.splitlines()) <= 12, rule
            assert max(map(len, code.splitlines())) <= WIDEST, rule
