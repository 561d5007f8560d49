"""One page per renderer, as somebody reviewed it: these hold the wording, and no other test does.

After a change on purpose: `python -m tests.report.test_reviewed_pages`, then read what changed.
"""

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.replay.replay import Lengths
from nsysflow.analysis.replay.whatif import WhatIf
from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.compare import budget_pages
from nsysflow.report import diff
from nsysflow.report.diff_document import diff_json
from nsysflow.report.document import report_json
from nsysflow.report.figures.drawing import OF_RUN
from nsysflow.report.figures.steps import draw_bridge, draw_ranks
from nsysflow.report.flamegraph import ROW, Heading, speedscope, svg
from nsysflow.report.gap_report import as_markdown, gap_report, tracks_of
from nsysflow.report.page import Length
from nsysflow.report.sarif import sarif_json
from nsysflow.report.text import page_lines, set_block, summary
from nsysflow.report.verdict import judge
from nsysflow.report.whatif import whatif_json, whatif_lines
from tests.analyses import analysed, run_of
from tests.cli.test_main import refusals
from tests.cli.test_settings import mistakes
from tests.compare.handmade import ALL, capture, row
from tests.compare.test_budgets import refused_budgets
from tests.record.test_doctor import checks
from tests.record.test_failure import NO_REPORT
from tests.report import test_flamegraph as flamegraph
from tests.report.figures.drawn import drawn, ranks, texts
from tests.report.handmade import (
    MS,
    Handmade,
    Results,
    found_of,
    handmade,
    measured,
    renamed,
    sampled,
    stepped,
    two_ranks,
    valued,
)
from tests.report.perfetto.reader import read_results
from tests.report.test_diff import FOUND, TOLD
from tests.report.test_flamegraph import OWN, STACKS
from tests.report.test_notebook import words
from tests.report.test_ranks import SUMMARIES, many
from tests.report.test_verdict import JUDGED
from tests.runs.test_notes import noted
from tests.tiny import analysis_of, kernel, launch, opened

PAGES: Final = Path(__file__).parent / "pages"

STARVED: Final = {"start_ms": 1, "end_ms": 3, "graph_estimate_ms": 1, "launch_idle_ms": 1, "ops": 8}
RECURRING: Final = {
    "part": "recurring", "steps": "9, 19, 29, 39", "count": 4, "every": 10, "time_ms": 400,
    "excess_ms": 360, "busy_ms": 40, "cause": "host", "cause_ms": 350, "phase": "step/save",
    "source": "train.py:40 in save",
}  # fmt: skip
VALIDATED: Final = {
    "part": "loop", "count": 6, "time_ms": 90, "busy_ms": 9, "cause": "host", "cause_ms": 80,
    "phase": "validate",
}  # fmt: skip
RAN: Final = {"function": "tokenize", "cause": "host", "idle_ms": 900, "source": "a.py:8 in f"}
COMM: Final = {"name": "ncclDevKernel", "busy_ms": 9, "exposed_ms": 6, "hidden_pct": 33, "count": 4}
NO_IDLE: Final = dict.fromkeys(CAUSES, 0)


def training_with_findings() -> Handmade:
    """The steps of `training` with findings of each kind."""
    title = "value read back in the loop: cudaStreamSynchronize in step/loss"
    wait = valued(
        4_000_000, title=title, culprit="cudaStreamSynchronize", phase="step/loss", steps=1
    )
    launches = valued(6_000_000, title="400 launches a step keep the GPU waiting", exact=False)
    kernels = valued(0, title="most kernel time is matmul: 82 %", changes=None, table="kernels")
    some = (wait, launches, kernels, valued(1_000_000))
    return stepped(found_of(*some, together_ns=8_000_000))


def reviewed() -> Results:
    """The run of it alone."""
    return Results([training_with_findings()])


SERVED: Final = {
    "kind": "decode", "steps": 80, "requests_per_step": 117.0, "tokens_per_s": 7312.5,
    "median_ms": 15.8, "p95_ms": 17.1, "between_tokens_ms": 16, "between_tokens_p95_ms": 41.7,
    "first_token_ns": None, "first_token_max_ns": None, "host_wait_pct": 18.6, "padding_pct": 8.6,
}  # fmt: skip
PROMPTS: Final = {
    "kind": "prefill", "steps": 10, "requests_per_step": 117.0, "tokens_per_s": 61440.0,
    "median_ms": 15.8, "p95_ms": 17.1, "between_tokens_ns": None, "between_tokens_p95_ns": None,
    "first_token_ms": 181, "first_token_max_ms": 2300, "host_wait_pct": 18.6, "padding_pct": None,
}  # fmt: skip
ATTENDED: Final = {
    "kind": "decode", "class": "attention", "steps": 80, "total_ms": 312, "share_pct": 38.0,
    "median_ms": 3.9, "ns_per_token": 1.9, "known_pct": 100.0, "flops_per_s": 12.5e12,
    "bytes_per_s": 2.9e12, "limit": "memory", "roofline_pct": 86.0,
}  # fmt: skip
MULTIPLIED: Final = {
    **ATTENDED, "class": "matmul", "share_pct": 52.0, "median_ms": 5.3, "ns_per_token": None,
}  # fmt: skip
PRODUCT: Final = {
    "operator": "aten::mm", "shapes": "8192x4096, 4096x50257", "dtype": "bfloat16", "calls": 4,
    "kernels": 4, "total_ms": 30, "share_pct": 61.0, "limit": "compute", "roofline_pct": 38.2,
    "flops_per_s": 377.9e12, "bytes_per_s": 146e9,
}  # fmt: skip
NORM: Final = {
    "operator": "aten::native_layer_norm", "shapes": "8192x4096, 4096", "dtype": "bfloat16",
    "calls": 8, "total_ms": 1, "share_pct": 2.0, "limit": "memory", "roofline_pct": 45.0,
    "flops_per_s": None, "bytes_per_s": 1.5e12,
}  # fmt: skip


def clocked(step: int, mhz: int) -> dict[str, Any]:
    """A step that computes for longer at a lower clock, kept down by the power cap."""
    compute_ns = 9 * MS * 1980 // mhz
    limit = {"limited_by": "power_cap", "limited_pct": 75.0} if mhz < 1980 else {"limited_pct": 0.0}
    return limit | {
        "process": 1, "device": 0, "step": step, "start_ns": 0, "end_ns": compute_ns + MS,
        "compute_ns": compute_ns, "sm_clock_mhz": float(mhz), "clock_pct": 100 * mhz / 1980,
        "power_w": 690.5, "temperature_c": 64.0,
    }  # fmt: skip


LOCKED: Final = {
    "process": 1, "thread": 1, "phase": "step", "holder": 2, "holder_name": "loader",
    "function": "decode", "source": "feed.py:88 in decode", "gil_ms": 12, "estimated": False,
    "share_pct": 13.3,
}  # fmt: skip
QUEUED: Final = {
    "process": 1, "thread": 1, "end_ms": 90, "ran_ms": 40, "waited_ms": 30, "waited_pct": 33.3,
    "descheduled_ms": 12, "cores": 8, "used_cores": 3.87, "started_cores": 0.05,
    "others_cores": 0.2, "limit_cores": 4.0, "throttled_ms": 310,
}  # fmt: skip
"""A thread that a limit holds up."""

HELD: Final = {
    "phase": "", "peak_bytes": 61_200_000_000, "peak_reserved_bytes": 70_100_000_000,
    "begin_bytes": 12_000_000_000, "end_bytes": 12_200_000_000, "growth_bytes": 40_000_000,
    "peak_ns": 5, "peak_phase": "step/forward", "source": "model.py:88 in attend",
    "operator": "aten::softmax",
}  # fmt: skip
HELD_BY_LOSS: Final = {"phase": "step/loss", "peak_bytes": 48_000_000_000, "peak_ns": 7}
KEPT: Final = {
    "phase": "step/metrics", "source": "train.py:90 in log", "operator": "aten::cat", "steps": 4,
    "of_steps": 4, "allocations": 4, "bytes": 160_000_000,
}  # fmt: skip
IN_LOSS: Final = {
    "phase": "step/loss", "source": "train.py:88 in loss", "operator": "aten::_log_softmax",
}  # fmt: skip
AT_PEAK: Final = {**IN_LOSS, "allocations": 2, "bytes": 36_000_000_000, "share_pct": 75.0}
OLDER: Final = {"phase": "", "bytes": 12_000_000_000, "share_pct": 25.0}
FAILED: Final = {
    **IN_LOSS, "time_ms": 7, "asked_bytes": 36_000_000_000, "allocated_bytes": 48_000_000_000,
    "reserved_bytes": 70_100_000_000, "free_bytes": 9_000_000_000,
}  # fmt: skip
NOWHERE: Final = {
    **dict.fromkeys(("source", "operator", "allocated_bytes", "reserved_bytes", "free_bytes")),
    "time_ms": 9, "phase": "", "asked_bytes": 36_000_000_000,
}  # fmt: skip
"""A failure of which the report says no more."""

LOADER: Final = {
    "process": 4711, "loader": 0, "worker": None, "span_ms": 100, "batches": 4, "busy_ms": 290,
    "busy_pct": 96.7, "waiting_ms": 10, "fetch_median_ms": 71, "fetch_p95_ms": 80,
    "batches_per_s": 41.4, "steps": 4, "waited_ms": 36, "workers": 3, "batch_size": 64,
    "prefetch_factor": 2, "pin_memory": True, "persistent_workers": False,
    "start_method": "fork", "cores": 16,
}  # fmt: skip


LAUNCHED: Final = {
    "process": 4711, "device": 0, "source": "model.py:42 in forward", "via": None,
    "waits": False, "kernels": 100, "total_ms": 30, "share_pct": 75.0,
    "kernel": "reduce_kernel", "kernel_pct": 61.2,
}  # fmt: skip
UNSEEN: Final = {**LAUNCHED, "source": None, "kernels": 20, "total_ms": 10, "share_pct": 25.0}


@cache
def everything() -> Results:
    """Runs that have rows in every table together."""
    more = handmade(
        starved=[STARVED],
        comm=[COMM, {**COMM, "device": 1, "bytes": 64_000_000}],
        code=[LAUNCHED, UNSEEN],
        operators=[PRODUCT, NORM],
        clocks=[clocked(step, mhz) for step, mhz in enumerate([1980] * 4 + [1530] * 4)],
        cpu=[QUEUED],
        loader_workers=[LOADER],
        memory=[HELD, {**HELD, "phase": "step"}, HELD_BY_LOSS],
        out_of_memory=[FAILED, NOWHERE],
        peak_memory=[AT_PEAK, OLDER],
        kept_memory=[KEPT],
        run=[RECURRING, VALIDATED],
        gil=[LOCKED],
        host_stacks=[RAN, {**RAN, "phase": "step"}],
        serving_work=[ATTENDED, MULTIPLIED],
        serving=[PROMPTS, SERVED, {**SERVED, "kind": "all", "steps": 90, "tokens_per_s": 9.87}],
    )
    runs = (training_with_findings(), sampled(), measured(), more)
    named = [renamed(run, f"run{index}.sqlite") for index, run in enumerate(runs)]
    return Results([*named, *two_ranks()])


def in_terminal(results: Any, length: Length = "page") -> str:
    return joined(line.plain for line in page_lines(results, width=110, length=length, top=None))


def joined(lines: Iterable[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"


def comparison() -> str:
    """As text and as JSON."""
    lines = [diff.title(FOUND), diff.headline(FOUND), *diff.remarks(FOUND)]
    for block in diff.blocks(FOUND, full=True):
        lines += [line.plain for line in set_block(block, 110)]
    for of, found in TOLD.items():
        lines += ["", f"{of}:", diff.headline(found), *diff.remarks(found)]
    document = json.loads(diff_json(FOUND))
    return joined([*lines, "", *json.dumps(document, indent=1).splitlines()])


def in_figures() -> str:
    """All that is written in each figure, without the numbers of its axes."""
    run = run_of("nan_check-sync")
    kinds = {kind.name: drawn(kind.draw, run) for kind in OF_RUN.kinds if kind.name != "ranks"}
    figures = kinds | {"ranks": drawn(draw_ranks, ranks()), "bridge": drawn(draw_bridge, FOUND)}
    lines = []
    for name, figure in figures.items():
        written = dict.fromkeys(text.strip() for text in texts(figure))
        lines += [name, *(f"  {text}" for text in written if re.search("[a-z]", text))]
    return joined(lines)


def in_flamegraph() -> str:
    """The boxes of the picture with their widths of 1180, and the stacks for speedscope."""
    boxes = flamegraph.drawn(svg(STACKS, OWN, Heading(about="two ranks", steps=None)))
    lines = [
        f"{'  ' * round((box.y - boxes[0].y) / ROW)}{box.name} [{box.kind}, {box.width:.0f} wide]"
        f" {box.about}: {box.label}"
        for box in boxes
    ]
    file = flamegraph.read(speedscope(STACKS, "two ranks"))
    for at, profile in enumerate(file["profiles"]):
        lines += ["", "{name}: {endValue} {unit}".format_map(profile)]
        lines += [f"{ns} {' / '.join(names)}" for names, ns in flamegraph.weights(file, at).items()]
    frames = (
        f"{each['name']}: {each.get('file')} {each.get('line')}"
        for each in file["shared"]["frames"]
    )
    return joined([*lines, "", *frames])


def checked() -> str:
    """Budgets of each verdict: for people, as annotations, as JSON and as JUnit's XML."""
    run = [capture(row(1, 1))]
    document = json.loads(budget_pages.check_json(ALL, run))
    del document["tool"]
    pages = (
        budget_pages.page(ALL, run),
        budget_pages.annotations(ALL, 1, lambda name: f"src/{name}"),
        json.dumps(document, indent=1).splitlines(),
        budget_pages.junit_xml(ALL, run).splitlines(),
    )
    return joined(line for lines in pages for line in (*lines, ""))


def in_perfetto() -> str:
    """The slices, arrows and counters of a trace of two kernels."""
    rows = opened(0, 90, "step"), launch(2, 6, 1), kernel(10, 30, 1, name="a<int>")
    read = read_results(Results([analysis_of(*rows, launch(40, 44, 2), kernel(50, 80, 2))]))
    lines = [
        f"{each.start_ns:3} {each.end_ns:3} {' / '.join(each.path)}: {each.name}"
        f" [{each.category}] {dict(each.arguments)}"
        for each in read.slices
    ]
    arrows = (f"{source.name} -> {target.name}" for source, target in read.flows)
    counters = (f"{path[-1]}: {values[:9]}" for path, values in read.counters.items())
    return joined([*lines, *arrows, *counters])


def in_notebook(name: str) -> str:
    """All that can be read, a line per heading and table."""
    read = words(analysed(name)._repr_html_())
    return re.sub(r" (?=Findings |GPU time |Timeline |Tables )|(?<=\w) : ", "\n", read) + "\n"


def what_if(step_ns: int | None = 4_000_000, after_ns: int | None = 3_000_000) -> WhatIf:
    return WhatIf(
        before=Lengths(window_ns=20_000_000, step_ns=step_ns, steps=5),
        after=Lengths(window_ns=15_000_000, step_ns=after_ns, steps=5),
        idle_before=NO_IDLE | {"sync": 2_000_000, "host": 500_000},
        idle_after=NO_IDLE | {"host": 600_000},
        notes=(Note(NoteKind.OTHER_RANKS, "ranks are not replayed"),),
        step_idle_before=None if step_ns is None else NO_IDLE | {"sync": 400_000, "host": 100_000},
        step_idle_after=None if step_ns is None else NO_IDLE | {"host": 120_000},
    )


def in_whatif() -> str:
    """A change that saves time, one that costs some, and one of a report without steps."""
    results = what_if(), what_if(after_ns=5_000_000), what_if(None, None)
    lines = [line for each in results for line in (*whatif_lines("run", each), "")]
    return joined([*lines, *whatif_json(results[0]).splitlines()])


def judgements() -> str:
    lines: list[str] = []
    for of, run in JUDGED.items():
        found = judge(run)
        lines += ["", f"{of}:" if found.valid else f"{of} [{found.why}]:"]
        for each in found.headlines:
            lines += [f"  {text}" for text in (each.sentence, each.advice) if text]
        lines += [f"  remark: {line}" for line in found.remarks]
    return joined(lines[1:])


def stragglers() -> str:
    lines: list[str] = []
    for of, made in SUMMARIES.items():
        found = made()
        lines += [f"{of}:", f"  {found.first}", *(f"  {line}" for line in found.more)]
        lines += [f"  remark: {line}" for line in found.remarks]
    return joined(lines)


def no_reports() -> str:
    """Why runs left none: what was seen, what to do and to type, and the output that is quoted."""
    lines: list[str] = []
    with TemporaryDirectory() as folder:
        for of, why in NO_REPORT.items():
            error = why(Path(folder))
            said = (error.seen, error.advice, error.command, *error.output)
            lines += [f"{of}:", *(f"  {line.replace(folder, 'out')}" for line in said if line)]
    return joined(lines)


def document() -> str:
    found = json.loads(report_json(reviewed()))
    del found["tool"], found["findings"]
    return json.dumps(found, indent=1) + "\n"


def sarif() -> str:
    found = json.loads(sarif_json(reviewed(), lambda _: None))
    del found["runs"][0]["tool"]
    return json.dumps(found, indent=1) + "\n"


RENDERED: Final[dict[str, Callable[[], str]]] = {
    "training.txt": lambda: in_terminal(reviewed()),
    "everything.txt": lambda: in_terminal(everything(), "full"),
    "ranks.txt": lambda: in_terminal(many()),
    "training.md": lambda: summary(reviewed()),
    "ranks.md": lambda: summary(many()).partition("<details>")[0],
    "gap-report.md": lambda: as_markdown(gap_report(tracks_of(Results([analysed("h200-train")])))),
    "judgements.txt": judgements,
    "stragglers.txt": stragglers,
    "no-report.txt": no_reports,
    "refused.txt": lambda: joined(refusals()),
    "run-notes.txt": lambda: joined(noted()),
    "settings.txt": lambda: joined(mistakes()),
    "budgets.txt": lambda: joined(refused_budgets()),
    "doctor.txt": lambda: joined(
        f"{one.check} [{one.status}]: {one.seen}. {one.advice}: {one.command}".rstrip(".: ")
        for one in checks()
    ),
    "training.json": document,
    "training.sarif.json": sarif,
    "diff.txt": comparison,
    "check.txt": checked,
    "notebook.txt": lambda: in_notebook("nan_check-sync"),
    "perfetto.txt": in_perfetto,
    "figures.txt": in_figures,
    "flamegraph.txt": in_flamegraph,
    "whatif.txt": in_whatif,
}


def assert_as_reviewed(name: str) -> None:
    assert RENDERED[name]() == (PAGES / name).read_text(encoding="utf-8")


WORDS: Final = [
    *("budgets.txt", "diff.txt", "doctor.txt", "judgements.txt", "no-report.txt", "run-notes.txt"),
    *("settings.txt", "stragglers.txt"),
]
"""Pages that take no time: `make test` looks at them, too."""


@pytest.mark.parametrize("name", WORDS)
def test_what_is_said_reads_as_reviewed(name: str) -> None:
    assert_as_reviewed(name)


@pytest.mark.parametrize("name", [name for name in RENDERED if name not in WORDS])
def test_a_page_reads_as_reviewed(name: str) -> None:
    assert_as_reviewed(name)


if __name__ == "__main__":
    for name, render in RENDERED.items():
        (PAGES / name).write_text(render(), encoding="utf-8")
