"""Steps of serving engines: what each does, how fast, and how long a request waits for its next
token (spec §23)."""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import BY_HOST
from nsysflow.analysis.engine_names import ENGINE_NUMBERS, KIND
from nsysflow.analysis.events.kernel_classes import class_of
from nsysflow.analysis.frames.columns import median_ns, p95_ns, percent, std_ns
from nsysflow.analysis.phases.automatic import step_at
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.steps.engines import StepSpans
from nsysflow.analysis.tables.steps import timed_steps
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

_MEANINGS: Final = {
    "kind": "what it does: it reads prompts (prefill), makes the next token of each request "
    "(decode), or both (mixed); empty for a step without requests",
    "requests": "how many requests it has",
    "prefill_requests": "how many of them read their prompt, or a part of it",
    "decode_requests": "how many of them get their next token",
    "tokens": "how many tokens it computes",
    "prefill_tokens": "how many of them are of prompts",
    "decode_tokens": "how many of them are of requests that get their next token; with speculative "
    "decoding these are several a request",
    "context_tokens": "how many tokens its attention looks at, these included, all requests "
    "together",
    "query_key_pairs": "how many pairs of a query and a key its causal attention computes, all "
    "requests together",
    "padded_requests": "for how many requests it has room: the size of its CUDA graph",
}

SERVING_STEPS: Final = TableSchema(
    """One row per process, device and step of a serving engine, with the numbers that the engine
    writes into the name of the step's range; and per call of the model in `generate` of
    transformers. What a name does not say is null.""",
    [
        *shared("report process device"),
        Column("step", pl.Int64(), "the step's number on its GPU, from 0, as in steps"),
        *(Column(name, dtype, _MEANINGS[name]) for name, dtype in ENGINE_NUMBERS.items()),
        *shared("start_ns"),
        Column("duration_ns", pl.Int64(), "from its first operation to the next step's first one"),
        Column(
            "time_ns",
            pl.Int64(),
            "the same without idle time in which the GPU did what is not in the report",
        ),
        Column("idle_ns", pl.Int64(), "the idle time of the gaps that start in it"),
        Column(
            "host_wait_ns",
            pl.Int64(),
            "the part of the idle time in which the GPU waits for the host: the scheduler, the "
            "sampler, launches",
        ),
        Column(
            "between_tokens_ns",
            pl.Int64(),
            "what its requests waited for this token: from the end of the step that gave them the "
            "one before to the end of this step",
        ),
        Column(
            "first_token_ns",
            pl.Int64(),
            "of a prompt in `generate`: from its call to the end of this step, which makes the "
            "first token",
        ),
        Column("attention_ns", pl.Int64(), "how long the kernels of attention in it run"),
        Column("matmul_ns", pl.Int64(), "how long the kernels of matrix products in it run"),
    ],
)

SERVING: Final = TableSchema(
    """One row per process, device and kind of step, and one for all steps together. A sum is null
    if the name of one of the steps does not say how much it was.""",
    [
        *shared("report process device"),
        Column("kind", pl.Enum([*KIND.categories, "all"]), "prefill, mixed, decode, or all steps"),
        Column("steps", pl.Int64(), "how many steps"),
        Column("requests_per_step", pl.Float64(), "how many requests a step has in the mean"),
        *(
            Column(name, pl.Int64(), _MEANINGS[name].replace("it computes", "they compute"))
            for name in ("tokens", "prefill_tokens", "decode_tokens")
        ),
        Column("time_ns", pl.Int64(), "how long these steps took together"),
        Column("tokens_per_s", pl.Float64(), "tokens of these steps over their time"),
        Column("median_ns", pl.Int64(), "the median step"),
        Column("p95_ns", pl.Int64(), "the time that 95 % of the steps do not exceed"),
        Column("std_ns", pl.Int64(), "the standard deviation of a step's time"),
        Column(
            "between_tokens_ns",
            pl.Int64(),
            "the median time that requests wait from one token to the next",
        ),
        Column(
            "between_tokens_p95_ns",
            pl.Int64(),
            "the time from one token to the next that 95 % of the steps do not exceed",
        ),
        Column("first_token_ns", pl.Int64(), "the median time to the first token"),
        Column("first_token_max_ns", pl.Int64(), "the longest time to the first token"),
        Column("host_wait_ns", pl.Int64(), "how long the GPU waits for the host in these steps"),
        Column("host_wait_pct", pl.Float64(), "the same as a share of their time"),
        Column(
            "padding_pct",
            pl.Float64(),
            "the share of the room in their CUDA graphs that no request fills",
        ),
    ],
)


def serving_steps(view: View) -> pl.DataFrame:
    """The SERVING_STEPS table."""
    if view.timeline.engine_steps.is_empty():
        return SERVING_STEPS.to_frame()
    numbers = view.timeline.engine_steps.drop("process", "automatic").rename({"kind": "does"})
    waited = pl.sum_horizontal(f"{cause}_ns" for cause in BY_HOST).alias("host_wait_ns")
    return (
        timed_steps(view)
        .join(numbers, on="range", maintain_order="left")
        .join(between_tokens(view.timeline), on=["range", "device_no"], how="left")
        .join(first_tokens(view.timeline), on=["range", "device_no"], how="left")
        .join(_class_times(view), on=["range", "device_no"], how="left")
        .with_columns(
            waited,
            pl.col("does").alias("kind"),
            pl.col(*_CLASS_TIMES).fill_null(0),
            time_ns=pl.col("duration_ns") - pl.col("unknown_ns"),
        )
        .sort("process", "device", "step")
    )


WORK_CLASSES: Final = ("attention", "matmul")
"""The classes of kernels whose work follows from a step's tokens and context."""

_CLASS_TIMES: Final = [f"{name}_ns" for name in WORK_CLASSES]


def _class_times(view: View) -> pl.DataFrame:
    """Per `range` and `device_no` the time of its kernels of each of these classes."""
    ns = (pl.col("ns").filter(pl.col("class") == name).sum() for name in WORK_CLASSES)
    sums = dict(zip(_CLASS_TIMES, ns, strict=True))
    return kernels_of_steps(view).group_by("range", "device_no").agg(**sums)


def kernels_of_steps(view: View) -> pl.DataFrame:
    """The kernels of these classes that start in a step of an engine of their process: `range`,
    `device_no`, `class`, `ns`, `name`, `process`, `correlation`, `detail`."""
    is_computing = (pl.col("kind") == "kernel") & (pl.col("part") == "compute")
    ops = view.timeline.ops.lazy().filter(is_computing)
    names = ops.select("name", "short_name").unique("name").collect()
    name, short = (pl.col(column).cast(pl.String) for column in ("name", "short_name"))
    kind = class_of(name, short, view.options.kernel_classes).alias("class")
    of_class = names.select("name", kind).filter(pl.col("class").is_in(WORK_CLASSES))
    steps = view.steps.join(view.timeline.engine_steps[["range"]], on="range", how="semi")
    begun = steps.select("process", "device_no", "range", "end_ns", begun_ns="start_ns")
    return (
        ops.join(of_class.lazy(), on="name")
        .select(
            *("process", "device_no", "class", "name", "correlation", "detail", "start_ns"),
            (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
        )
        .sort("start_ns")
        .collect()
        .join_asof(
            begun.sort("begun_ns", maintain_order=True),
            left_on="start_ns",
            right_on="begun_ns",
            by=["process", "device_no"],
            check_sortedness=False,
        )
        .filter(pl.col("start_ns") < pl.col("end_ns"))
    )


def serving(view: View) -> pl.DataFrame:
    """The SERVING table."""
    steps = serving_steps(view)
    if steps.is_empty():
        return SERVING.to_frame()
    kinds = SERVING["kind"]
    known = steps.drop_nulls("kind").with_columns(pl.col("kind").cast(kinds))
    both = pl.concat([known, steps.with_columns(pl.lit("all", kinds).alias("kind"))])
    padded = pl.col("padded_requests")
    room = pl.col("requests").filter(padded.is_not_null()).sum()
    return (
        both.group_by("process", "device", "kind")
        .agg(
            pl.len().cast(pl.Int64).alias("steps"),
            pl.col("requests").mean().alias("requests_per_step"),
            *(_known_sum(name) for name in ("tokens", "prefill_tokens", "decode_tokens")),
            pl.col("time_ns").sum(),
            median_ns(pl.col("time_ns")).alias("median_ns"),
            p95_ns(pl.col("time_ns")).alias("p95_ns"),
            std_ns(pl.col("time_ns")).alias("std_ns"),
            median_ns(pl.col("between_tokens_ns")).alias("between_tokens_ns"),
            p95_ns(pl.col("between_tokens_ns").drop_nulls()).alias("between_tokens_p95_ns"),
            median_ns(pl.col("first_token_ns")).alias("first_token_ns"),
            pl.col("first_token_ns").max().alias("first_token_max_ns"),
            pl.col("host_wait_ns").sum(),
            percent(padded.sum() - room, padded.sum()).alias("padding_pct"),
        )
        .with_columns(
            pl.when(pl.col("time_ns") > 0)
            .then(pl.col("tokens") * 1e9 / pl.col("time_ns"))
            .alias("tokens_per_s"),
            percent(pl.col("host_wait_ns"), pl.col("time_ns")).alias("host_wait_pct"),
        )
        .sort("process", "device", "kind")
    )


def _known_sum(name: str) -> pl.Expr:
    """The sum of a column; null if one of the values is not known."""
    return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)


def between_tokens(timeline: Timeline) -> pl.DataFrame:
    """Per `range` and `device_no` of a step that decodes, `between_tokens_ns`."""
    track = ["process", "device_no"]
    steps = (
        timeline.steps.join(timeline.engine_steps.drop("process", "automatic", "kind"), on="range")
        .join(timeline.engine_steps.select("range", does="kind"), on="range")
        .join(_ends(timeline, timeline.engine_spans), on=["range", "device_no"], how="left")
        .sort(*track, "step")
        .with_columns((pl.col("step") == pl.col("step").max().over(track)).alias("last"))
        .drop_nulls("does")
    )
    decodes = pl.col("does").is_in(["mixed", "decode"])
    read = pl.when(pl.col("does") == "prefill").then("prefill_requests").fill_null(0).cum_sum()
    steps = steps.with_columns(read.over(track).alias("read"))
    given = steps.with_columns(
        *(
            pl.when(decodes).then(name).forward_fill().shift(1).over(track).alias(f"{name}_before")
            for name in ("tokens_end_ns", "read")
        ),
        pl.col("tokens_end_ns").shift(1).over(track).alias("step_before"),
        pl.col("read").shift(1).over(track).alias("read_by_now"),
    )
    fresh = pl.col("read_by_now") - pl.col("read_before").fill_null(0)
    since = (
        pl.when(pl.col("decode_requests") <= fresh)
        .then("step_before")
        .otherwise("tokens_end_ns_before")
    )
    return given.filter(decodes & ~pl.col("last")).select(
        "range", "device_no", (pl.col("tokens_end_ns") - since).alias("between_tokens_ns")
    )


def first_tokens(timeline: Timeline) -> pl.DataFrame:
    """Per `range` and `device_no` of a step that reads a prompt in `generate`, `first_token_ns`."""
    prompts = timeline.engine_steps.filter(pl.col("kind") == "prefill")
    prompts = prompts.drop_nulls(["called_ns", "token_end_ns"])
    spans = prompts.select("process", "range", start_ns="token_ns", end_ns="token_end_ns")
    return prompts.join(_ends(timeline, spans), on="range").select(
        "range",
        "device_no",
        (pl.col("tokens_end_ns") - pl.col("called_ns")).alias("first_token_ns"),
    )


def _ends(timeline: Timeline, spans: StepSpans) -> pl.DataFrame:
    """Per `range` and `device_no`, `tokens_end_ns`: the end of the last operation that its process
    launched in the span, of those that overlap in the one that began last."""
    ops = timeline.ops.select("process", "device_no", "end_ns", time_ns="launch_start_ns")
    at = step_at(spans, ops, timeline.events.axis)
    return (
        ops.with_columns(at)
        .drop_nulls("range")
        .group_by("range", "device_no")
        .agg(pl.col("end_ns").max().alias("tokens_end_ns"))
    )


TABLES: Final = (
    Table(
        name="serving",
        schema=SERVING,
        make=serving,
        csv="with rows",
        json_key="serving",
        page_rows=8,
        full_rows=30,
        filled_by="record an engine that names its steps, such as vLLM or SGLang, or transformers",
        shown=(
            "report process device kind steps requests_per_step tokens_per_s median_ns p95_ns "
            "between_tokens_ns between_tokens_p95_ns first_token_ns first_token_max_ns "
            "host_wait_pct padding_pct"
        ),
    ),
    Table(
        name="serving_steps",
        schema=SERVING_STEPS,
        make=serving_steps,
        csv="with rows",
        json_key=None,
        judged=False,
        filled_by="record an engine that names its steps, such as vLLM or SGLang, or transformers",
        shown=(
            "report process device step kind requests tokens time_ns host_wait_ns "
            "between_tokens_ns context_tokens padded_requests attention_ns matmul_ns"
        ),
    ),
)
