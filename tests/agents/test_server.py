import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner

from nsysflow.agents.folder import Folder, Reports
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.index import ABOUT
from nsysflow.cli.main import main
from nsysflow.report.document import plain
from nsysflow.report.results import Results
from tests.cli.running import refused, run
from tests.reports import ROOT, SAMPLES
from tests.sharing import shared_analyses

SYNC, ASYNC = "nan_check-sync.sqlite.xz", "nan_check-async.sqlite.xz"
RANKS = ["ddp-bucketed-rank0.sqlite.xz", "ddp-bucketed-rank1.sqlite.xz"]
CHANGE = {"kind": "sync", "at": "nan_check.py:125"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with samples, beside which lies another one; each is analysed once."""
    folder = tmp_path_factory.mktemp("agents") / "runs"
    folder.mkdir()
    for name in (SYNC, ASYNC, *RANKS):
        shutil.copy(SAMPLES / name, folder)
    shutil.copy(SAMPLES / SYNC, folder.parent / "secret.sqlite.xz")
    (folder / "link.sqlite.xz").symlink_to("../secret.sqlite.xz")
    with shared_analyses(*folder.iterdir()):
        yield folder


def reports_in(folder: Path) -> Reports:
    """The reports of a folder, looked at as they are."""
    return Reports(Folder(folder.resolve()), Options())


@pytest.fixture(scope="module")
def reports(folder: Path) -> Reports:
    """Its reports, opened once for all tests."""
    return reports_in(folder)


@cache
def server(reports: Reports) -> Any:
    """The server of these reports. To import it takes a second of CPU time: only the process that
    runs these tests does."""
    from nsysflow.agents.server import server_of

    return server_of(reports)


def client_of(reports: Reports) -> Any:
    """The package's own client of the server, in memory."""
    from mcp import Client

    return Client(server(reports))


def call(reports: Reports, tool: str, **arguments: Any) -> Any:
    """What the server answers to one call."""

    async def asked() -> Any:
        async with client_of(reports) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(asked())


def data(result: Any) -> dict[str, Any]:
    """The figures of an answer that is no error."""
    assert not result.is_error, text(result)
    found: dict[str, Any] | None = result.structured_content
    assert found is not None
    return found


def text(result: Any) -> str:
    """The words of an answer."""
    (content,) = result.content
    assert content.type == "text"
    return str(content.text)


def cli(*words: str | Path) -> Any:
    """The JSON that a command prints."""
    return json.loads(run(*words, "--json").stdout)


def test_a_tool_has_words_types_and_only_reads(reports: Reports) -> None:
    async def listed() -> dict[str, Any]:
        async with client_of(reports) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    tools = asyncio.run(listed())
    assert [*tools] == [
        *("list_reports", "open_report", "findings", "table", "explain"),
        *("what_if", "diff", "diff_over_time"),
    ]
    for tool in tools.values():
        assert tool.description
        assert tool.output_schema
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.annotations.open_world_hint is False
    assert tools["table"].input_schema["properties"]["name"]["enum"] == [*ABOUT]


def test_findings_and_verdict_are_those_of_report_json(reports: Reports, folder: Path) -> None:
    document = cli("analyze", folder / SYNC)
    found, first = (data(call(reports, "findings", report=SYNC, limit=limit)) for limit in (20, 1))
    assert found == {"total": 2, "findings": document["findings"]}
    assert first["findings"] == found["findings"][:1]
    opened = call(reports, "open_report", report=SYNC)
    assert {name: data(opened)[name] for name in ("verdict", "time", "run")} == {
        name: document[name] for name in ("verdict", "time", "run")
    }
    for part in ("steps", "judged"):  # a few fields of these
        assert data(opened)[part].items() <= document[part].items()
    assert len(json.dumps(opened.structured_content)) < 4_000
    assert "Compute-bound: the GPU computes 81 %" in text(opened)


@pytest.mark.parametrize("name", ABOUT)
def test_a_table_has_the_figures_of_the_library(reports: Reports, folder: Path, name: str) -> None:
    wanted = plain(reports.open([SYNC]).table(name))
    arguments = {"report": SYNC, "name": name, "columns": wanted.columns, "limit": 500}
    found = data(call(reports, "table", **arguments))
    assert found["total"] == len(wanted)
    rows = sorted(json.dumps(row) for row in found["rows"])
    every = sorted(json.dumps(row) for row in wanted.rows())
    assert rows == every if len(every) <= 500 else set(rows) < set(every)


def test_a_finding_is_explained_as_in_the_terminal(reports: Reports, folder: Path) -> None:
    said = text(call(reports, "explain", what="1", report=SYNC))
    printed = CliRunner(env={"COLUMNS": "120"}).invoke(main, ["explain", "1", str(folder / SYNC)])
    assert said.split() == printed.stdout.split()


def test_what_if_gives_the_figures_of_the_command(reports: Reports, folder: Path) -> None:
    words = ("--graph", "step/forward", "--scale", "reduce_kernel=0.5", "--faster-host", "step=0.5")
    remove = ("--remove", "sync@nan_check.py:125")
    printed = cli("whatif", folder / SYNC, *words, *remove, "--async-copies", "--no-profiler")
    graph: dict[str, Any] = {"graph": ["step/forward"], "scale": {"reduce_kernel": 0.5}}
    changes = graph | {"faster_host": {"step": 0.5}, "async_copies": True, "no_profiler": True}
    changes |= {"remove": [CHANGE]}
    assert data(call(reports, "what_if", report=SYNC, **changes)) == printed


def test_diff_gives_the_figures_of_the_command_and_at_most_so_many_rows(
    reports: Reports, folder: Path
) -> None:
    printed = cli("diff", folder / SYNC, folder / ASYNC)
    whole, first = (
        data(call(reports, "diff", base=[SYNC], new=[ASYNC], limit=limit))["comparison"]
        for limit in (1000, 1)
    )
    assert whole == printed
    assert first["bridge"]["change_ns"] == whole["bridge"]["change_ns"]
    for few, every in zip(first["bridge"]["parts"], whole["bridge"]["parts"], strict=True):
        assert few["rows"] == every["rows"][:1]


def test_several_captures_give_a_row_each(reports: Reports, folder: Path) -> None:
    names = [SYNC, ASYNC, SYNC]
    printed = cli("diff", *(folder / name for name in names))
    assert data(call(reports, "diff_over_time", captures=names))["captures"] == printed


OUTSIDE = "../secret.sqlite.xz"
LINK = "link.sqlite.xz"
EQUAL = {"column": "gap", "op": "=", "value": 1}


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        # a path that leads out
        ("open_report", {"report": OUTSIDE}, "is outside"),
        ("open_report", {"report": LINK}, "is outside"),
        ("open_report", {"report": [SYNC, OUTSIDE]}, "is outside"),
        ("findings", {"report": "/etc/passwd"}, "is outside"),
        ("table", {"report": LINK, "name": "gaps"}, "is outside"),
        ("explain", {"what": "1", "report": LINK}, "is outside"),
        ("diff_over_time", {"captures": [SYNC, OUTSIDE]}, "is outside"),
        # other errors say what was seen and what to do
        ("open_report", {"report": "none.sqlite"}, "does not exist. See what is there"),
        ("table", {"report": SYNC, "name": "gapz"}, "no table 'gapz'. Did you mean gaps?"),
        ("table", {"report": SYNC, "name": "gaps", "limit": 501}, "less than or equal to 500"),
        ("explain", {"what": "9", "report": SYNC}, "Its findings are 1 to 2"),
        ("explain", {"what": "1"}, "finding 1 of which report?"),
        ("what_if", {"report": SYNC, "graph": ["step/metric"]}, "Did you mean step/metrics"),
        ("what_if", {"report": SYNC, "remove": [CHANGE | {"at": "nan_chek.py:1"}]},
         "nan_check.py:125?"),
        ("diff", {"base": [SYNC], "new": RANKS}, "cannot be compared"),
        # an argument that it does not have
        ("findings", {"report": SYNC, "limt": 3}, "limt"),
        ("table", {"report": SYNC, "name": "gaps", "where": [EQUAL | {"limt": 3}]}, "limt"),
        ("what_if", {"report": SYNC, "remove": [{"kind": "sync", "limt": 3}]}, "limt"),
        ("diff_over_time", {"captures": [SYNC]}, "Name two or more captures"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(
    reports: Reports, tool: str, arguments: dict[str, object], said: str
) -> None:
    result = call(reports, tool, **arguments)
    assert result.is_error
    assert said in text(result)


def test_without_the_package_or_the_folder_the_command_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "nowhere" in refused("mcp", "nowhere")
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.delitem(sys.modules, "nsysflow.agents.server")
    said = "the package mcp is not installed. Install it: pip install 'nsysflow[mcp]'"
    assert refused("mcp", code=1) == f"nsysflow: {said}"


def test_a_report_stays_open_until_its_file_changes(tmp_path: Path) -> None:
    shutil.copy(SAMPLES / SYNC, tmp_path)
    reports = reports_in(tmp_path)
    first = reports.open([SYNC])
    assert reports.open([SYNC]) is first
    shutil.copy(SAMPLES / ASYNC, tmp_path / SYNC)
    assert reports.open([SYNC]) is not first


def test_the_server_answers_while_a_report_is_loading(folder: Path) -> None:
    class Slow(Reports):
        """Reports that wait, until they may be opened."""

        started, may_open = Event(), Event()

        def open(self, _typed: object) -> Results:
            self.started.set()
            assert self.may_open.wait(timeout=60)
            return super().open([SYNC])

    reports = Slow(Folder(folder), Options())

    async def ask() -> Any:
        async with client_of(reports) as client:
            loading = asyncio.create_task(client.call_tool("open_report", {"report": SYNC}))
            await asyncio.to_thread(reports.started.wait, 60)
            listed = await client.call_tool("list_reports", {})
            assert not listed.is_error
            assert not loading.done()
            reports.may_open.set()
            return await loading

    assert data(asyncio.run(ask()))["findings"] == 2


def test_a_real_process_speaks_over_stdio_and_writes_nothing(folder: Path) -> None:
    from mcp import Client, StdioServerParameters

    def held() -> list[tuple[str, int]]:
        return sorted((each.name, each.lstat().st_mtime_ns) for each in folder.iterdir())

    before = held()
    process = StdioServerParameters(
        command=sys.executable,
        args=["-m", "nsysflow", "mcp", str(folder)],
        env={"PYTHONPATH": str(ROOT)},
        cwd=folder,
    )

    async def ask() -> tuple[Any, Any]:
        async with Client(process) as client:
            found = await client.call_tool("findings", {"report": SYNC})
            return found, await client.call_tool("open_report", {"report": "link.sqlite.xz"})

    found, refused = asyncio.run(ask())
    assert data(found)["findings"][0]["rule"] == "sync-in-loop"
    assert refused.is_error
    assert held() == before
