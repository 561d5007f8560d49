"""The steps of serving engines, and the tokens of `generate` (spec §23)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.engine_names import ENGINE_NUMBERS, TOKEN_FORM, engine_numbers

ENGINE_STEP: Final = "engine step"
"""What all these ranges are called, whatever they do."""

_TOKEN_TIMES: Final = ("called_ns", "token_ns", "token_end_ns")

ENGINE_STEPS: Final = pl.Schema(
    {
        "range": pl.UInt32(),
        "process": pl.Int64(),
        "automatic": pl.Boolean(),
        **dict.fromkeys(_TOKEN_TIMES, pl.Int64()),
        **ENGINE_NUMBERS,
    }
)
"""A row per step of a serving engine; and per automatic step that is one token of `generate`, which
was called at `called_ns`; the range of the token is from `token_ns` to `token_end_ns`, which is
null where it has not ended."""
EngineSteps = Annotated[pl.DataFrame, ENGINE_STEPS]


def engine_steps(ranges: pl.DataFrame, raw: pl.DataFrame) -> EngineSteps:
    """Those of `ranges` that are steps of an engine, with their numbers.

    Args:
        ranges: `range`, `process`, `row`, and their plain `name`.
        raw: the report's ranges, `process`, `row` and `name`.
    """
    key = ["process", "row"]
    steps = ranges.filter(pl.col("name") == ENGINE_STEP)[["range", *key]]
    names = steps.join(raw[[*key, "name"]], on=key, how="left", maintain_order="left")["name"]
    return _with_numbers(steps, names, automatic=False)


def generated_steps(ranges: pl.DataFrame, raw: pl.DataFrame) -> EngineSteps:
    """Those automatic steps in which just one token of `generate` begins, with its numbers.

    Args:
        ranges: automatic steps: `range`, `process`, `start_ns`, `end_ns`.
        raw: the report's automatic ranges: `process`, `thread`, `start_ns`, `end_ns`, `ended`,
            `name`.
    """
    tokens = raw.filter(pl.col("name").str.contains(TOKEN_FORM)).select(
        *("process", "thread", "start_ns", "name"),
        token_ns="start_ns",
        token_end_ns=pl.when("ended").then("end_ns"),
    )
    if tokens.is_empty():
        return ENGINE_STEPS.to_frame()
    tokens = _with_call(tokens.sort("start_ns"), raw.filter(pl.col("name") == _CALL))
    steps = ranges.select("range", "process", "end_ns", begun_ns="start_ns").sort("begun_ns")
    inside = (
        tokens.join_asof(
            steps,
            left_on="start_ns",
            right_on="begun_ns",
            by="process",
            check_sortedness=False,
        )
        .filter(pl.col("start_ns") < pl.col("end_ns"))
        .unique("range", keep="none")
        .sort("range")
    )
    numbers = _with_numbers(inside, inside["name"], automatic=True)
    return numbers.with_columns(inside[name] for name in _TOKEN_TIMES)


_CALL: Final = "generate"
"""Our own annotation of a call of `generate`."""


def _with_call(tokens: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Plus `called_ns`: when the last `generate` began on the token's thread; null where that has
    ended before the token."""
    begun = calls.sort("start_ns", -pl.col("end_ns")).select(
        "thread", until_ns="end_ns", called_ns="start_ns"
    )
    found = tokens.join_asof(
        begun, left_on="start_ns", right_on="called_ns", by="thread", check_sortedness=False
    )
    still = pl.col("start_ns") < pl.col("until_ns")
    return found.with_columns(pl.when(still).then("called_ns")).drop("until_ns")


def _with_numbers(steps: pl.DataFrame, names: pl.Series, *, automatic: bool) -> EngineSteps:
    """`steps` with the numbers in their raw names."""
    marked = steps[["range", "process"]].with_columns(automatic=pl.lit(automatic))
    marked = marked.with_columns(pl.lit(None, pl.Int64).alias(name) for name in _TOKEN_TIMES)
    numbers = engine_numbers(names).get_columns()
    return marked.hstack(numbers).match_to_schema(ENGINE_STEPS)
