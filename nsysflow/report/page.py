"""The page model: what a reader sees of a run, before it is set for a terminal or as Markdown."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from nsysflow.analysis.tables.index import ABOUT, declarations
from nsysflow.analysis.tables.integrity import IN_WORDS
from nsysflow.analysis.tables.table import Table
from nsysflow.analysis.trace import gpu_names
from nsysflow.base.units import number, percent
from nsysflow.report.blocks import block_of
from nsysflow.report.blocks.accounting import mfu_sentences
from nsysflow.report.fields import Limits
from nsysflow.report.findings import Suggestions, late_ranks, suggestions
from nsysflow.report.layout import Block
from nsysflow.report.ledger import ledger_sentence, other_loops
from nsysflow.report.ranks import RankSummary, summarize_ranks
from nsysflow.report.results import Results, names_of_gpus
from nsysflow.report.step_times import steps_sentence
from nsysflow.report.validity import Invalid
from nsysflow.report.verdict import Verdict, judge

Length = Literal["page", "full"]
"""How long a page is: one screen, or all that people read (`--full`, summary.md)."""

VERSIONS: Final = ("driver", "torch", "triton")
"""The versions that a figure may depend on most."""

FIRST: Final = 3
"""So many findings are on one screen."""


OF_RANKS: Final = ("rank_groups", "rank_steps", "rank_outliers", "bandwidth")
"""The tables that a page of many ranks begins with, in this order."""

OF_TYPICAL: Final = ("accounting", "kernels", "phases")
"""What one screen shows of the typical rank of many."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a reader sees of a run, in this order.

    Attributes:
        reports: the reports' names; of many only how many.
        gpus: what they ran on, e.g. `2 x NVIDIA H200`; empty without GPU work.
        recorded: with which versions, and when, as far as that is known.
        selection: the options that narrow the window, as they are typed; empty without any.
        steps: how many steps there are and how long they take; empty without steps.
        ledger: of what all recorded time consists, in a sentence; empty without steps.
        loops: the other loops, with how to see each, a line each.
        told: what the ranks tell: who holds the others up, and why.
        headlines: what holds the GPUs back, or why that cannot be said; never empty.
        remarks: what to keep in mind about the headlines, a line each.
        suggestions: what to change, in the order in which to act.
        sentences: what else is worth a line: MFU.
        blocks: the tables, as far as they have rows.
        notes: what the reader should know about the reports.
    """

    reports: str
    gpus: str
    recorded: tuple[str, ...]
    selection: str
    steps: str
    ledger: str
    loops: tuple[str, ...]
    told: RankSummary
    headlines: tuple[Verdict | Invalid, ...]
    remarks: tuple[str, ...]
    suggestions: Suggestions
    sentences: tuple[str, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...]


def compose(results: Results, length: Length, *, top: int | None, at_least_ns: int) -> Page:
    """The page of a run.

    Args:
        results: the run.
        length: one screen, or all of it.
        top: rows of each block; None for each block's own number.
        at_least_ns: the shortest gap to show.
    """
    page = opening(results, length)
    return replace(page, blocks=_blocks(results, length, top, at_least_ns))


def opening(results: Results, length: Length) -> Page:
    """All of the page but its tables."""
    judgement = judge(results)
    typical = results.typical
    told = RankSummary()
    if judgement.valid:
        told = summarize_ranks(results.judged, late_ranks(results.found))
    return Page(
        reports=_reports(results),
        gpus=gpu_names(names_of_gpus(results)),
        recorded=_recorded(results),
        selection=results.selection,
        steps=steps_sentence(typical),
        ledger=ledger_sentence(typical),
        loops=other_loops(typical),
        told=told,
        headlines=judgement.headlines,
        remarks=(*told.remarks, *judgement.remarks),
        suggestions=suggestions(results, FIRST if length == "page" else len(results.found.valued)),
        sentences=mfu_sentences(typical),
        blocks=(),
        notes=(
            *(note.text for note in results.all_notes),
            *(quality_lines(typical) if length == "page" else ()),
        ),
    )


def _reports(results: Results) -> str:
    """The names of a few reports, the number of many ranks."""
    if not results.many:
        return ", ".join(results.reports)
    ranks = len(results.table("ranks"))
    return f"{number(ranks)} ranks" if ranks else f"{number(len(results.every_report))} reports"


def _recorded(results: Results) -> tuple[str, ...]:
    """The profiler, driver and framework that took part, and the day."""
    origin = results.origin
    profiler = results.analyses[0].trace.source.partition(",")[0]
    versions = (f"{name} {origin.versions[name]}" for name in VERSIONS if name in origin.versions)
    return tuple(filter(None, [profiler, *versions, origin.started[:10]]))


def quality_lines(results: Results) -> tuple[str, ...]:
    """A line for each check that the recording fails: `96 operations (2.9 %) belong to no
    phase`; of several reports for the first of those with most, which it names."""
    lines = []
    rows = results.table("integrity")
    for _, failing in rows.group_by("check", maintain_order=True):
        most_first = failing.sort("count", descending=True, maintain_order=True)
        row = most_first.row(0, named=True)
        one = row["count"] == 1
        endings = {"s": "", "es": "", "v": "s"} if one else {"s": "s", "es": "es", "v": ""}
        noun, _, rest = IN_WORDS[row["check"]].format(**endings).partition(" ")
        share = "" if row["share_pct"] is None else f" ({percent(row['share_pct'])})"
        more = f" and {number(len(failing) - 1)} more" if len(failing) > 1 else ""
        name = f"{row['report']}{more}: " if len(results.reports) > 1 else ""
        lines.append(f"{name}{number(row['count'])} {noun}{share} {rest}")
    return tuple(lines)


def _blocks(
    results: Results, length: Length, top: int | None, at_least_ns: int
) -> tuple[Block, ...]:
    """The blocks of the tables that a page of this length shows, in the declared order. A page of
    many ranks begins with what they tell; other tables are of the typical rank."""
    blocks = []
    for table in _tables(results, length):
        rows = rows_shown(table, length)
        limit = top if top is not None and not table.complete else rows
        limits = Limits(rows=limit, at_least_ns=at_least_ns)
        of = results if table.scope == "run" else results.typical
        block = block_of(table.name)(of.judged if table.judged else of, limits)
        if results.many and table.scope == "report":
            block = replace(block, title=f"{block.title} of {results.typical.reports[0]}")
        blocks.append(block)
    return tuple(block for block in blocks if block.rows)


def _tables(results: Results, length: Length) -> list[Table]:
    """The tables that a page shows, in its order: those of ranks only where there are any."""
    tables = [
        table
        for table in declarations(ABOUT)
        if rows_shown(table, length)
        and (table.scope == "report" or not results.table(table.name).is_empty())
    ]
    if not results.many:
        return tables
    first = declarations(OF_RANKS)
    rest = [table for table in tables if table.name not in OF_RANKS]
    return [*first, *(each for each in rest if length == "full" or each.name in OF_TYPICAL)]


def rows_shown(table: Table, length: Length) -> int:
    """How many rows of a table a page of this length shows; 0 for none."""
    return (table.page_rows if length == "page" else table.full_rows) or 0
