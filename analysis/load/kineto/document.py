"""A torch.profiler trace as JSON: the document, its events, and the numbers in them; and frames of
such numbers.

Decoding is tolerant: any field may be missing or hold anything, and only the events that we use are
checked. Torch writes ids as numbers; other programs that rewrite traces may quote them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, Final

import msgspec
import polars as pl

from nsysflow.analysis.load.marks import decoded_or_none
from nsysflow.runtime.protocol import KEY

_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
_NotAnObject = list[Any] | str | int | float | bool | None

_NOTHING: Final = msgspec.Raw()
_DIGITS: Final = re.compile(r"-?[0-9]{1,20}")


class OddEvent(Exception):
    """An event is not as torch.profiler writes it; the message says why."""


class Event(msgspec.Struct, gc=False):
    """An element of `traceEvents`. Times and arguments are decoded only where they are used."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    args: msgspec.Raw = _NOTHING


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that we read.

    `name` is that of a thread; of an operation of a CUDA graph, as `text`, what the program called
    it when it was captured. Where an annotation of a CUDA graph moved an operation to a lane of the
    picture, `stream` is that lane, and `original_stream` the stream.
    """

    device: Any = None
    stream: Any = None
    original_stream: Any = None
    correlation: Any = None
    graph_node: Any = msgspec.field(name="graph node id", default=None)
    bytes: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared_memory: Any = msgspec.field(name="shared memory", default=None)
    name: Any = None
    text: Any = msgspec.field(name="str", default=None)


class WaitArgs(msgspec.Struct, gc=False):
    """Who waits in a `cuda_sync` event, and for what: for the record of an event, which the call
    with the correlation `record` made, on the stream `recorded_on`. -1 stands for none."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    recorded_on: Any = msgspec.field(name="wait_on_stream", default=None)
    record: Any = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=None)


class CollectiveArgs(msgspec.Struct, gc=False):
    """What a collective moves, in elements, and among whom."""

    name: Any = msgspec.field(name="Collective name", default=None)
    sent: Any = msgspec.field(name="In msg nelems", default=None)
    received: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    ranks: Any = msgspec.field(name="Group size", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    members: Any = msgspec.field(name="Process Group Ranks", default=None)


class OperatorArgs(msgspec.Struct, gc=False):
    """What an operator was called with, as JSON."""

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    old_dims: msgspec.Raw = msgspec.field(name="Input dims", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NOTHING)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NOTHING)


class LaunchArgs(msgspec.Struct, gc=False):
    """The kernel that a call launches, on AMD's GPUs."""

    kernel: Any = None


class MemoryArgs(msgspec.Struct, gc=False):
    """By how much the memory of a device changed, and how much is allocated and reserved then."""

    device_type: Any = msgspec.field(name="Device Type", default=None)
    device: Any = msgspec.field(name="Device Id", default=None)
    address: Any = msgspec.field(name="Addr", default=None)
    bytes: Any = msgspec.field(name="Bytes", default=None)
    allocated: Any = msgspec.field(name="Total Allocated", default=None)
    reserved: Any = msgspec.field(name="Total Reserved", default=None)


class Ranks(msgspec.Struct):
    """Which rank of the program wrote the trace."""

    rank: int | None = None


class Gpu(msgspec.Struct):
    """A GPU of the machine."""

    id: _Int32
    name: str | None = None
    sm_count: _Int32 | None = msgspec.field(name="numSms", default=None)


class Document(msgspec.Struct):
    """The whole trace; `ours` is what `nsysflow.steps` wrote beside the events, `base_ns` the
    system's time at which the events' times begin."""

    events: list[Event | _NotAnObject] = msgspec.field(name="traceEvents")
    schema_version: Any = msgspec.field(name="schemaVersion", default="unknown")
    gpus: msgspec.Raw = msgspec.field(name="deviceProperties", default=_NOTHING)
    ranks: msgspec.Raw = msgspec.field(name="distributedInfo", default=_NOTHING)
    ours: msgspec.Raw = msgspec.field(name=KEY, default=_NOTHING)
    base_ns: msgspec.Raw = msgspec.field(name="baseTimeNanoseconds", default=_NOTHING)


# floats as Decimal, since msgspec refuses those that a float cannot hold
_DOCUMENT: Final = msgspec.json.Decoder(Document | list[Event | _NotAnObject], float_hook=Decimal)
_ARGS: Final = msgspec.json.Decoder(Args, float_hook=Decimal)
_ALL_ARGS: Final = msgspec.json.Decoder(list[Args | _NotAnObject], float_hook=Decimal)
_WAIT_ARGS: Final = msgspec.json.Decoder(WaitArgs, float_hook=Decimal)
_COLLECTIVE_ARGS: Final = msgspec.json.Decoder(CollectiveArgs, float_hook=Decimal)
_OPERATOR_ARGS: Final = msgspec.json.Decoder(OperatorArgs)
_LAUNCH_ARGS: Final = msgspec.json.Decoder(LaunchArgs, float_hook=Decimal)
_MEMORY_ARGS: Final = msgspec.json.Decoder(MemoryArgs, float_hook=Decimal)
_RANKS: Final = msgspec.json.Decoder(Ranks)
_TIME: Final = msgspec.json.Decoder(int | Decimal)
_GPUS: Final = msgspec.json.Decoder(list[Gpu], strict=False)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def decoded_document(content: bytes) -> Document:
    """The trace in `content`.

    Raises:
        msgspec.ValidationError: it is JSON of something else.
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply to be read.
    """
    try:
        document = _DOCUMENT.decode(content)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = _DOCUMENT.decode(_as_strict_json(content))
    return Document(events=document) if isinstance(document, list) else document


def _as_strict_json(content: bytes) -> bytes:
    """JSON for msgspec, from JSON that only Python's own parser accepts.

    That is JSON with NaN, control characters in strings, or bytes that are not UTF-8.
    """
    text = content.decode("utf-8", "replace")
    return _ENCODER.encode(json.loads(text, parse_float=Decimal, strict=False))


def gpus_of(document: Document) -> list[Gpu]:
    """The GPUs that the trace describes."""
    return decoded_or_none(_GPUS, document.gpus) or []


def rank_of(document: Document) -> int | None:
    """The rank that wrote the trace; None if it does not say."""
    ranks = decoded_or_none(_RANKS, document.ranks)
    return None if ranks is None else ranks.rank


def launched_kernel(event: Event) -> str | None:
    """The full name of the kernel that a call launches; None if it does not say."""
    args = decoded_or_none(_LAUNCH_ARGS, event.args)
    return args.kernel if args is not None and isinstance(args.kernel, str) else None


def args_of(event: Event) -> Args:
    """The arguments of an event; empty if they are not an object."""
    return decoded_or_none(_ARGS, event.args) or Args()


def args_of_all(events: Sequence[Event]) -> list[Args]:
    """The arguments of each event: read as one list, which takes half the time."""
    joined = b"[%b]" % b",".join([event.args for event in events])
    read = decoded_or_none(_ALL_ARGS, joined)
    if read is None or len(read) < len(events):  # some have none, or what msgspec refuses
        return [args_of(event) for event in events]
    return [args if isinstance(args, Args) else Args() for args in read]


def wait_args_of(event: Event) -> WaitArgs:
    """Who waits for what; empty if that is not an object."""
    return decoded_or_none(_WAIT_ARGS, event.args) or WaitArgs()


def collective_args_of(event: Event) -> CollectiveArgs:
    """What a collective moves; empty if that is not an object."""
    return decoded_or_none(_COLLECTIVE_ARGS, event.args) or CollectiveArgs()


def memory_args_of(event: Event) -> MemoryArgs:
    """How the memory of a device changed; empty if that is not an object."""
    return decoded_or_none(_MEMORY_ARGS, event.args) or MemoryArgs()


def operator_args_of(event: Event) -> OperatorArgs:
    """What an operator was called with; empty if that is not an object."""
    return decoded_or_none(_OPERATOR_ARGS, event.args) or OperatorArgs()


def span_ns(event: Event) -> tuple[int, int]:
    """When an event starts and ends, in nanoseconds.

    Raises:
        OddEvent: it has no time in microseconds.
    """
    start = time_ns(event.ts)
    return start, start + time_ns(event.dur)


def time_ns(written: msgspec.Raw) -> int:
    """A time in microseconds, exactly as nanoseconds.

    Raises:
        OddEvent: it is none.
    """
    whole, _, part = bytes(written).partition(b".")
    if len(part) == 3 and len(whole) <= 15 and part.isdigit() and whole.isdigit():
        return int(whole + part)  # as torch writes it: a third of the time of decoding
    try:
        value = _TIME.decode(written)
        if -(2**53) < value < 2**53:
            return int(value * 1000)
    except (msgspec.DecodeError, ArithmeticError):  # NaN cannot be compared
        pass
    text = bytes(written).decode("utf-8", "replace")
    raise OddEvent(f"no time in microseconds ({text[:40] or 'nothing'})")


def int_of(value: object) -> int | None:
    """An id or a size; None for anything else.

    Raises:
        OddEvent: it does not fit 64 bits.
    """
    text = unquoted(value)
    if not isinstance(text, int) or isinstance(text, bool):
        return None
    if not -(2**63) <= text < 2**63:
        raise OddEvent(f"a number that does not fit 64 bits ({str(text)[:40]})")
    return text


def unquoted(value: object) -> object:
    """`value`, or the number whose digits it quotes."""
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value


def frame_of(rows: Iterable[tuple[Any, ...]], columns: pl.Schema) -> pl.DataFrame:
    """Rows as a frame of the given schema.

    Raises:
        OddEvent: a value does not fit its column.
    """
    words = (pl.Categorical, pl.Enum)
    plain = {name: pl.String() if isinstance(t, words) else t for name, t in columns.items()}
    with as_odd_events():
        return pl.DataFrame(list(rows), schema=plain, orient="row").cast(columns)


@contextmanager
def as_odd_events() -> Iterator[None]:
    """Turns the errors of values that do not fit their columns into `OddEvent`."""
    try:
        yield
    except (TypeError, OverflowError, UnicodeError, pl.exceptions.PolarsError) as error:
        raise OddEvent("a number that is too large, or text where a number belongs") from error
