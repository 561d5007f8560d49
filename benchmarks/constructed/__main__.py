"""How much of the idle time that `program.py` makes on purpose nsysflow names as it was made.

    nsysflow profile --record-all --no-analyze -o seed7 -- \\
        python benchmarks/constructed/program.py --seed 7
    python -m benchmarks.constructed seed7/report.sqlite

The first table says how much idle time was made in each way, and which share of it nsysflow names
so; the second what it calls the rest; the third which function samples name where Python was busy.
What was made is read from the report with sqlite3 alone: idle is where no operation runs, and the
ranges of the program and the times of its calls say what the host did meanwhile.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import click

import nsysflow
from nsysflow.analysis.options import Options


class Call(NamedTuple):
    """What an element calls: the causes that its time may have, and how its functions begin."""

    causes: tuple[str, ...]
    functions: tuple[str, ...]


CALLS: Final = {
    "sync": Call(("sync",), ("cudaDeviceSynchronize", "cudaStreamSynchronize")),
    "early_sync": Call(("sync",), ("cudaEventSynchronize",)),
    "read_back": Call(("sync",), ("cudaStreamSynchronize",)),
    "pageable_copy": Call(("blocking_copy", "sync"), ("cudaMemcpyAsync", "cudaStreamSynchronize")),
    "allocate": Call(("alloc",), ("cuMemAlloc",)),
    "free": Call(("alloc",), ("cudaFree",)),
    "pin": Call(("alloc",), ("cuMemAllocHost",)),
    "load": Call(("module_load",), ("cuModuleLoadData",)),
    "instantiate": Call(("api",), ("cudaGraphInstantiate",)),
}
"""By kind of element. PyTorch copies pageable memory with a copy and a wait, and which of them
blocks is the driver's choice."""

RANGES: Final = {
    "python": ("host",),
    "around": ("host", "launch", "api"),
    "loop": ("launch", "queue_delay"),
    "held": ("dependency",),
}
"""The causes of what is no call. `around` is what PyTorch and the profiler do beside a call:
Python, launches and small calls. Between a launch and its kernel the GPU takes some us itself."""

WORDS: Final = {
    "python": "Python, also asleep, also of another thread",
    "around": "PyTorch and the profiler around a call",
    "loop": "launches one after the other",
    "held": "a queued kernel that waits for the host",
    "sync": "a wait for the GPU",
    "early_sync": "a wait before Python that would fit beside the kernel",
    "read_back": "`.item()`",
    "pageable_copy": "a copy from pageable memory",
    "allocate": "memory of the GPU, allocated",
    "free": "memory of the GPU, freed",
    "pin": "pinned memory, allocated",
    "load": "a module, loaded",
    "instantiate": "a graph, instantiated",
}
"""What made the GPU wait."""

COST: Final = frozenset(
    {"sync", "early_sync", "read_back", "pageable_copy", "allocate", "free", "pin"}
)
"""Without these calls, Python would have begun earlier by as long as they took: what they cost is
their length, or all of the idle time where that is less."""


class Span(NamedTuple):
    """From one instant to another, on the report's clock."""

    start_ns: int
    end_ns: int


class Made(NamedTuple):
    """Idle time of one element that was made by one thing.

    Attributes:
        what: the kind of its call, or `python`, `loop`, `held`.
        causes: what it may be called.
    """

    what: str
    causes: tuple[str, ...]
    idle_ns: int


@dataclass
class Element:
    """One element of the program.

    Attributes:
        kind: what it does, a method of `Program`.
        ranges: its ranges by name.
        calls: the stretches of `call` in which the host was in the function that it called.
    """

    kind: str = ""
    ranges: dict[str, Span] = field(default_factory=dict)
    calls: list[Span] = field(default_factory=list)

    def made(self, gaps: Sequence[Span]) -> list[Made]:
        """What it made the GPU wait for, `around` last.

        Args:
            gaps: the stretches without operations that its ranges overlap.
        """
        spans = {name: [span] for name, span in self.ranges.items() if name != "call"}
        if "call" not in self.ranges:
            return [Made(name, RANGES[name], overlap_ns(gaps, own)) for name, own in spans.items()]
        idle_ns = overlap_ns(gaps, self.ranges.values())
        in_python_ns = overlap_ns(gaps, spans["python"])
        if self.kind in COST:
            call_ns = min(sum(span.end_ns - span.start_ns for span in self.calls), idle_ns)
        else:
            call_ns = overlap_ns(gaps, self.calls)
        in_python_ns = min(in_python_ns, idle_ns - call_ns)
        return [
            Made(self.kind, CALLS[self.kind].causes, call_ns),
            Made("python", RANGES["python"], in_python_ns),
            Made("around", RANGES["around"], idle_ns - call_ns - in_python_ns),
        ]


def overlap_ns(gaps: Iterable[Span], spans: Iterable[Span]) -> int:
    """How long the gaps lie within the spans, neither of which overlap among themselves."""
    spans = list(spans)
    return sum(
        max(0, min(gap.end_ns, span.end_ns) - max(gap.start_ns, span.start_ns))
        for gap in gaps
        for span in spans
    )


def elements(report: sqlite3.Connection) -> dict[str, Element]:
    """The elements by name, such as `e007`."""
    found: defaultdict[str, Element] = defaultdict(Element)
    query = """
        SELECT coalesce(e.text, s.value), e.start, e.end FROM NVTX_EVENTS e
        LEFT JOIN StringIds s ON s.id = e.textId WHERE e.end IS NOT NULL"""
    for text, start_ns, end_ns in report.execute(query):
        name, _, what = (text or "").partition(" ")
        if not (name[:1] == "e" and name[1:].isdecimal()):
            continue
        if what in ("call", *RANGES):
            found[name].ranges[what] = Span(start_ns, end_ns)
        else:
            found[name].kind = what
    called = list(
        report.execute("""
        SELECT s.value, r.start, r.end FROM CUPTI_ACTIVITY_KIND_RUNTIME r
        JOIN StringIds s ON s.id = r.nameId ORDER BY r.start, r.end DESC""")
    )
    for element in found.values():
        if "call" in element.ranges:
            span, end_ns = element.ranges["call"], 0
            for function, start_ns, until_ns in called:
                if (
                    span.start_ns <= start_ns < span.end_ns
                    and until_ns > end_ns  # no call of the driver inside one of the runtime
                    and function.startswith(CALLS[element.kind].functions)
                ):
                    element.calls.append(Span(max(start_ns, end_ns), until_ns))
                    end_ns = until_ns
    return dict(found)


def gaps(report: sqlite3.Connection) -> list[Span]:
    """The stretches between two operations, in order."""
    tables = {name for (name,) in report.execute("SELECT name FROM sqlite_master")}
    kinds = {f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")} & tables
    query = " UNION ALL ".join(f"SELECT start, end FROM {kind}" for kind in sorted(kinds))
    operations = [Span(*row) for row in report.execute(f"{query} ORDER BY start")]
    found, end_ns = [], operations[0].end_ns
    for operation in operations:
        if operation.start_ns > end_ns:
            found.append(Span(end_ns, operation.start_ns))
        end_ns = max(end_ns, operation.end_ns)
    return found


@dataclass
class Score:
    """Of one thing that makes the GPU wait: the idle time made, and what it was called.

    Attributes:
        placed_ns: of `named_ns`, what was found in the element's range.
        instead: what the rest was called, ns.
    """

    made_ns: int = 0
    named_ns: int = 0
    placed_ns: int = 0
    elements: int = 0
    instead: Counter[str] = field(default_factory=Counter)


def score(path: Path, scores: defaultdict[str, Score], functions: Counter[str]) -> None:
    """Add one report's elements to the scores.

    Args:
        path: the export.
        scores: by what makes the GPU wait.
        functions: the idle time of `busy` by the function that samples name, ns.
    """
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as report:
        known, idle = elements(report), gaps(report)
    analysis = nsysflow.analyze(nsysflow.load(path), Options(whole=True))
    named = {(row["start_ns"], row["end_ns"]): row for row in analysis.gaps.iter_rows(named=True)}
    for name, element in known.items():
        if not element.ranges:
            continue
        begins_ns = min(span.start_ns for span in element.ranges.values())
        ends_ns = max(span.end_ns for span in element.ranges.values())
        own = [gap for gap in idle if gap.end_ns > begins_ns and gap.start_ns < ends_ns]
        left, elsewhere = Counter[str](), Counter[str]()
        for row in map(named.__getitem__, own):
            for cause in CAUSES:
                left[cause] += row[f"{cause}_ns"]
            if name not in row["phase"]:
                elsewhere[row["cause"]] += row[f"{row['cause']}_ns"]
        for what, causes, made_ns in element.made(own):
            one, rest_ns = scores[what], made_ns
            for cause in causes:
                taken_ns = min(rest_ns, left[cause])
                one.placed_ns += max(0, taken_ns - elsewhere[cause])
                left[cause] -= taken_ns
                rest_ns -= taken_ns
            one.elements += 1
            one.made_ns += made_ns
            one.named_ns += made_ns - rest_ns
            for cause, there_ns in left.most_common():
                one.instead[cause] += min(rest_ns, there_ns)
                rest_ns -= min(rest_ns, there_ns)
    for row in analysis.host_stacks.filter(cause="host").iter_rows(named=True):
        name = row["phase"].partition(" ")[0]
        if name in known and row["phase"].endswith(" python") and known[name].kind != "sleep":
            functions[row["function"]] += row["idle_ns"]


CAUSES: Final = (
    "profiler", "sync", "blocking_copy", "alloc", "module_load", "api", "host", "launch",
    "queue_delay", "dependency", "unknown",
)  # fmt: skip


@click.command()
@click.argument("reports", nargs=-1, required=True, type=Path)
def main(reports: tuple[Path, ...]) -> None:
    """Print how much of the idle time that was made on purpose nsysflow names as it was made."""
    scores: defaultdict[str, Score] = defaultdict(Score)
    functions = Counter[str]()
    for path in reports:
        score(path, scores, functions)
    click.echo("| what made the GPU wait | cause | times | idle, ms | cause right | place right |")
    click.echo("| --- | --- | ---: | ---: | ---: | ---: |")
    for what, words in WORDS.items():
        one = scores[what]
        causes = RANGES[what] if what in RANGES else CALLS[what].causes
        named, placed = (share(ns, one.made_ns) for ns in (one.named_ns, one.placed_ns))
        click.echo(
            f"| {words} | {' or '.join(causes)} | {one.elements} | {one.made_ns / 1e6:.1f}"
            f" | {named} | {placed} |"
        )
    click.echo("\n| made | but called | share of it |\n| --- | --- | ---: |")
    for what, words in WORDS.items():
        for cause, ns in scores[what].instead.most_common():
            if 1000 * ns >= scores[what].made_ns:
                click.echo(f"| {words} | {cause} | {share(ns, scores[what].made_ns)} |")
    click.echo("\n| Python's function, by samples | idle, ms |\n| --- | ---: |")
    for function, idle_ns in functions.most_common(6):
        click.echo(f"| {function} | {idle_ns / 1e6:.1f} |")


def share(part_ns: int, whole_ns: int) -> str:
    """A percentage with one decimal."""
    return f"{100 * part_ns / max(1, whole_ns):.1f} %"


if __name__ == "__main__":
    main()
