"""One name for ranges that differ in an id or a number; names as frameworks build them."""

from dataclasses import replace
from typing import Final

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.phases.names import group_names, is_operator
from nsysflow.base.errors import SelectionError
from tests.agreement import assert_agrees
from tests.analyses import EXAMPLES, any_trace
from tests.oracle import range_names as oracle
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.tiny import Row, analysis_of, kernel, launch, opened

_WORDS = st.sampled_from(
    ("step", "Step", "epoch", "Batch", "ProfilerStep", "token", "layer", "norm", "id", "no.", "x")
)
_BETWEEN = st.sampled_from(("", " ", "_", "-", ": ", "#", "=", "[", " (", ".", "]", ", seq = "))
_NUMBERS = st.sampled_from(("0", "1", "17", "3/10", "[0,4)", "::f(k = 1, 2)", "1.5"))
_FORMS = st.sampled_from(
    (
        *("XlaModule:#", "Thunk:#", "hlo_module=", "#", ",", "jit_f", "[pl][profile]", "{'a': 1}"),
        *(" at 0x7f3c2c001", "0f8fad5b-d9cb-469f-a165-70867728950e", "<", ">", "## ", " ##"),
        *("bs", " toks", " gen reqs", " ctx tokens", "rank", "Forward ", "Torch-Compiled Region: "),
    )
)
_PIECES = st.one_of(_WORDS, _BETWEEN, _NUMBERS, _FORMS)
RAW_NAMES = st.lists(_PIECES, max_size=7).map("".join)


def named(*names: str) -> list[str]:
    """The normalised names of ranges with these raw names."""
    return group_names(pl.Series("name", names, pl.String)).to_list()


COUNTED = {
    "iteration{}": "iteration",
    "step {}": "step",
    "ProfilerStep#{}": "ProfilerStep",
    "train_step_{}": "train_step",
    "trainStep{}": "trainStep",
    "Epoch: {}": "Epoch",
    "batch-{}": "batch",
    "iter=0{}": "iter",
    "Step [{}/100]": "Step",
    "request id={}": "request",
    "step no. {}": "step",
    "rank0_step{}": "rank0_step",
    "epoch 3, step {}": "epoch 3, step",
    "step {} forward": "step forward",
    "step {}: data": "step: data",
    "train_step, op_id = {}": "train_step",
    "ProfilerStep#4, op_id = {}": "ProfilerStep",
}
"""What ranges that only count become."""

PLACED = (
    *("layer{}", "block.{}", "stage {}", "rank {}", "worker_{}", "GPU{}", "bucket {}"),
    *("{}", "footstep{}", "conv_batch{}d", "lr step 1e{}x", "layer {} step", "layer {} tokens"),
    *(
        "conv{}d",
        "network_{}",
        "{} - prefill",
        "encoder({})",
        "matmul(4096, {})",
        "dispatch_p2p_R{}",
    ),
    *("diffulex.llada2.layer{}.attention.qkv_proj", "FSDP::all_gather (layers.{})"),
    *("ssd_to_cpu_layer_{}", "ulysses_launch_in_g{}"),
    "gradient_allreduce::bucket::{}::cuda_1::pack",
)
"""Names of places, which keep their numbers."""


def test_ranges_that_only_count_are_one_and_places_keep_their_numbers() -> None:
    for raw, name in COUNTED.items():
        assert named(*(raw.format(number) for number in range(3))) == [name] * 3
    for raw in PLACED:
        raws = [raw.format(number) for number in range(3)]
        assert named(*raws) == raws


def test_a_number_that_stands_alone_is_part_of_the_name_but_not_pytorchs_step() -> None:
    assert named("batch 64", "batch 64", "epoch 1") == ["batch 64", "batch 64", "epoch 1"]
    assert named("ProfilerStep#7") == ["ProfilerStep"]


@settings(max_examples=10 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(st.lists(RAW_NAMES, max_size=12))
def test_any_names_are_grouped_as_the_oracle_groups_them(names: list[str]) -> None:
    assert named(*names) == [oracle.grouped(names)[name] for name in names]


_TAILS = (" 1", " 2", "#3, op_id = 7", "::x, op_id = 8", ", seq = 9", "")


@any_trace
def test_steps_and_phases_of_numbered_ranges_agree_with_the_oracle(model: PlainTrace) -> None:
    ranges = tuple(
        replace(one, name="step" * (one.row % 2) + one.name + _TAILS[one.row % len(_TAILS)])
        for one in model.ranges
    )
    numbered = replace(model, ranges=ranges)
    assert_agrees(nsysflow.analyze(to_trace(numbered)), Report(numbered))


STEPS: Final = [opened(4_000 * n, 4_000 * n + 4_000, f"step {n}") for n in range(3)]
WORK: Final[list[Row]] = [
    *(launch(1_000 * n, 1_000 * n + 100, n) for n in range(12)),
    *(kernel(1_000 * n + 100, 1_000 * n + 900, n) for n in range(12)),
]


def test_steps_are_named_and_picked_without_their_numbers() -> None:
    picked = Options(step="step", steps=(StepPart(1, 2),))
    assert analysis_of(*STEPS, *WORK, options=picked).steps["start_ns"].to_list() == [4_100]
    # an operator is a step only where it is named
    operators = [opened(1_000 * n, 1_000 * n + 900, f"aten::mm, op_id = {n}") for n in range(12)]
    named_step = Options(step="aten::mm")
    assert analysis_of(*operators, *WORK, options=named_step).steps.height == 12


@pytest.mark.parametrize("options", [Options(range="step 1"), Options(step="step 1")])
def test_the_error_for_a_numbered_range_has_its_name_and_how_to_pick_one(options: Options) -> None:
    analysis = analysis_of(*STEPS, *WORK, options=options)
    with pytest.raises(SelectionError) as refused:
        _ = analysis.steps, analysis.accounting
    assert str(refused.value) == (
        "no range 'step 1' in plain: all of its kind are 'step' there, without numbers."
        " Ask for 'step'; --steps picks steps by their place, counted from 0"
    )


_LAYER = "{'Module': 'model.layers.0.self_attn', 'TrainableParams': {'w': [2112]}, 'Inputs': [[9]]}"

NAMES = {
    # XLA: xla/service/gpu/gpu_executable.cc, gpu_compiler.cc; recorded with JAX 0.11
    ("XlaModule:#hlo_module=jit_step,program_id=2653#",): "XlaModule jit_step",
    ("XlaModule:#prefix=args[0],hlo_module=jit_stage,program_id=0#",): "XlaModule jit_stage",
    ("Thunk:#hlo_op=fusion#", "Thunk:#name=jit(step)/dot,hlo_op=dot.1#"): "Thunk",
    ("XlaPass:#name=dce,module=jit_stage,program_id=0#",): "XlaPass",
    # PyTorch's profiler and emit_nvtx: torch/profiler/profiler.py, torch/autograd/profiler.py
    ("aten::mm, op_id = 12", "aten::mm, op_id = 19"): "aten::mm",
    ("AddmmBackward0, seq = 41", "AddmmBackward0, seq = 77"): "AddmmBackward0",
    ("aten::add, seq = 5, op_id = 9, sizes = [[2, 3], [3]]",): "aten::add",
    # PyTorch: torch/optim/optimizer.py, torch/_dynamo/convert_frame.py, torch/_inductor/
    ("Optimizer.step#AdamW.step",): "Optimizer.step#AdamW.step",
    ("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/1"): "Torch-Compiled Region: 0",
    ("Torch-Compiled Region: 1/0",): "Torch-Compiled Region: 1",
    ("Torch-Compiled Region: !1/0/0",): "Torch-Compiled Region: !1/0",
    ("## Call CompiledFxGraph fed4ov6qe57tzjn5yggz6dav3tn4vnbpeuuzyim6fjrswsfn4qe6 ##",): (
        "Call CompiledFxGraph"
    ),
    # PyTorch: torch/distributed/pipelining/schedules.py
    ("Forward 0", "Forward 1"): "Forward",
    ("## LOOP 0 ##", "## LOOP 1 ##"): "LOOP",
    ("## forward mb0 ##", "## forward mb1 ##"): "forward mb",  # TorchRec
    # Lightning: lightning/pytorch/profilers/pytorch.py
    ("[pl][profile][Strategy]DDPStrategy.training_step",): "[Strategy]DDPStrategy.training_step",
    (
        "[pl][profile][Callback]ModelCheckpoint{'monitor': None, 'mode': 'min'}.on_train_start",
    ): "[Callback]ModelCheckpoint.on_train_start",
    # NeMo and Megatron trainers
    ("iteration_5_ga_step_2", "iteration_5_ga_step_3", "iteration_6_ga_step_2"): (
        "iteration_ga_step"
    ),
    # vLLM: vllm/v1/worker/gpu_worker.py, v1/core/sched/scheduler.py, utils/nvtx_pytorch_hooks.py
    ("execute_context_1(1024)_generation_64(64)", "execute_context_0(0)_generation_65(65)"): (
        "engine step"
    ),
    (_LAYER,): "model.layers.0.self_attn",
    ("prefill bs=1 tok=512", "prefill bs=2 tok=900"): "prefill bs tok",
    ("request cmpl-0f8fad5b-d9cb-469f-a165-70867728950e",): "request cmpl",
    # TensorRT-LLM: tensorrt_llm/_torch/pyexecutor/py_executor.py
    (
        "[Executor] _forward_step 13: 0 ctx reqs, 0 ctx tokens, 32 gen reqs",
        "[Executor] _forward_step 14: 2 ctx reqs, 96 ctx tokens, 31 gen reqs",
    ): "engine step",
    # SGLang: python/sglang/srt/utils/profile_utils.py
    ("step[EXTEND bs=1 toks=8192]", "step[EXTEND bs=2 toks=9 c_sq=9 c_sk=10]"): "engine step",
    ("step[IDLE bs=0]",): "step[IDLE]",
    # RAPIDS: cpp/include/raft/neighbors, cuml/cpp/src/glm
    ("cagra::build_graph(1000, 96, 64)", "cagra::build_graph(2000, 96, 64)"): "cagra::build_graph",
    # programs of which the source is public, found by their NVTX calls
    ("Step::0", "Step::1"): "Step",
    ("warmup/step_0", "warmup/step_1"): "warmup/step",
    ("micro_batch0", "micro_batch1"): "micro_batch",
    ("GPT2_Decoder_Step/token_00", "GPT2_Decoder_Step/token_01"): "GPT2_Decoder_Step/token",
    ("GVR_fp16|small|rep0", "GVR_fp16|small|rep1"): "GVR_fp16|small|rep",
    ("iteration[0,4)", "iteration[4,8)"): "iteration",
    ("<Buffer object at 0x7f3c2c001>",): "<Buffer object>",
}
"""What the report shows, by raw names that become one phase, or by one raw name."""


def test_a_frameworks_ranges_are_one_phase_with_a_plain_name() -> None:
    assert {raw: named(*raw) for raw in NAMES} == {
        raw: [name] * len(raw) for raw, name in NAMES.items()
    }
    # and all of them in one report are grouped as the oracle groups them
    together = [each for names in NAMES for each in names]
    assert named(*together) == [oracle.grouped(together)[each] for each in together]


def test_an_operation_of_xla_and_a_collective_are_operators() -> None:
    names = ["Thunk:#hlo_op=fusion#", "XlaModule:#hlo_module=jit_step#", "nccl:all_reduce", "nccl"]
    raw = pl.DataFrame({"name": names})
    of_each = raw.select(is_operator(pl.col("name"))).to_series().to_list()
    assert of_each == [True, False, True, False]
