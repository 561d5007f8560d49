"""Source lines as people read them."""

from nsysflow.analysis.findings.finding import without_function


def line_at(cause: str, culprit: str, line: str) -> str:
    """The line of idle time. The line known of host code is that of the launch after it, so the
    code is before that line."""
    before = line and cause == "host" and not culprit
    return f"before {without_function(line)}" if before else line
