"""Changes to a step before it runs on many ranks: tensor parallelism, a copy to inject, and the
calls that tell streams to wait."""

from typing import Final

from benchmarks.many_ranks.step import CALLS, KERNELS, MEMCPYS, RANGES, Event, Op, Span, Step, Wait

STRINGS: Final = {
    1_000_001: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    1_000_002: "cudaMemcpyAsync",
    1_000_003: "cudaEventRecord",
    1_000_004: "cudaStreamWaitEvent",
}
"""Names that a report may lack, by their ids."""

_ALL_REDUCE, _COPY_CALL, _RECORD_CALL, _WAIT_CALL = STRINGS
TENSOR_PARALLEL_NS: Final = 40_000
TENSOR_PARALLEL_BYTES: Final = 8 << 20
_COPY_BYTES: Final = 64 << 20
_MATMULS_APART: Final = 2
"""A transformer block all-reduces after its second matmul."""


def is_matmul(op: Op) -> bool:
    return str(op.values["name"]).startswith("nvjet")


def first_matmul(step: Step) -> Op:
    """The first one: where delays begin."""
    return next(op for op in step.ops if is_matmul(op))


def add_tensor_parallelism(step: Step) -> None:
    """All-reduce after every second matmul, on a stream of its own; what follows waits for it."""
    like = next(op for op in step.ops if op.group)
    label = next(span for span in step.spans if span.group)
    stream = max(op.stream for op in step.ops) + 10
    matmuls = [op for op in step.ops if is_matmul(op)]
    for matmul in matmuls[_MATMULS_APART - 1 :: _MATMULS_APART]:
        place = step.events.index(matmul.launch.end) + 1
        launch = Span(CALLS, like.launch.values, Event(3_000), Event(6_000))
        text = {"text": "ncclAllReduce", "textId": None, "name": "ncclAllReduce"}
        around = Span(
            RANGES,
            label.values | text | {"globalTid": launch.values["globalTid"], "jsonText": None},
            Event(4_000),
            Event(2_000),
            "tp",
        )
        step.events[place:place] = [around.begin, launch.begin, launch.end, around.end]
        step.spans += [around, launch]
        values = like.values | {
            "name": STRINGS[_ALL_REDUCE],
            "shortName": _ALL_REDUCE,
            "demangledName": _ALL_REDUCE,
            "streamId": stream,
        }
        op = Op(KERNELS, values, launch, stream, TENSOR_PARALLEL_NS, group="tp", after=[matmul])
        number = step.ops.index(matmul)
        follower = next((o for o in step.ops[number + 1 :] if o.stream == step.main_stream), None)
        if follower is not None:
            follower.after.append(op)
        step.ops.insert(number + 1, op)


def add_copy(step: Step) -> None:
    """A copy to the GPU before the first matmul, for the ranks and steps that have it injected."""
    matmul = first_matmul(step)
    thread = {"globalTid": matmul.launch.values["globalTid"]}
    launch = Span(CALLS, thread | {"nameId": _COPY_CALL}, Event(2_000), Event(5_000), injected=True)
    place = step.events.index(matmul.launch.begin)
    step.events[place:place] = [launch.begin, launch.end]
    step.spans.append(launch)
    values = {"bytes": _COPY_BYTES, "copyKind": 1, "srcKind": 1, "dstKind": 2, "graphNodeId": None}
    op = Op(
        MEMCPYS,
        values | {"name": "memcpy", "streamId": step.main_stream, "contextId": 1},
        launch,
        step.main_stream,
        0,
        injected=True,
    )
    step.ops.insert(step.ops.index(matmul), op)


def name_waits(step: Step) -> None:
    """Add the calls with which the host says what each operation waits for, as an export has them.

    After the launch of the first operation the host records an event. Before the launch of the
    second it makes the stream wait for that event. Neither call takes any time.
    """
    for op in step.ops:
        for other in op.after:
            record, wait = (
                Span(CALLS, {"globalTid": of.launch.values["globalTid"], "nameId": name}, *events)
                for of, name, events in (
                    (other, _RECORD_CALL, (Event(0), Event(0))),
                    (op, _WAIT_CALL, (Event(0), Event(0))),
                )
            )
            place = step.events.index(other.launch.end) + 1
            step.events[place:place] = [record.begin, record.end]
            place = step.events.index(op.launch.begin)
            step.events[place:place] = [wait.begin, wait.end]
            step.spans += [record, wait]
            step.waits.append(Wait(record, other.stream, wait, op.stream))
