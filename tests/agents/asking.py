"""An agent that asks the server in memory, by the package's own client."""

import asyncio
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.types import CallToolResult, TextContent

from nsysflow.agents.folder import Folder, Reports
from nsysflow.agents.server import server_of
from nsysflow.analysis.options import Options


def reports_in(folder: Path) -> Reports:
    """The reports of a folder, looked at as they are."""
    return Reports(Folder(folder.resolve()), Options())


def call(reports: Reports, tool: str, **arguments: Any) -> CallToolResult:
    """What the server answers to one call."""

    async def asked() -> CallToolResult:
        async with Client(server_of(reports)) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(asked())


def data(result: CallToolResult) -> dict[str, Any]:
    """The figures of an answer that is no error."""
    assert not result.is_error, text(result)
    found: dict[str, Any] | None = result.structured_content
    assert found is not None
    return found


def text(result: CallToolResult) -> str:
    """The words of an answer."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
