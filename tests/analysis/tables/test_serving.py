"""Steps of serving engines: their names, and what the tables make of them."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Final

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.engine_names import ENGINE_NUMBERS, engine_numbers
from nsysflow.runtime.protocol import AUTO_DOMAIN
from tests.agreement import Picture, assert_agrees, assert_pictures_agree
from tests.analyses import EXAMPLES
from tests.analysis.load.kineto import traces as kineto
from tests.analysis.tables.test_operators import called, tensor
from tests.exports import write_export
from tests.oracle import engine_names
from tests.oracle.model import Device, Operator, OperatorShape, PlainTrace, Range, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import several, traces
from tests.tiny import PROCESS, WORKER, Row, call, kernel, launch, on_stream, opened, plain_of, told

NONE: Final = "- - - - - - - - - -"
NUMBERS_IN_NAMES: Final = {
    "execute_context_2(6144)_generation_3(3)": "mixed 5 2 3 6147 6144 3 - - -",
    "execute_context_0(0)_generation_64(64)": "decode 64 0 64 64 0 64 - - -",
    "execute_context_1(888_788544)_generation_0(0)": "prefill 1 1 0 888 888 0 - - -",
    "execute_context_0(0)_generation_0(0)": "- 0 0 0 0 0 0 - - -",
    # 3 of 7 and 4 of 9 keys: 5 + 6 + 7 and 6 + 7 + 8 + 9 pairs, and 6 of one query
    "execute_10_context_2(sq7sk16sqsq25sqsk57)_generation_1(sq1sk6sqsq1sqsk6)": (
        "mixed 3 2 1 8 7 1 22 54 -"
    ),
    "execute_6147_context_2(sq6144sk7144sqsq20sqsk23)_generation_3(sq3sk6000sqsq3sqsk6000)": (
        "mixed 5 2 3 6147 6144 3 13144 - -"
    ),  # the squares are too small
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk99)": "decode 2 0 2 2 0 2 99 99 -",
    "execute_new_2_cached_0": "prefill 2 2 0 - - - - - -",
    "step[EXTEND bs=15 toks=15360]": "prefill 15 15 0 15360 15360 0 - - -",
    "step[EXTEND bs=2 toks=9 c_sq=9 c_sqsq=41 c_sqsk=50 c_sk=10]": "prefill 2 2 0 9 9 0 10 34 -",
    "step[DECODE bs=64]": "decode 64 0 64 64 0 64 - - -",
    "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=900 g_sk=700]": (
        "decode 64 0 64 128 0 128 700 836 -"
    ),
    "step[TARGET_VERIFY bs=4]": "decode 4 0 4 - 0 - - - -",
    "step[MIXED bs=2]": "mixed 2 - - - - - - - -",
    "step[MIXED bs=3 c=1 g=2 c_sq=5 c_sk=8 g_sq=2 g_sk=12]": "mixed 3 1 2 7 5 2 20 - -",
    "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sqsq=25 c_sqsk=25 g_sq=1 g_sqsq=1 g_sqsk=9]": (
        "mixed 2 1 1 6 5 1 - 24 -"
    ),
    "step[IDLE bs=0]": NONE,
    "prefill[bs=2 tok=14721 ctx=[7803, 6918]]": "prefill 2 2 0 14721 14721 0 14721 - -",
    "prefill[bs=1 tok=96 ctx=128]": "prefill 1 1 0 96 96 0 128 - -",
    "eager_decode[bs=2 tok=2 ctx=[7, 9]]": "decode 2 0 2 2 0 2 16 16 -",
    "decode[bs=128 tok=384 p=2 d=126 spec=3]": "mixed 128 2 126 384 - - - - -",
    "prefill[bs=6 tok=17408 ctx=[4096, 4096]...+4 sqsq=1 sqsk=2 sk=99]": (
        "prefill 6 6 0 17408 17408 0 99 - -"
    ),
    "decode[bs=117/128 tok=117 d=117]": "decode 117 0 117 117 0 117 - - 128",
    "decode[bs=32 tok=128 d=32 spec=3 sqsq=512 sqsk=2000 sk=65]": (
        "decode 32 0 32 128 0 128 65 1808 -"
    ),
    "_forward_step 13: 1 ctx reqs, 3 gen reqs": "mixed 4 1 3 - - 3 - - -",
    "[Executor] _forward_step 14: 0 ctx reqs, 0 ctx tokens, 31 gen reqs": (
        "decode 31 0 31 31 0 31 - - -"
    ),
    "token[decode bs=4 tok=4]": "decode 4 0 4 4 0 4 - - -",
    "token[prefill bs=4 tok=40]": "prefill 4 4 0 40 40 0 - - -",
    "engine step by function[decode]": "decode - - - - - - - - -",
    "engine step by function[]": NONE,
    # no engine writes these
    "decode bs=64": NONE,
    "execute_context_1234567890123(1)_generation_3(3)": NONE,
    "step[DECODE bs=\n]": NONE,
    "": NONE,
}
"""By name: kind, requests (of prefill, of decode), tokens (of prefill, of decode), context, pairs,
and the padded size; `-` is null."""


def test_the_numbers_in_a_name_become_columns() -> None:
    names = [*NUMBERS_IN_NAMES]
    found = engine_numbers(pl.Series(names, dtype=pl.String))
    rows = [" ".join("-" if one is None else str(one) for one in row) for row in found.rows()]
    assert dict(zip(names, rows, strict=True)) == NUMBERS_IN_NAMES
    assert engine_numbers(pl.Series([], dtype=pl.String)).schema == ENGINE_NUMBERS


PIECES = (
    *(" p=1", " d=2", " ctx=", "3", "[4, 5]", "...+6", "eager_"),
    *("engine step by function[", "decode]"),
    *(" c_sqsq=7", " g_sqsk=9", " sqsq=4", " sqsk=8", "sqsq4sqsk9"),
    *("execute_", "context_", "2", "(6)", "(sq2sk3x)", "_generation_", "new_1_cached_2", "step["),
    *("EXTEND", "MIXED", " bs=3", " toks=4", " c=1", " g=2", " c_sq=5", " g_sk=6", " sk=7", "]"),
    *("decode[", "bs=3", "/8", " tok=9", "\n", "prefill[", "[Executor] ", "_forward_step 1: "),
    *("1 ctx reqs, ", "2 ctx tokens, ", "3 gen reqs", "é", "_", "DECODE", "bs=", "=[1, 2]"),
    "token[",
)


@settings(max_examples=50 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
        | st.sampled_from([*NUMBERS_IN_NAMES]).flatmap(
            lambda name: st.tuples(
                st.integers(0, len(name)), st.sampled_from(PIECES), st.booleans()
            ).map(lambda cut: name[: cut[0]] + cut[1] + name[cut[0] :] * cut[2])
        ),
        max_size=30,
    )
)
def test_names_are_read_as_the_oracle_reads_them(names: list[str]) -> None:
    found = engine_numbers(pl.Series(names, dtype=pl.String)).to_dicts()
    expected = [engine_names.engine_numbers(name) for name in names]
    assert found == [{column: row[column] for column in ENGINE_NUMBERS} for row in expected]


IN_FILES: Final = (
    ("execute_context_2(96)_generation_0(0)", ("prefill", 2, 96)),
    ("execute_context_0(0)_generation_2(2)", ("decode", 2, 2)),
    ("execute_5_context_1(sq3sk3sqsq9sqsk9)_generation_2(sq2sk99sqsq2sqsk99)", ("mixed", 3, 5)),
)


def kineto_file(folder: Path) -> Path:
    """These steps in a trace of torch.profiler, each 100 us apart."""
    events = []
    for number, (name, _) in enumerate(IN_FILES):
        at = 100 * number
        events += [
            kineto.event("user_annotation", name, at, 50),
            kineto.call(at + 5, number + 1, dur=5),
            kineto.kernel(at + 20, 10, correlation=number + 1),
        ]
    return kineto.write(folder, *events)


def nsys_file(folder: Path) -> Path:
    """The same in an export of nsys."""
    nvtx, calls, kernels = [], [], []
    for number, (name, _) in enumerate(IN_FILES):
        at, correlation = 100_000 * number, {"correlationId": number + 1}
        nvtx.append({"start": at, "end": at + 50_000, "text": name})
        calls.append({"start": at + 5_000, "end": at + 10_000, **correlation})
        kernels.append({"start": at + 20_000, "end": at + 30_000, **correlation})
    return write_export(folder / "engine.sqlite", kernels=kernels, calls=calls, nvtx=nvtx)


@pytest.mark.parametrize("write", [kineto_file, nsys_file])
def test_files_of_both_profilers_have_the_steps(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    steps = nsysflow.analyze(write(tmp_path)).serving_steps
    told = steps.select(pl.col("kind").cast(pl.String), "requests", "tokens").rows()
    assert told == [expected for _, expected in IN_FILES]
    assert steps["duration_ns"].to_list() == [100_000, 100_000, 10_000]


PREFILL, DECODE, MIXED, NOTHING = (
    *("step[EXTEND bs=1 toks=100]", "decode[bs=3/4 tok=3 d=3]"),
    *("execute_context_1(90)_generation_3(3)", "execute_context_0(0)_generation_0(0)"),
)


def engine(*steps: tuple[str, int], sampler: bool = True) -> list[Row]:
    """Steps of an engine, one after the other: name and ns of the GPU. The host launches 10 ns
    after the GPU is done; after the range the sampler runs for 5 ns."""
    ends = [*accumulate((busy + 40 for _, busy in steps), initial=0)]
    rows: list[Row] = []
    for number, (at, (name, busy)) in enumerate(zip(ends, steps, strict=False)):
        rows += [
            opened(at, at + 12, name),
            launch(at, at + 10, 2 * number + 1),
            kernel(at + 10, at + 10 + busy, 2 * number + 1),
        ]
        if sampler:
            done = at + 10 + busy
            rows += [
                launch(at + 14, at + 16, 2 * number + 2),
                kernel(done, done + 5, 2 * number + 2, name="sample"),
                call(at + 20, done + 5, "cudaStreamSynchronize"),
            ]
    return rows


def generated(
    *requests: int, sequences: int = 2, rollouts: bool = False, called: tuple[int, ...] = ()
) -> list[Row]:
    """Calls of a model in `generate`, as `nsysflow profile` marks them: so many tokens of each
    request, the first of which is its prompt. With `rollouts`, a step has all of them. `called`: so
    many ns before the step of its prompt each request was called, 0 for one that was not."""
    rows: list[Row] = []
    begins = accumulate(requests, initial=0)
    for before, first, tokens in zip(called, begins, requests, strict=False):
        begin = 1_000 * first - before
        whole = opened(begin, begin + before + 1_000 * (tokens - 1) + 95, "generate")
        rows += [replace(whole, domain=AUTO_DOMAIN, row=10**6 + first)] * (before > 0)
    kinds = [
        ("decode", 1) if token else ("prefill", 9) for each in requests for token in range(each)
    ]
    for number, (kind, length) in enumerate(kinds):
        at, busy = 1_000 * number, 500 if kind == "prefill" else 100
        tokens = sequences * length
        ours = [
            opened(at + 5, at + 90, f"token[{kind} bs={sequences} tok={tokens}]"),
            opened(at + 6, at + 80, "forward"),
            *([] if rollouts and number else [opened(at, at + 1, "call")]),
        ]
        rows += [replace(one, domain=AUTO_DOMAIN) for one in ours]
        rows += [launch(at + 10, at + 20, number + 1), kernel(at + 30, at + 30 + busy, number + 1)]
    last = replace(opened(1_000 * len(kinds), 1_000 * len(kinds) + 1, "call"), domain=AUTO_DOMAIN)
    return [*rows, last]


def with_sampler(*rows: Row) -> list[Row]:
    """The same, and a sampler that runs after the next step has begun, in the first token."""
    step = replace(opened(60, 61, "call"), domain=AUTO_DOMAIN)
    return [*rows, step, launch(80, 85, 999), kernel(540, 700, 999)]


def training() -> list[Row]:
    """Four steps of training after three steps of an engine, which take less time."""
    rows = engine((DECODE, 100), (DECODE, 90), (DECODE, 80))
    for at in (1_000, 2_000, 3_000, 4_000):
        rows += [opened(at, at + 20, "train"), launch(at + 5, at + 9, at)]
        rows.append(kernel(at + 30, at + 900, at))
    return rows


def late_start(before: int) -> list[Row]:
    """A step of which the GPU begins the second operation 200 us late, as it had to do what was
    launched before the recording; the first, on another stream, takes `before` ns."""
    begun = 5_000 + before + 200_000
    return [
        opened(0, 40_000, DECODE),
        launch(1_000, 2_000, 1),
        on_stream(kernel(5_000, 5_000 + before, 1), 13),
        launch(3_000, 4_000, 2),
        kernel(begun, begun + 100_000, 2),
        launch(6_000, 7_000, 3),
        kernel(begun + 100_500, begun + 150_000, 3),
    ]


QUERIES, CACHED = tensor(32, 64, 64), tensor(32, 8, 64)
PAGED: Final = called("vllm::unified_attention_with_output", QUERIES, CACHED, CACHED, QUERIES)
RAGGED: Final = called(
    "sglang_profiler::attention_paged_attention_ragged_100", *[QUERIES] * 3, *[CACHED] * 2
)
BATCH: Final = tensor(2, 4, 5, 16)
WHOLE: Final = called("aten::_scaled_dot_product_flash_attention", *[BATCH] * 3, "0.", "True")


def worked(
    *steps: tuple[str, int, int], gpu: str | None = "NVIDIA H200", attention: OperatorShape = PAGED
) -> PlainTrace:
    """Steps of an engine with a kernel of attention and one of a product, of so many ns each; 32
    queries of 64 heads of 64, 8 of which keys and values have."""
    rows: list[Row] = []
    links = []
    product = called("aten::mm", tensor(32, 4_096), tensor(4_096, 6_144))
    for number, (name, attending, multiplying) in enumerate(steps):
        at = 1_000_000 * number
        rows.append(opened(at, at + 50, name))
        ends = (at + 100 + attending, at + 100 + attending + multiplying)
        for place, (kind, begun, ended, shape) in enumerate(
            (
                ("flash_fwd_kernel", at + 100, ends[0], attention),
                ("nvjet_tst_64x8", ends[0], ends[1], product),
            )
        ):
            correlation = 2 * number + place + 1
            rows += [
                launch(at + 10 + 10 * place, at + 15 + 10 * place, correlation),
                kernel(begun, ended, correlation, name=kind),
            ]
            links.append(Operator(PROCESS, correlation, correlation, shape))
    device = Device(0, gpu, None, 132, None)
    return replace(plain_of(*rows), operators=tuple(links), devices=(device,))


def decoding(context: int, requests: int = 32) -> str:
    """A step of decoding, as vLLM writes it."""
    sums = f"sq{requests}sk{context}sqsq{requests}sqsk{context}"
    return f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)_generation_{requests}({sums})"


def test_work_follows_from_the_tokens_and_the_context_of_a_step() -> None:
    """32,768 tokens of context in 8 heads of 64: 67.1 MB; 0.54 GFLOP. At 4.8 TB/s of an H200 that
    takes 14.2 us of 20 us. The product reads 50.3 MB of weights: 10.6 us of 40 us."""
    table = nsysflow.analyze(to_trace(worked((decoding(32_768), 20_000, 40_000)))).serving_work
    attention, matmul = table.to_dicts()
    moved = 2 * 2 * 8 * 64 * 32_768 + 2 * 2 * 32 * 64 * 64
    assert attention["bytes_per_s"] == pytest.approx(moved / 20e-6)
    assert attention["flops_per_s"] == pytest.approx(2 * 2 * 64 * 64 * 32_768 / 20e-6)
    assert attention["roofline_pct"] == pytest.approx(100 * moved / 4.8e12 / 20e-6)
    weights = 2 * (32 * 4_096 + 4_096 * 6_144 + 32 * 6_144)
    assert matmul["roofline_pct"] == pytest.approx(100 * weights / 4.8e12 / 40e-6)
    assert {attention["limit"], matmul["limit"]} == {"memory"}


LENGTHS: Final = [
    *((decoding(900), 50, 70), (decoding(1_500, 31), 80, 70), (decoding(2_000, 30), 95, 60))
]
GROWING: Final = [
    (decoding(1_000 * n, 30 + n), 5_000 + 1_000 * n, 9_000 + n % 2) for n in range(1, 9)
]
"""1 us for each 1,000 tokens; the product takes the same whatever it is given."""
ALONE: Final = "step[DECODE bs=1]"

PICTURES: Final[dict[str, Picture]] = {
    "work on a GPU of no name": worked(*LENGTHS, gpu=None),
    "work of steps without context": worked((DECODE, 50, 70), (PREFILL, 900, 800), (DECODE, 0, 0)),
    "attention that grows with the context": worked(*GROWING),
    "two steps that tell no growth": worked(*GROWING[:2]),
    "work of an operator with a number": worked(*LENGTHS, attention=RAGGED),
    "attention that says its lengths": worked(*LENGTHS, attention=WHOLE),
    "a step waits from the end of the one before": engine(
        (DECODE, 100), (DECODE, 200), (DECODE, 100)
    ),
    "a prompt between decodes holds the running requests up": engine(
        (DECODE, 100), (PREFILL, 500), (DECODE, 100), (DECODE, 60)
    ),
    "one request after the other is not held up": engine(
        *((PREFILL, 500), (ALONE, 100), (ALONE, 90), (PREFILL, 400), (ALONE, 80), (ALONE, 9))
    ),
    "a step without requests gives no tokens": engine(
        (MIXED, 300), (NOTHING, 50), (DECODE, 100), (DECODE, 60)
    ),
    "prompts take as long as they are, and a slow decode is a one-off": engine(
        (PREFILL, 900), *[(DECODE, 100)] * 9, (MIXED, 700), (DECODE, 400), (DECODE, 100)
    ),
    "no sampler": engine((PREFILL, 50), (DECODE, 100), (DECODE, 90), sampler=False),
    "two mixed without numbers": engine(*[("step[MIXED bs=2]", 40)] * 4),
    "one in the other": [
        *engine((DECODE, 100), (DECODE, 90)),
        opened(1, 8, "step[DECODE bs=9]"),
        opened(2, 6, "attention"),
    ],
    "around others": [*engine(*[(DECODE, 100)] * 4), replace(opened(0, 600, "worker"), row=10**6)],
    "an engine's name by hand": engine(*[("engine step", 100)] * 4),
    "generate in a step": generated(4, 3, rollouts=True),
    "generate with calls": generated(4, 3, 5, called=(300, 0, 800)),
    "generate that never ended": [
        *generated(4, 3, 1),
        replace(opened(3, None, "generate"), domain=AUTO_DOMAIN),
    ],
    "generate with a sampler": with_sampler(*generated(4, 3, 2, called=(300, 0, 100))),
    "a token that never ended": [
        replace(row, end_ns=None) if isinstance(row, Range) and row.start_ns == 4_005 else row
        for row in generated(4, 3, 2, called=(300, 200, 100))
    ],
    "generate on another thread": [
        *generated(4, 3, 1),
        replace(opened(3, 9_000, "generate", thread=WORKER), domain=AUTO_DOMAIN),
    ],
    "late start": late_start(900),
    "later start": late_start(9_000),
    "told to wait for what is recorded": told(
        *late_start(900), launch(8_000, 8_100, 4), record=(2_100, 13), wait=(2_900, 7)
    ),
    "mostly something else": training(),
    "nothing launched": [opened(5, 9, DECODE), launch(20, 22, 1), kernel(30, 40, 1)],
}


def test_small_traces_agree_with_the_oracle() -> None:
    assert_pictures_agree(PICTURES)


def with_engine_steps(model: PlainTrace, names: list[str]) -> PlainTrace:
    """The same trace with the ranges `a` and `b` called as an engine calls its steps."""
    ranges = (
        replace(one, name=names[one.row % len(names)]) if one.name in ("a", "b") else one
        for one in model.ranges
    )
    return replace(model, ranges=tuple(ranges))


@settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck))
@given(several(traces()), st.lists(st.sampled_from([*NUMBERS_IN_NAMES]), min_size=1, max_size=6))
def test_random_traces_with_steps_of_engines_agree_with_the_oracle(
    model: PlainTrace, names: list[str]
) -> None:
    model = with_engine_steps(model, names)
    assert_agrees(nsysflow.analyze(to_trace(model)), Report(model))
