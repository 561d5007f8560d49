"""Serving engines.

* `serial-scheduling`: an engine prepares a step only when the one before it is done.
* `engine-kernels`: instead of `largest-kernels`, what its operator can do about its kernels.

The engine reads the tokens of a step, then its scheduler, its input tensors and the launches take
some milliseconds in which the GPU idles. Engines can do all that while the GPU computes: the next
step's input tokens are taken from the GPU, and the host reads them one step later.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import polars as pl

from nsysflow.analysis.events.kernel_classes import is_quantized
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, share_of_kernels
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.names import one_line
from nsysflow.base.units import number, percent, whole_percent

CHANGE: Final = (
    "schedule ahead: vLLM --async-scheduling, SGLang without --disable-overlap-schedule,"
    " TensorRT-LLM without disable_overlap_scheduler",
    "in an engine of your own: launch the next step with the tokens on the GPU as its input, and"
    " read them on the host after that",
)


def serial_scheduling(subject: JudgedReport) -> Iterator[Finding]:
    """The steps of a serving engine whose host waits for their tokens before it prepares the
    next."""
    waits = subject.timeline.token_waits
    steps = subject.judged_steps.filter(pl.col("range").is_in(waits["range"].implode()))
    if steps.is_empty():
        return
    rows = subject.tables.serving.filter(pl.col("kind") == "all")
    waiting_ns = subject.worst_ns(rows, "host_wait_ns")
    calls = subject.timeline.stalls.join(waits, on="call", how="semi")
    places = calls.group_by(pl.col("name").cast(pl.String), "phase").len()
    api, phase, _ = places.sort("len", "name", "phase").row(-1)
    yield Finding(
        rule="serial-scheduling",
        title="the engine prepares a step only when the one before it is done",
        change=CHANGE,
        evidence=(
            f"the GPU waits for the scheduler, the sampler and launches for"
            f" {subject.spent(waiting_ns)}, {whole_percent(waiting_ns, subject.step_ns)}",
            f"{number(len(steps))} of {number(len(subject.judged_steps))} judged steps end with a"
            " wait for their tokens",
        ),
        table="serving",
        size_ns=waiting_ns,
        steps=subject.steps_with(steps["start_ns"]),
        changes=Changes(overlapped=True),
        phase=phase,
        culprit=api,
    )


MORE_REQUESTS: Final = (
    "more requests in a step: it reads all weights once, for one request as for a hundred (vLLM"
    " --max-num-seqs, SGLang --max-running-requests)"
)
SPECULATE: Final = (
    "speculative decoding: the same reading of the weights checks several tokens of a request"
)
KEEP_PREFIXES: Final = (
    "keep the prefixes that prompts share: vLLM without --no-enable-prefix-caching, SGLang without"
    " --disable-radix-cache"
)
CHUNKS: Final = (
    "prompts in chunks beside requests that decode, which then wait less: vLLM"
    " --max-num-batched-tokens, SGLang --chunked-prefill-size and --enable-mixed-chunk"
)
FEWER_BITS: Final = (
    "weights of 8 or 4 bits (fp8, AWQ, GPTQ): half or a quarter of the bytes that a step reads"
)
FAST_BITS: Final = "weights and activations in fp8, where the GPU has it: twice the operations"
KV_CACHE: Final = "the KV cache in 8 bits: --kv-cache-dtype fp8 halves what attention reads"
BACKEND: Final = "another attention: vLLM --attention-backend, SGLang --attention-backend"
COMPILE: Final = (
    "let the engine fuse small kernels: vLLM without --enforce-eager, SGLang --enable-torch-compile"
)

PRODUCTS: Final = ("matmul", "moe")
"""The classes of kernels that read weights."""

IN_STEP: Final[Mapping[str, str]] = {
    "decode": "make one token more of each request",
    "mixed": "read prompts and decode",
    "prefill": "read prompts",
    "all": "compute tokens",
}
"""What steps of a kind do."""


def engine_kernels(
    subject: JudgedReport, rows: pl.DataFrame, largest: str, first: Sequence[str]
) -> Iterator[Finding]:
    """What helps against the largest class of kernels in an engine's steps. Nothing if the judged
    steps are no engine's.

    Args:
        subject: the judged part.
        rows: the rows of `subject.kernels` in that class.
        largest: the class.
        first: the names of its kernels that take most time.
    """
    named = subject.timeline.engine_steps.filter(~pl.col("automatic"))
    steps = subject.judged_steps.filter(pl.col("range").is_in(named["range"].implode()))
    if steps.is_empty():
        return
    kinds = subject.tables.serving.filter(pl.col("kind").cast(pl.String) != "all")
    kinds = kinds.sort("time_ns", pl.col("kind").cast(pl.String))
    kind = str(kinds["kind"][-1]) if len(kinds) else "all"
    requests = kinds["requests_per_step"][-1] if len(kinds) else None
    few_bits = rows.filter(is_quantized(pl.col("name").cast(pl.String)))
    quantized = largest in PRODUCTS and 2 * int(few_bits["ns"].sum()) >= int(rows["ns"].sum())
    yield Finding(
        rule="engine-kernels",
        title=f"most kernel time is {largest}: {percent(share_of_kernels(subject, rows))}",
        change=_changes(largest, kind, quantized=quantized),
        fits=True,
        evidence=(
            in_words(subject, rows),
            *([f"its weights have 8 bits or fewer: {one_line(first[0])}"] if quantized else []),
            *([f"steps that {IN_STEP[kind]}: {requests:.3g} requests a step"] if requests else []),
            f"largest: {', '.join(map(one_line, first))}",
        ),
        table="kernels",
        size_ns=subject.worst_ns(rows, "ns"),
        steps=min(subject.steps, subject.steps_with(rows["start_ns"])),
        culprit=first[0],
    )


def _changes(largest: str, kind: str, *, quantized: bool) -> tuple[str, ...]:
    """What helps against a class of kernels in steps of a kind; `all` where no kind is known."""
    if largest == "attention":
        return (KV_CACHE, BACKEND) if kind == "decode" else (KEEP_PREFIXES, BACKEND)
    if largest not in PRODUCTS:
        return (COMPILE,)
    if kind == "prefill":
        return (KEEP_PREFIXES, CHUNKS, *(() if quantized else (FAST_BITS,)))
    fewer = () if quantized else (FEWER_BITS,)
    if kind == "mixed":
        return (KEEP_PREFIXES, CHUNKS, *fewer)
    return (MORE_REQUESTS, SPECULATE, *fewer)
