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
    *("{}", "footstep{}", "conv_batch{}d", "lr step 1e{}x", "layer {} step"),
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
    ("XlaModule:#hlo_module=gemm_fusion_dot.107#",): "XlaModule gemm_fusion_dot.107",
    (
        "Thunk:#hlo_op=fusion#",
        "Thunk:#name=jit(step)/dot,hlo_op=dot.1,unique_hlo_op_id=7#",
    ): "Thunk",
    ("XlaPass:#name=dce,module=jit_stage,program_id=0#",): "XlaPass",
    ("XlaPassPipeline:#name=simplify,module=jit_step,program_id=3#",): "XlaPassPipeline",
    ("XlaCompileGpuAsm:#module=gemm_fusion_dot.1#",): "XlaCompileGpuAsm",
    # PyTorch's profiler and emit_nvtx: torch/profiler/profiler.py, torch/autograd/profiler.py
    ("ProfilerStep#7",): "ProfilerStep",
    ("aten::mm, op_id = 12", "aten::mm, op_id = 19"): "aten::mm",
    ("AddmmBackward0, seq = 41", "AddmmBackward0, seq = 77"): "AddmmBackward0",
    ("aten::add, seq = 5, op_id = 9, sizes = [[2, 3], [3]]",): "aten::add",
    ("autograd::engine::evaluate_function: MmBackward0, op_id = 3",): (
        "autograd::engine::evaluate_function: MmBackward0"
    ),
    # PyTorch: torch/optim/optimizer.py, torch/utils/data/dataloader.py, nn/parallel/distributed.py
    ("Optimizer.step#AdamW.step",): "Optimizer.step#AdamW.step",
    ("Optimizer.zero_grad#SGD.zero_grad",): "Optimizer.zero_grad#SGD.zero_grad",
    ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",): (
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    ),
    ("DistributedDataParallel.forward",): "DistributedDataParallel.forward",
    ("nccl:all_reduce", "nccl:all_reduce"): "nccl:all_reduce",
    # PyTorch 2: torch/_dynamo/convert_frame.py, torch/_dynamo/utils.py, torch/_inductor/
    ("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/1"): "Torch-Compiled Region: 0",
    ("Torch-Compiled Region: !1/0/0",): "Torch-Compiled Region: !1/0",
    ("TorchDynamo Cache Lookup",): "TorchDynamo Cache Lookup",
    ("## Call CompiledFxGraph fed4ov6qe57tzjn5yggz6dav3tn4vnbpeuuzyim6fjrswsfn4qe6 ##",): (
        "Call CompiledFxGraph"
    ),
    ("compile_fx.<locals>.fw_compiler_base (dynamo_timed)",): (
        "compile_fx.<locals>.fw_compiler_base (dynamo_timed)"
    ),
    # PyTorch: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py
    ("FSDP::all_gather (layers.0)",): "FSDP::all_gather (layers.0)",
    ("FSDP::root_pre_forward",): "FSDP::root_pre_forward",
    ("FSDP::post_backward_reduce (layers.11.mlp)",): "FSDP::post_backward_reduce (layers.11.mlp)",
    # PyTorch: torch/distributed/pipelining/schedules.py, test/profiler/test_execution_trace.py
    ("Forward 0", "Forward 1"): "Forward",
    ("Backward 3",): "Backward",
    ("## LOOP 0 ##", "## LOOP 1 ##"): "LOOP",
    # TorchRec and FBGEMM: torchrec/modules/embedding_modules.py, torchrec/distributed/dist_data.py
    ("## EmbeddingBagCollection: forward ##",): "EmbeddingBagCollection: forward",
    ("## all2all_data:kjt lengths ##",): "all2all_data:kjt lengths",
    ("## forward mb0 ##", "## forward mb1 ##"): "forward mb",
    # Lightning: lightning/pytorch/profilers/pytorch.py
    ("[pl][profile][Strategy]DDPStrategy.training_step",): "[Strategy]DDPStrategy.training_step",
    ("[pl][profile]run_training_batch",): "run_training_batch",
    ("[pl][module]torch.nn.modules.linear.Linear: layer.0",): (
        "torch.nn.modules.linear.Linear: layer.0"
    ),
    (
        "[pl][profile][Callback]ModelCheckpoint{'monitor': None, 'mode': 'min'}.on_train_start",
    ): "[Callback]ModelCheckpoint.on_train_start",
    # Megatron-LM: megatron/core/utils.py, nvtx_range_push(suffix=…)
    ("megatron.core.transformer.mlp.forward.linear_fc1",): (
        "megatron.core.transformer.mlp.forward.linear_fc1"
    ),
    ("transformer_layer._forward_attention.self_attn_bda",): (
        "transformer_layer._forward_attention.self_attn_bda"
    ),
    # Transformer Engine: transformer_engine/pytorch/module/linear.py
    ("transformer_engine._Linear.forward.gemm",): "transformer_engine._Linear.forward.gemm",
    # NeMo and Megatron trainers
    ("iteration_5_ga_step_2", "iteration_5_ga_step_3", "iteration_6_ga_step_2"): (
        "iteration_ga_step"
    ),
    # DeepSpeed: deepspeed/utils/nvtx.py takes __qualname__
    ("DeepSpeedEngine.forward",): "DeepSpeedEngine.forward",
    ("DeepSpeedZeroOptimizer_Stage3.step",): "DeepSpeedZeroOptimizer_Stage3.step",
    ("PartitionedParameterCoordinator.fetch_sub_module",): (
        "PartitionedParameterCoordinator.fetch_sub_module"
    ),
    # vLLM: vllm/v1/worker/gpu_worker.py, v1/core/sched/scheduler.py, utils/nvtx_pytorch_hooks.py
    ("execute_context_1(1024)_generation_64(64)", "execute_context_0(0)_generation_65(65)"): (
        "execute_context_generation"
    ),
    ("execute_new_1_cached_63",): "execute_new_cached",
    ("gpu_model_runner: forward",): "gpu_model_runner: forward",
    ("schedule: allocate_slots",): "schedule: allocate_slots",
    (_LAYER,): "model.layers.0.self_attn",
    ("prefill bs=1 tok=512", "prefill bs=2 tok=900"): "prefill bs tok",
    ("decode_0", "decode_1"): "decode",
    ("request cmpl-0f8fad5b-d9cb-469f-a165-70867728950e",): "request cmpl",
    # TensorRT-LLM: tensorrt_llm/_torch/pyexecutor/py_executor.py, model_engine.py
    (
        "[Executor] _forward_step 13: 1 ctx reqs, 3 gen reqs",
        "[Executor] _forward_step 14: 0 ctx reqs, 4 gen reqs",
    ): "[Executor] _forward_step: ctx reqs, gen reqs",
    (
        "[Executor] _forward_step 13: 0 ctx reqs, 0 ctx tokens, 32 gen reqs",
        "[Executor] _forward_step 14: 2 ctx reqs, 96 ctx tokens, 31 gen reqs",
    ): "[Executor] _forward_step: ctx reqs, ctx tokens, gen reqs",
    ("_prepare_inputs",): "_prepare_inputs",
    ("GuidedDecoder.add_batch",): "GuidedDecoder.add_batch",
    # SGLang: python/sglang/srt/utils/profile_utils.py
    ("step[DECODE bs=64]", "step[DECODE bs=63]"): "step[DECODE]",
    ("step[EXTEND bs=1 toks=8192]", "step[EXTEND bs=2 toks=9 c_sq=9 c_sk=10]"): "step[EXTEND]",
    ("lm_prefill_bs8", "lm_prefill_bs9"): "lm_prefill_bs",
    # RAPIDS: cpp/include/raft/neighbors, cuml/cpp/src/glm
    ("ivf_flat::search(k = 10, n_queries = 100)", "ivf_flat::search(k = 10, n_queries = 9)"): (
        "ivf_flat::search"
    ),
    ("cagra::build_graph(1000, 96, 64)", "cagra::build_graph(2000, 96, 64)"): "cagra::build_graph",
    # programs of which the source is public, found by their NVTX calls
    ("step_0", "step_1"): "step",
    ("Step::0", "Step::1"): "Step",
    ("Epoch 1", "Epoch 2"): "Epoch",
    ("iter_#0", "iter_#1"): "iter",
    ("warmup/step_0", "warmup/step_1"): "warmup/step",
    ("warmup_iter_0", "warmup_iter_1"): "warmup_iter",
    ("micro_batch0", "micro_batch1"): "micro_batch",
    ("forward_micro0", "forward_micro1"): "forward_micro",
    ("hstu_layer_fwd_step 4", "hstu_layer_fwd_step 5"): "hstu_layer_fwd_step",
    ("GPT2_Decoder_Step/token_00", "GPT2_Decoder_Step/token_01"): "GPT2_Decoder_Step/token",
    ("[small] fused iter0", "[small] fused iter1"): "[small] fused iter",
    ("Transfer Chunk 0", "Transfer Chunk 1"): "Transfer Chunk",
    ("GET request_id: 7", "GET request_id: 8"): "GET request",
    ("GVR_fp16|small|rep0", "GVR_fp16|small|rep1"): "GVR_fp16|small|rep",
    ("iter 3 forward", "iter 4 forward"): "iter forward",
    ("epoch 3, step 1", "epoch 4, step 1", "epoch 4, step 2"): "epoch, step",
    ("iteration[0,4)", "iteration[4,8)"): "iteration",
    ("<Buffer object at 0x7f3c2c001>",): "<Buffer object>",
}
"""What the report shows, by raw names that become one phase, or by one raw name."""

PLACES = (
    ("diffulex.llada2.layer0.attention.qkv_proj", "diffulex.llada2.layer1.attention.qkv_proj"),
    ("FSDP::all_gather (layers.0)", "FSDP::all_gather (layers.1)"),
    ("ssd_to_cpu_layer_0", "ssd_to_cpu_layer_1"),
    ("gradient_allreduce::bucket::0::cuda_1::pack", "gradient_allreduce::bucket::1::cuda_1::pack"),
    ("dispatch_p2p_R0", "dispatch_p2p_R1"),
    ("network_0", "network_1"),
    ("0 - prefill", "1 - prefill"),
    ("ulysses_launch_in_g0", "ulysses_launch_in_g1"),
    ("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 1/0"),
    ("layer 3 tokens", "layer 4 tokens"),
    ("encoder(0)", "encoder(1)"),
    ("matmul(1024, 1024)", "matmul(4096, 4096)"),
    ("conv1d", "conv2d"),
)
"""Raw names that are different phases: their numbers say where."""


def test_a_frameworks_ranges_are_one_phase_with_a_plain_name() -> None:
    assert {raw: named(*raw) for raw in NAMES} == {
        raw: [name] * len(raw) for raw, name in NAMES.items()
    }
    # and all of them in one report are grouped as the oracle groups them
    together = [each for names in NAMES for each in names]
    assert named(*together) == [oracle.grouped(together)[each] for each in together]


def test_ranges_at_different_places_stay_apart() -> None:
    for raw in PLACES:
        assert len({*named(*raw)}) == len(raw), raw


def test_an_operation_of_xla_and_a_collective_are_operators() -> None:
    names = ["Thunk:#hlo_op=fusion#", "XlaModule:#hlo_module=jit_step#", "nccl:all_reduce", "nccl"]
    raw = pl.DataFrame({"name": names})
    of_each = raw.select(is_operator(pl.col("name"))).to_series().to_list()
    assert of_each == [True, False, True, False]
