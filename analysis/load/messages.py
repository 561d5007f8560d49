"""What NCCL says it sends: the payload of its NVTX ranges, one JSON object each.

nsys writes it into `jsonText`, and only with `--include-json=true`.
"""

import json
from typing import Any, Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.raw import Raw

NCCL: Final = "NCCL"
"""The NVTX domain of its ranges."""

SIZE: Final = "Message size [bytes]"
COMMUNICATOR: Final = "NCCL communicator ID"

_SIZES: Final = 1 << 63
_COMMUNICATORS: Final = 1 << 64


def messages(raw: Raw) -> pl.DataFrame:
    """`schema.MESSAGES`: each distinct text is parsed once (a training loop has some dozens)."""
    rows = raw.messages.drop_nulls("jsonText")
    texts = rows.select(pl.col("jsonText").unique(maintain_order=True)).to_series()
    parsed = [(text, *sent(text)) for text in texts.cast(pl.String)]
    told = pl.DataFrame(
        parsed,
        schema={"text": pl.String(), "bytes": pl.Int64(), "communicator": pl.UInt64()},
        orient="row",
    )
    return (
        rows.with_columns(pl.col("jsonText").cast(pl.String))
        .join(told, left_on="jsonText", right_on="text", maintain_order="left")
        .drop_nulls("bytes")
        .rename({"start": "start_ns", "globalTid": "thread"})
        .select(schema.MESSAGES.names())
    )


def sent(text: str) -> tuple[int | None, int | None]:
    """The size of the message and the communicator that a payload tells; None where it does not, or
    not as a number that can be."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(found, dict):
        return None, None
    return _below(_SIZES, found.get(SIZE)), _below(_COMMUNICATORS, found.get(COMMUNICATOR))


def _below(limit: int, found: Any) -> int | None:  # noqa: ANN401  # whatever JSON holds
    return found if type(found) is int and 0 <= found < limit else None


def slim_payload(text: str) -> str | None:
    """A payload with nothing but what we read; None of one that tells no size."""
    size, communicator = sent(text)
    kept = {SIZE: size, COMMUNICATOR: communicator}
    return None if size is None else json.dumps(kept, separators=(",", ":"))
