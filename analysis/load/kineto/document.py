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
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import polars as pl

from nsysflow.analysis.load.marks import decoded_or_none
from nsysflow.base.units import POSSIBLE_NS
from nsysflow.runtime.protocol import KEY

CALLS: Final = ("cuda_runtime", "cuda_driver")
ON_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset")
HOST: Final = (*CALLS, "cpu_op", "python_function", "user_annotation")
"""Categories of what the host did."""

_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
_NotAnObject = list[Any] | str | int | float | bool | None

T = TypeVar("T", bound=msgspec.Struct)

NOTHING: Final = msgspec.Raw()
_HALF: Final = re.compile(r"(\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w)|\\u[dD][89a-fA-F]\w\w")
"""A letter beyond 16 bits as JSON escapes it, in two halves; or one half alone."""

_DIGITS: Final = re.compile(r"-?[0-9]{1,20}")

PIECE_BYTES: Final = 1 << 18
"""Objects decoded from so much text fit into the cache of a core."""

_BEGIN: Final = re.compile(rb'(?:\A\s*|"traceEvents"\s*:\s*)\[\s*(\{\s*"\w+")')
"""What stands before the first event, and how it begins."""

_FIRST: Final = "nsysflow has read events before these"
"""Stands in place of the earlier events when the last ones are decoded with all else."""


class OddEvent(Exception):
    """An event is not as torch.profiler writes it; the message says what it has or lacks."""


class NoPieces(Exception):
    """A trace can only be read as a whole, if at all."""


class Event(msgspec.Struct, gc=False):
    """An element of `traceEvents`. Times and arguments are decoded only where they are used. `id`
    is that of a flow: of an arrow between two events."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    args: msgspec.Raw = NOTHING
    id: Any = None


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
    grid: msgspec.Raw = NOTHING
    block: msgspec.Raw = NOTHING
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared_memory: Any = msgspec.field(name="shared memory", default=None)
    name: Any = None
    text: Any = msgspec.field(name="str", default=None)


class CallArgs(msgspec.Struct, gc=False):
    """What ties a call to what it launched."""

    correlation: Any = None


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

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NOTHING)
    old_dims: msgspec.Raw = msgspec.field(name="Input dims", default=NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=NOTHING)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=NOTHING)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NOTHING)


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


Element = Event | _NotAnObject
"""What may stand among the events."""


class Document(msgspec.Struct):
    """The whole trace; `ours` is what `nsysflow.steps` wrote beside the events, `base_ns` the
    system's time at which the events' times begin."""

    events: list[Element] = msgspec.field(name="traceEvents")
    schema_version: Any = msgspec.field(name="schemaVersion", default="unknown")
    gpus: msgspec.Raw = msgspec.field(name="deviceProperties", default=NOTHING)
    ranks: msgspec.Raw = msgspec.field(name="distributedInfo", default=NOTHING)
    ours: msgspec.Raw = msgspec.field(name=KEY, default=NOTHING)
    base_ns: msgspec.Raw = msgspec.field(name="baseTimeNanoseconds", default=NOTHING)


# floats as Decimal, since msgspec refuses those that a float cannot hold
DOCUMENT: Final = msgspec.json.Decoder(Document | list[Element], float_hook=Decimal)
EVENTS: Final = msgspec.json.Decoder(list[Element], float_hook=Decimal)
_ARGS: Final = msgspec.json.Decoder(Args, float_hook=Decimal)
_ALL_ARGS: Final = msgspec.json.Decoder(list[Args | _NotAnObject], float_hook=Decimal)
_CALL_ARGS: Final = msgspec.json.Decoder(CallArgs, float_hook=Decimal)
_ALL_CALL_ARGS: Final = msgspec.json.Decoder(list[CallArgs | _NotAnObject], float_hook=Decimal)
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
        document = DOCUMENT.decode(content)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = DOCUMENT.decode(_as_strict_json(content))
    return Document(events=document) if isinstance(document, list) else document


def _as_strict_json(content: bytes) -> bytes:
    """JSON for msgspec, from JSON that only Python's own parser accepts.

    That is JSON with NaN, control characters in strings, halves of letters, or bytes that are not
    UTF-8.
    """
    text = _HALF.sub(r"\1\\ufffd", content.decode("utf-8", "replace"))
    return _ENCODER.encode(json.loads(text, parse_float=Decimal, strict=False))


def pieces_of(path: Path) -> Iterator[Document]:
    """The events of a trace, some at a time, so that neither its text nor all of its objects are in
    memory at once; the last ones with what stands beside them.

    Text is cut at a comma before what begins like the first event. That may be an object within an
    event. But a piece begins where an event does, so if it is a JSON list by itself, it also ends
    where one does. Where one is not, or what stands beside the events is not as expected, the trace
    has to be read as a whole.

    Raises:
        NoPieces: it is small, or is not written as usual.
    """
    try:
        yield from _pieces(path)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NoPieces from None


def _pieces(path: Path) -> Iterator[Document]:
    with path.open("rb") as file:
        text = file.read(PIECE_BYTES)
        found = _BEGIN.search(text)
        if found is None or len(text) < PIECE_BYTES:
            raise NoPieces
        head, begin = text[: found.start(1)], found[1]
        rest = [text[len(head) :]]
        while text := file.read(PIECE_BYTES):
            cut = text.rfind(b",", 0, max(text.rfind(begin), 0))
            if cut < 0:
                rest.append(text)
                continue
            yield Document(EVENTS.decode(b"".join((b"[", *rest, text[:cut], b"]"))))
            rest = [text[cut + 1 :]]
    last = DOCUMENT.decode(b"".join((head, b'"%b",' % _FIRST.encode(), *rest)))
    last = Document(last) if isinstance(last, list) else last
    if last.events[:1] != [_FIRST]:  # there are others under the same key
        raise NoPieces
    del last.events[0]
    yield last


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
    """The arguments of each event."""
    return _all(events, _ALL_ARGS, _ARGS, Args)


def call_args_of_all(events: Sequence[Event]) -> list[CallArgs]:
    """The arguments of each call."""
    return _all(events, _ALL_CALL_ARGS, _CALL_ARGS, CallArgs)


def _all(
    events: Sequence[Event],
    decoder_of_all: msgspec.json.Decoder[list[T | _NotAnObject]],
    decoder: msgspec.json.Decoder[T],
    of: type[T],
) -> list[T]:
    """Arguments read as one list, which takes half the time."""
    joined = b"[%b]" % b",".join([event.args for event in events])
    read = decoded_or_none(decoder_of_all, joined)
    if read is None or len(read) < len(events):  # some have none, or what msgspec refuses
        return [decoded_or_none(decoder, event.args) or of() for event in events]
    if {*map(type, read)} == {of}:
        return read  # type: ignore[return-value]
    return [args if isinstance(args, of) else of() for args in read]


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
        OddEvent: it has no possible time in microseconds.
    """
    start_ns = time_ns(event.ts)
    end_ns = start_ns + time_ns(event.dur)
    if end_ns not in POSSIBLE_NS:
        raise OddEvent(_NO_TIME)
    return start_ns, end_ns


def time_ns(written: msgspec.Raw) -> int:
    """A time in microseconds, exactly as nanoseconds.

    Raises:
        OddEvent: it is none, or not a possible one.
    """
    whole, _, part = bytes(written).partition(b".")
    if len(part) == 3 and len(whole) <= 15 and part.isdigit() and whole.isdigit():
        return int(whole + part)  # as torch writes it: a third of the time of decoding
    try:
        value = _TIME.decode(written) * 1000
        if POSSIBLE_NS[0] <= value <= POSSIBLE_NS[-1]:
            return int(value)
    except (msgspec.DecodeError, ArithmeticError):  # NaN cannot be compared
        pass
    raise OddEvent(_NO_TIME)


_NO_TIME: Final = "no time in microseconds"


def device_of(event: Event, args: Args) -> int:
    """The GPU that an operation ran on.

    Raises:
        OddEvent: it does not say.
    """
    device = int_of(event.pid if args.device is None else args.device, bits=32)
    if device is None:
        raise OddEvent("no GPU")
    return device


def thread_of(event: Event) -> tuple[int | str, int | str]:
    """An event's pid and tid as written: numbers, or words such as a GPU's `stream 7`.

    Raises:
        OddEvent: one is missing.
    """
    if type(event.pid) in (int, str) and type(event.tid) in (int, str):
        return event.pid, event.tid
    raise OddEvent("no pid or no tid")


def lacks(category: str, event: Event) -> str:
    """What an event of a category has not, though others have it: empty for a usable one."""
    try:
        if category in (*HOST, *ON_GPU):
            span_ns(event)
        if category in ("counter", "memory"):
            time_ns(event.ts)
        if category in (*HOST, "memory", "thread_name"):
            thread_of(event)
        if category in ON_GPU:
            device_of(event, args_of(event))
    except OddEvent as error:
        return str(error)
    return ""


def int_of(value: object, *, bits: int = 64) -> int | None:
    """An id or a size; None for anything else, and for what does not fit so many bits."""
    number = unquoted(value)
    if type(number) is not int or not -(1 << bits - 1) <= number < 1 << bits - 1:
        return None
    return number


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
