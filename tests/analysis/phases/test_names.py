"""One name for ranges that differ in an id or a number; names as frameworks build them."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.phases.names import group_names, is_operator
from nsysflow.analysis.tables.phases import PHASES
from nsysflow.analysis.tables.steps import STEPS
from nsysflow.base.errors import SelectionError
from tests.analyses import EXAMPLES, any_trace, rows_of
from tests.oracle import range_names as oracle
from tests.oracle.model import Call, Op, PlainTrace, Range, Shape, to_trace
from tests.oracle.report import Report
from tests.oracle.tables import oracle_tables

PROCESS = 1 << 24
MAIN = PROCESS | 1

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


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("iteration{}", "iteration"),
        ("step {}", "step"),
        ("ProfilerStep#{}", "ProfilerStep"),
        ("train_step_{}", "train_step"),
        ("trainStep{}", "trainStep"),
        ("Epoch: {}", "Epoch"),
        ("batch-{}", "batch"),
        ("iter=0{}", "iter"),
        ("Step [{}/100]", "Step"),
        ("request id={}", "request"),
        ("step no. {}", "step"),
        ("rank0_step{}", "rank0_step"),
        ("epoch 3, step {}", "epoch 3, step"),
        ("step {} forward", "step forward"),
        ("step {}: data", "step: data"),
        ("train_step, op_id = {}", "train_step"),
        ("ProfilerStep#4, op_id = {}", "ProfilerStep"),
    ],
)
def test_ranges_that_only_count_are_one(raw: str, name: str) -> None:
    assert named(*(raw.format(number) for number in range(3))) == [name] * 3


@pytest.mark.parametrize(
    "raw",
    [
        *("layer{}", "block.{}", "stage {}", "rank {}", "worker_{}", "GPU{}", "bucket {}"),
        *("{}", "footstep{}", "conv_batch{}d", "lr step 1e{}x", "layer {} step"),
    ],
)
def test_places_keep_their_numbers(raw: str) -> None:
    raws = [raw.format(number) for number in range(3)]
    assert named(*raws) == raws


def test_a_number_that_stands_alone_is_part_of_the_name() -> None:
    assert named("batch 64", "batch 64", "epoch 1") == ["batch 64", "batch 64", "epoch 1"]


def test_a_step_of_pytorch_loses_its_number_even_alone() -> None:
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
    analysis, tables = nsysflow.analyze(to_trace(numbered)), oracle_tables(Report(numbered))
    for table, schema in (("steps", STEPS), ("phases", PHASES)):
        columns = (
            [column for column in schema if column in tables[table][0]] if tables[table] else []
        )
        found = rows_of(getattr(analysis, table).to_dicts(), columns)
        assert found == rows_of(tables[table], columns)


def program(*ranges: tuple[str, int, int]) -> nsysflow.Trace:
    """A main thread with these ranges (name, start and end in us).

    It launches a kernel of 800 ns every us.
    """
    last = max(end for _, _, end in ranges)
    calls = tuple(
        Call(1_000 * at, 1_000 * at + 100, PROCESS, MAIN, at + 1, "cudaLaunchKernel")
        for at in range(last)
    )
    ops = tuple(
        Op(
            *("kernel", call.end_ns, call.end_ns + 800, 0, PROCESS, 7),
            *(call.correlation, None, "k", "k", Shape()),
        )
        for call in calls
    )
    rows = tuple(
        Range(1_000 * start, 1_000 * end, "push_pop", PROCESS, MAIN, None, name, row)
        for row, (name, start, end) in enumerate(ranges)
    )
    return to_trace(PlainTrace(report="made", ops=ops, calls=calls, ranges=rows))


def step_starts_us(trace: nsysflow.Trace, options: Options | None = None) -> list[int]:
    return [start // 1_000 for start in nsysflow.analyze(trace, options).steps["start_ns"]]


def test_the_step_is_the_repeating_range_with_most_gpu_time_and_not_the_shallowest() -> None:
    loads = [("load_shard", at, at + 1) for at in range(4)]
    steps = [("step", at, at + 4) for at in (4, 8, 12)]
    assert step_starts_us(program(*loads, ("train", 4, 16), *steps)) == [4, 8, 12]


def test_a_range_that_repeats_inside_a_step_is_not_a_step() -> None:
    steps = [("step", at, at + 4) for at in (0, 4, 8)]
    layers = [("layer", at, at + 1) for at in range(12)]
    assert step_starts_us(program(*steps, *layers)) == [0, 4, 8]


def test_numbered_iterations_are_steps() -> None:
    trace = program(*((f"iteration {at}", 4 * at, 4 * at + 4) for at in range(3)))
    assert step_starts_us(trace) == [0, 4, 8]
    assert step_starts_us(trace, Options(step="iteration", steps=(StepPart(1, 2),))) == [4]


def test_the_iterations_of_two_numbered_epochs_are_steps_of_one_path() -> None:
    epochs = [(f"epoch {number}", 8 * number, 8 * number + 8) for number in range(2)]
    steps = [(f"step {number % 2}", 4 * number, 4 * number + 4) for number in range(4)]
    assert step_starts_us(program(*epochs, *steps)) == [0, 4, 8, 12]


@pytest.mark.parametrize("name", ["aten::mm, op_id = {}", "AddmmBackward0, seq = {}"])
def test_an_operator_of_pytorch_is_not_a_step_unless_named(name: str) -> None:
    operators = [(name.format(at), at, at + 1) for at in range(6)]
    trace = program(*operators, *(("tail", at, at + 1) for at in (6, 7, 8)))
    assert step_starts_us(trace) == [6, 7, 8]
    assert step_starts_us(trace, Options(step=name.split(",")[0])) == list(range(6))


def test_a_range_of_the_program_is_a_step_although_pytorch_numbers_it() -> None:
    trace = program(*((f"train_step, op_id = {at}", at, at + 1) for at in range(3)))
    assert step_starts_us(trace) == [0, 1, 2]


@pytest.mark.parametrize("options", [Options(range="step 1"), Options(step="step 1")])
def test_the_error_for_a_numbered_range_has_its_name_and_how_to_pick_one(options: Options) -> None:
    trace = program(*((f"step {at}", at, at + 1) for at in range(3)))
    with pytest.raises(SelectionError) as refused:
        _ = nsysflow.analyze(trace, options).steps, nsysflow.analyze(trace, options).accounting
    assert str(refused.value) == (
        "no range 'step 1' in made: all of its kind are 'step' there, without numbers."
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


def shown(*raw: str) -> list[str]:
    """The phases of ranges with these raw names."""
    return group_names(pl.Series("name", raw, pl.String)).to_list()


@pytest.mark.parametrize(("raw", "name"), NAMES.items())
def test_a_frameworks_ranges_are_one_phase_with_a_plain_name(
    raw: tuple[str, ...], name: str
) -> None:
    assert shown(*raw) == [name] * len(raw)


@pytest.mark.parametrize("raw", PLACES)
def test_ranges_at_different_places_stay_apart(raw: tuple[str, ...]) -> None:
    assert len(set(shown(*raw))) == len(raw)


def test_all_names_of_one_report_are_grouped_as_the_oracle_groups_them() -> None:
    raw = [each for names in NAMES for each in names]
    assert shown(*raw) == [oracle.grouped(raw)[each] for each in raw]


def test_an_operation_of_xla_is_an_operator() -> None:
    raw = pl.DataFrame({"name": ["Thunk:#hlo_op=fusion#", "XlaModule:#hlo_module=jit_step#"]})
    assert raw.select(is_operator(pl.col("name"))).to_series().to_list() == [True, False]
