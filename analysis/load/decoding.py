"""JSON from outside as typed values."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decoded_or_none(decoder: msgspec.json.Decoder[T], text: str | bytes | msgspec.Raw) -> T | None:
    """`text`, decoded; None if it is not JSON of that type."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
