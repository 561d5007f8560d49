"""A run as a notebook shows it."""

from collections.abc import Iterator
from importlib.resources import files

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.report.about import about_run
from nsysflow.report.analysed import Analysed
from nsysflow.report.findings import suggestions
from nsysflow.report.notebook.bars import bars
from nsysflow.report.notebook.svg import dark_rules, text_of
from nsysflow.report.notebook.timeline import timeline
from nsysflow.report.results import Results
from nsysflow.report.verdict.judgement import judge

FINDINGS = 3
"""How many findings are shown, as on the page."""


def html_of(shown: Results | Analysed) -> str:
    """The verdict, what to change, where the time goes and a small timeline.

    Args:
        shown: a run, or the analysis of one report.
    """
    results = shown if isinstance(shown, Results) else Results([shown])
    parts = (
        f"<style>{_style()}</style>",
        f'<p class="quiet">{text_of(about_run(results))}</p>',
        *_verdict(results),
        *_findings(results),
        *_titled("GPU time", results.judged.per_step.removeprefix("; "), bars(results)),
        *_titled("Timeline", "", timeline(results)),
        _tables(results is shown),
    )
    return f'<div class="nsysflow">{"".join(parts)}</div>'


def _verdict(results: Results) -> Iterator[str]:
    judgement = judge(results)
    for headline in judgement.headlines:
        yield f"<p><b>{text_of(headline.sentence)}</b></p>"
        if headline.advice:
            yield f"<p>next: {text_of(headline.advice)}</p>"
    yield from (f"<p>{text_of(remark)}</p>" for remark in judgement.remarks)


def _findings(results: Results) -> Iterator[str]:
    found = suggestions(results, FINDINGS)
    if not found.rows:
        return
    items = (
        f"<li>{text_of(each.saving)} <b>{text_of(each.title)}</b><br>"
        f"<small>{text_of(' '.join(filter(None, [each.change, each.steps])))}</small></li>"
        for each in found.rows
    )
    yield from _titled("Findings", found.caption, f"<ol>{''.join(items)}</ol>")


def _titled(title: str, caption: str, content: str) -> Iterator[str]:
    """A heading above what is not empty."""
    if content:
        yield f"<h4>{text_of(title)} <small>{text_of(caption)}</small></h4>{content}"


def _tables(of_run: bool) -> str:
    """The tables that it has as attributes."""
    listed = (
        f"<li><code>{name}</code>: {text_of(table.about)}</li>"
        for name, table in TABLES.items()
        if of_run or table.of == "report" or name == "findings"
    )
    return f"<details><summary>Tables</summary><ul>{''.join(listed)}</ul></details>"


def _style() -> str:
    css = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    return f"{css}\n{dark_rules()}"
