"""The sizes of NCCL's messages, which its ranges carry as JSON."""

from typing import Annotated, Any, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.export_tables import Raw
from nsysflow.analysis.load.marks import decoded_or_none

_COMMUNICATORS: Final = 1 << 64


class _Payload(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = msgspec.field(
        name="Message size [bytes]"
    )
    communicator: Any = msgspec.field(name="NCCL communicator ID", default=None)


_PAYLOAD: Final = msgspec.json.Decoder(_Payload)


def messages(raw: Raw) -> pl.DataFrame:
    """`schema.MESSAGES`. Each distinct text is parsed once: a training loop has some dozens."""
    rows = raw.messages.drop_nulls("jsonText")
    texts = rows.select(pl.col("jsonText").unique(maintain_order=True)).to_series()
    payloads = [(text, *sent(text)) for text in texts.cast(pl.String)]
    parsed = pl.DataFrame(
        payloads,
        schema={"text": pl.String(), "bytes": pl.Int64(), "communicator": pl.UInt64()},
        orient="row",
    )
    return (
        rows.with_columns(pl.col("jsonText").cast(pl.String))
        .join(parsed, left_on="jsonText", right_on="text", maintain_order="left")
        .drop_nulls("bytes")
        .rename({"start": "start_ns", "globalTid": "thread"})
        .select(schema.MESSAGES.names())
    )


def sent(text: str) -> tuple[int | None, int | None]:
    """The size of the message and its communicator; None for what is missing."""
    payload = decoded_or_none(_PAYLOAD, text)
    if payload is None:
        return None, None
    communicator = payload.communicator
    known = type(communicator) is int and 0 <= communicator < _COMMUNICATORS
    return payload.size, communicator if known else None


def slim_payload(text: str) -> str | None:
    """A payload with only the parts that we read; None if it has no size."""
    size, communicator = sent(text)
    if size is None:
        return None
    return msgspec.json.encode(_Payload(size=size, communicator=communicator)).decode()
