"""The server: tools with typed inputs and outputs, over stdio. It only reads."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ConfigDict, Field

import nsysflow
from nsysflow.agents import (
    folder as listing,
)
from nsysflow.agents import (
    rows,
)
from nsysflow.agents import (
    tools as comparing,
)
from nsysflow.agents import (
    tools as reading,
)
from nsysflow.agents import (
    tools as replaying,
)
from nsysflow.agents.folder import Answer, Reports
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.analysis.tables.index import ABOUT
from nsysflow.base.errors import NsysflowError
from nsysflow.base.names import uncontrolled

INSTRUCTIONS: Final = """\
Reads recordings of GPU programs (Nsight Systems, torch.profiler) and says what each GPU waited for.
Begin with list_reports and open_report. findings says what to change, in the order in which to act.
explain shows one in full. what_if says what a change would save, before you write it. After a
change, record the program again with `nsysflow profile`, and compare with diff. Captures of an
unchanged program differ: give three a side. A report whose verdict is not valid must be recorded
again before anything is concluded from it.
"""

_READ_ONLY: Final = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

Report = Annotated[
    str | list[str],
    Field(description="A path that list_reports shows; a list of paths for the ranks of one run."),
]
TableName = Annotated[
    str,
    Field(
        json_schema_extra={"enum": [*ABOUT]},  # an unknown name gets our error, with the nearest
        description="\n".join(f"{name}: {about}" for name, about in ABOUT.items()),
    ),
]
OneReport = Annotated[str, Field(description="The path of one report, as list_reports shows it.")]
Captures = Annotated[
    list[str],
    Field(
        description="Paths of captures: reports, runs, or report.json. Reports that differ only in"
        " their rank are one capture.",
        min_length=1,
    ),
]
Force = Annotated[
    bool, Field(description="Compare even if GPUs, ranks, precision, steps or kernels differ.")
]
Factor = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True)
class Wait:
    """Waits of a kind: at a source line (`train.py:42`) or in a phase; everywhere without `at`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    kind: Literal["sync", "alloc", "copy", "retry", "churn", "all"]
    at: str | None = None


def _limit(most: int, what: str) -> Any:
    return Field(description=f"The most {what} to give.", ge=1, le=most)


def server_of(reports: Reports) -> MCPServer[Any]:
    """A server with a tool per question on the reports of a folder."""
    tools = Tools(reports)
    return MCPServer(
        "nsysflow",
        instructions=INSTRUCTIONS,
        version=nsysflow.__version__,
        log_level="WARNING",
        tools=[
            _tool(question)
            for question in (
                *(tools.list_reports, tools.open_report, tools.findings, tools.table),
                *(tools.explain, tools.what_if, tools.diff, tools.diff_over_time),
            )
        ],
    )


def _tool(question: Callable[..., Any]) -> Tool:
    """The tool that answers a question. It refuses arguments that the question does not have: a
    misspelt one would be ignored, and the answer taken for that to another question."""
    tool = Tool.from_function(question, annotations=_READ_ONLY)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    return tool.model_copy(update={"parameters": arguments.model_json_schema(by_alias=True)})


class Tools:
    """The tools. The server runs each call in a thread of its own, and reads its words here."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    def list_reports(
        self, limit: Annotated[int, _limit(1000, "reports")] = 50
    ) -> Annotated[CallToolResult, listing.Listing]:
        """List the runs and reports in the folder, the newest first."""
        return _result(lambda: listing.list_reports(self._reports.folder, limit))

    def open_report(self, report: Report) -> Annotated[CallToolResult, reading.Opened]:
        """Show what holds the GPUs back: verdict, first findings, largest losses.

        The first call analyses the report: seconds for a million kernels. Later calls are quick.
        """
        return _result(lambda: reading.open_report(self._reports, _several(report)))

    def findings(
        self, report: Report, limit: Annotated[int, _limit(200, "findings")] = 20
    ) -> Annotated[CallToolResult, reading.FindingRows]:
        """List what to change, in this order, with evidence. Each saves what those above leave."""
        return _result(lambda: reading.findings(self._reports, _several(report), limit))

    def explain(
        self,
        what: Annotated[
            str,
            Field(
                description="The number of a finding, or a name: a cause of idle time, a bound, a"
                " kind of finding, a table, a column. Empty lists all names."
            ),
        ] = "",
        report: Annotated[
            str | list[str], Field(description="The report of a numbered finding.")
        ] = [],  # noqa: B006
    ) -> Annotated[CallToolResult, reading.Explanations]:
        """Explain a finding of a report in full, or what a name means."""
        return _result(lambda: reading.explain(self._reports, what, _several(report)))

    def table(
        self,
        report: Report,
        name: TableName,
        columns: Annotated[
            list[str], Field(description="Which columns; none for those that matter most.")
        ] = [],  # noqa: B006
        where: Annotated[
            list[rows.Condition], Field(description="Conditions; a row must fulfil all of them.")
        ] = [],  # noqa: B006
        sort: Annotated[
            str | None, Field(description="Sort by this column; null for the table's own order.")
        ] = None,
        descending: bool = True,
        offset: Annotated[int, Field(ge=0, description="How many rows to skip.")] = 0,
        limit: Annotated[int, _limit(rows.MOST_ROWS, "rows")] = 20,
    ) -> Annotated[CallToolResult, rows.Rows]:
        """Read rows of a table, a page at a time: `next_offset` is where the next page begins.

        Times are ns on the report's clock. `explain` says what a table or a column means.
        """
        query = rows.Query(
            name=name,
            columns=tuple(columns),
            where=tuple(where),
            sort=sort,
            descending=descending,
            offset=offset,
            limit=limit,
        )
        return _result(lambda: rows.table(self._reports, _several(report), query))

    def what_if(
        self,
        report: OneReport,
        remove: Annotated[
            list[Wait], Field(description="Waits to remove, everywhere or at one place.")
        ] = [],  # noqa: B006
        graph: Annotated[
            list[str], Field(description="Phases to launch as a CUDA graph, e.g. step/forward.")
        ] = [],  # noqa: B006
        scale: Annotated[
            dict[str, Factor],
            Field(description="Factors on the time of kernels, or of copies (memcpy HtoD)."),
        ] = {},  # noqa: B006
        faster_host: Annotated[
            dict[str, Factor], Field(description="Factors on the time of host code in phases.")
        ] = {},  # noqa: B006
        async_copies: Annotated[bool, Field(description="Let no copy block the host.")] = False,
        no_profiler: Annotated[bool, Field(description="Remove the profiler's own work.")] = False,
        no_gil: Annotated[
            bool, Field(description="Let no thread wait for Python's lock (GIL).")
        ] = False,
        overlapped: Annotated[
            bool, Field(description="Let a serving engine prepare a step during the one before.")
        ] = False,
    ) -> Annotated[CallToolResult, replaying.Replayed]:
        """Show what a change to the program would save, before you write it.

        Replays the report: each call and operation begins as soon as what it waited for is done.
        Changes can be combined.
        """
        changes = Changes(
            removed=tuple(Removal(kind=removal.kind, at=removal.at) for removal in remove),
            graphs=tuple(graph),
            scaled=tuple(scale.items()),
            faster_host=tuple(faster_host.items()),
            async_copies=async_copies,
            no_profiler=no_profiler,
            no_gil=no_gil,
            overlapped=overlapped,
        )
        return _result(lambda: replaying.what_if(self._reports, report, changes))

    def diff(
        self,
        base: Captures,
        new: Captures,
        limit: Annotated[int, _limit(1000, "rows of each part")] = 5,
        force: Force = False,
    ) -> Annotated[CallToolResult, comparing.Difference]:
        """Show whether a step got faster, and what made the difference.

        Captures of an unchanged program differ: only three a side tell a change from that.
        """
        return _result(lambda: comparing.diff(self._reports, base, new, limit=limit, force=force))

    def diff_over_time(
        self, captures: Captures, force: Force = False
    ) -> Annotated[CallToolResult, comparing.History]:
        """Show how the step changed from each of several captures to the next."""
        return _result(lambda: comparing.diff_over_time(self._reports, captures, force=force))


def _several(report: str | Sequence[str]) -> list[str]:
    return [report] if isinstance(report, str) else [*report]


def _result(answer: Callable[[], Answer[Any]]) -> CallToolResult:
    """An answer as the protocol has it. An error of ours says what was seen and what to do."""
    try:
        result = answer()
    except NsysflowError as error:
        return CallToolResult(content=[TextContent(text=uncontrolled(str(error)))], is_error=True)
    return CallToolResult(
        content=[TextContent(text=result.text)], structured_content=asdict(result.data)
    )
