"""One case: an input, mutated, and a command that reads it; and what counts as a failure."""

import json
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch
from xml.etree import ElementTree

import click
import mcp.client.stdio  # noqa: F401 - keeps the stderr of its import: not that of a runner
from click.testing import CliRunner, Result
from polars.exceptions import PanicException

import nsysflow
from nsysflow.agents.folder import Folder, Reports
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.index import ABOUT
from nsysflow.base.errors import NsysflowError
from nsysflow.base.names import printable_json
from nsysflow.cli import answers
from nsysflow.cli.main import main
from nsysflow.runs.cache import VARIABLE
from tests.analysis.test_invariants import assert_invariants
from tests.fuzz.inputs import INPUTS, WEIGHTS, Mutant, files_below, small_export

MOST_S: Final = 20.0
"""Of CPU time: other programs may slow a case down."""

MOST_BYTES: Final = 2 << 30
PEAK: Final = Path("/proc/self/clear_refs")
"""Where Linux is told to forget the most memory that this process had."""

CODES: Final = (0, 1, 2, 3, 4)
"""How a command may end."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a case ended; without a code it did not, without a failure nothing is wrong."""

    number: int
    input: str
    changes: list[str]
    by_bytes: bool
    words: list[str]
    code: int | None
    said: str
    failure: str | None
    cpu_s: float
    peak_bytes: int


class TooLong(BaseException):
    """A case takes too long. No handler of errors may take it for one."""


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLong(f"more than {MOST_S:.0f} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run_case(seed: int, number: int) -> Outcome:
    """Run one case. The same seed and number give the same input and command."""
    draw = Random(f"{seed}:{number}")
    kind = draw.choices([*INPUTS], WEIGHTS)[0]
    with TemporaryDirectory(prefix="fuzz-") as name, patch.object(answers, "WORTH_S", 0.0):
        folder = Path(name)
        given, out = folder / "in", folder / "out"
        given.mkdir()
        out.mkdir()
        mutant = INPUTS[kind](draw, given)
        before = _checksums(given)
        words = _words(draw, kind, mutant, out)
        PEAK.write_text("5")
        begin_s = time.process_time()
        done, failure = _run(words, given, environment=_variables(kind, given))
        failure = failure or _first_failure(done, words, out)
        failure = failure or _changed(before, given)
        if failure is None and done is not None and done.exit_code == 0 and draw.random() < 0.3:
            failure = _broken_invariant(kind, mutant.path)
        spent_s, peak = time.process_time() - begin_s, _peak_bytes()
        if failure is None and peak > MOST_BYTES:
            failure = f"{peak >> 20} MB of memory"
        return Outcome(
            number=number,
            input=kind,
            changes=mutant.changes,
            by_bytes=mutant.by_bytes,
            words=[word.replace(name, ".") for word in words],
            code=None if done is None else done.exit_code,
            said="" if done is None else done.stderr.replace(name, ".")[:300],
            failure=failure,
            cpu_s=round(spent_s, 2),
            peak_bytes=peak,
        )


def _run(
    words: list[str], folder: Path, environment: Mapping[str, str]
) -> tuple[Result | None, str | None]:
    try:
        with _time_limit(), chdir(folder), warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # users would see it
            if words[0] == "mcp":
                done = CliRunner().invoke(ask, words[1:], env=environment)
            else:
                done = CliRunner().invoke(main, words, env=environment)
    except (TooLong, PanicException) as error:
        return None, "".join(traceback.format_exception(error)[-6:])
    if done.exc_info is not None and not isinstance(done.exception, SystemExit | None):
        return done, "".join(traceback.format_exception(*done.exc_info))
    return done, None if done.exit_code in CODES else f"exit code {done.exit_code}"


@click.command()
@click.argument("report")
@click.argument("tool")
@click.argument("what", default="")
def ask(report: str, tool: str, what: str) -> None:
    """Print what a tool for coding agents answers, in words and in figures."""
    from nsysflow.agents.server import Tools, Wait  # takes a second, which most cases need not wait

    tools = Tools(Reports(Folder(Path.cwd().resolve()), Options()))
    asked: Any = what  # one of the words in QUESTIONS
    answers: dict[str, Callable[[], Any]] = {
        "list_reports": tools.list_reports,
        "open_report": lambda: tools.open_report(report),
        "findings": lambda: tools.findings(report),
        "explain": lambda: tools.explain(what, [report]),
        "table": lambda: tools.table(report, asked),
        "what_if": lambda: tools.what_if(report, remove=[Wait(kind=asked)]),
        "diff": lambda: tools.diff([report], [report]),
        "diff_over_time": lambda: tools.diff_over_time([report, report]),
    }
    answer = answers[tool]()
    for content in answer.content:
        click.echo(content.text)
    click.echo(printable_json(json.dumps(answer.structured_content, allow_nan=False)))
    sys.exit(answer.is_error)


def _variables(kind: str, given: Path) -> dict[str, str]:
    return {VARIABLE: str(given / "cache") if kind == "cache" else "off"}


TABLES: Final = (*ABOUT,)
ANALYZE: Final = (
    *(["--no-files"],) * 4,
    ["--no-files", "--full"],
    ["--no-files", "--full", "--low-memory"],
    *(["-o", "{out}/a", "--html", "--sarif", "{out}/f.sarif", "--perfetto", "{out}/p.pftrace"],)
    * 2,
    ["--json"],
    ["--gaps-csv", "-"],
    ["--flamegraph", "{out}/idle.svg"],
    ["--figures", "{out}/figures"],
    ["--no-files", "--steps", "1:3"],
    ["--no-files", "--whole", "--skip", "0"],
    ["--no-files", "--range", "step"],
    ["--no-files", "--from", "0.001", "--to", "0.004"],
    ["--no-files", "--flops-per-step", "1e12"],
)
WHATIF: Final = (
    *(["--remove", kind] for kind in ("sync", "alloc", "copy", "all", "loop", "retry", "churn")),
    ["--async-copies", "--no-profiler", "--no-gil", "--overlap-scheduling"],
    ["--graph", "step", "--faster-host", "step=0.5"],
    ["--graph", "(outside ranges)"],
    ["--scale", "add=0.5", "--json"],
)


QUESTIONS: Final = (
    *(["list_reports"], ["open_report"], ["findings"], ["what_if", "sync"], ["what_if", "all"]),
    *(["explain", what] for what in ("1", "2", "sync")),
    *(["table", name] for name in TABLES),
    *(["diff"], ["diff_over_time"]),
)
"""Tools of `nsysflow mcp`, and what is asked."""


def _words(draw: Random, kind: str, mutant: Mutant, out: Path) -> list[str]:
    path = str(mutant.path)
    if kind == "report.json":
        words = _on_document(draw, path, out)
    elif kind == "baseline":
        other = str(mutant.path.with_name("report.json"))
        words = ["check", other, "--baseline", path, "--max", "step_ms<=1.1*baseline"]
    elif kind == "settings":
        words = draw.choice(
            (
                ["check", path],
                ["check", path, "--json"],
                ["analyze", str(mutant.path.with_name("r.sqlite"))],
            )
        )
    elif kind == "cache":
        words = draw.choice((["analyze", path, "--no-files"], ["cache"], ["explain", "1", path]))
    else:
        words = _on_report(draw, path, out)
    return [word.format(out=out) for word in words]


def _on_document(draw: Random, path: str, out: Path) -> list[str]:
    other = small_export(out / "other.sqlite")
    return draw.choice(
        (
            ["diff", path, path, *draw.choice((["--md"], ["--json"], ["--csv"], ["--full"]))],
            ["diff", path, str(other), "--html", "{out}/diff.html", "--force"],
            ["check", path, "--max", "step_ms<=5", "--junit", "{out}/junit.xml", "--github"],
            ["check", str(other), "--baseline", path, "--max", "step_ms<=1.1*baseline"],
        )
    )


def _on_report(draw: Random, path: str, out: Path) -> list[str]:
    match draw.choices(
        ("analyze", "table", "explain", "whatif", "pack", "check", "diff", "show", "ranks", "mcp"),
        (9, 4, 2, 3, 2, 2, 1, 1, 1, 2),
    )[0]:
        case "analyze":
            return ["analyze", path, *draw.choice(ANALYZE)]
        case "table":
            form = draw.choice(("table", "table", "csv", "md"))
            wide = draw.choice(([], ["--wide"]))
            return ["analyze", path, "--table", draw.choice(TABLES), "--format", form, *wide]
        case "explain":
            return ["explain", draw.choice(("1", "2", "3")), path]
        case "whatif":
            return ["whatif", path, *draw.choice(WHATIF)]
        case "pack":
            return ["pack", path, "-o", draw.choice(("{out}/p.sqlite", "{out}/p.pftrace.xz"))]
        case "check":
            limits = ["--max", "step_ms<=5", "--max", "finding:sync-in-loop=none"]
            return ["check", path, *limits, "--junit", "{out}/junit.xml", "--github"]
        case "diff":
            return ["diff", path, str(small_export(out / "other.sqlite")), "--force"]
        case "show":
            return ["show", path, "--no-browser"]
        case "mcp":
            return ["mcp", Path(path).name, *draw.choice(QUESTIONS)]
        case _:
            return ["analyze", path, str(small_export(out / "rank1.sqlite")), "-o", "{out}/a"]


CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SHOWN_AS_IS: Final = ("csv", "--gaps-csv", "--csv")
"""What prints data for programs: cells of CSV hold what a report holds."""


def _first_failure(done: Result | None, words: list[str], out: Path) -> str | None:
    if done is None:
        return None
    printed = [done.stderr] if {*words} & {*_SHOWN_AS_IS} else [done.stderr, done.stdout]
    for text in printed:
        if found := CONTROL.search(text):
            around = text[max(found.start() - 60, 0) : found.end() + 20]
            return f"prints a control character: {around!r}"
    return next((wrong for file in files_below(out) if (wrong := _wrong_file(file))), None)


def _wrong_file(file: Path) -> str | None:
    match file.suffix:
        case ".json" | ".sarif":
            try:
                json.loads(file.read_text("utf-8"), parse_constant=_no_constant)
            except ValueError as error:
                return f"{file.name} is no JSON: {error}"
        case ".html":
            page = Page()
            page.feed(file.read_text("utf-8"))
            return f"{file.name} has {page.found}" if page.found else None
        case ".svg" | ".xml":
            try:
                ElementTree.parse(file)
            except ElementTree.ParseError as error:
                return f"{file.name} is no XML: {error}"
        case ".md":
            text = file.read_text("utf-8")
            if found := re.search(r"(?<!\\)<(script>fuzz|img src=x)", text) or CONTROL.search(text):
                return f"{file.name} has {found[0]!r}"
    return None


def _no_constant(name: str) -> None:
    raise ValueError(name)


class Page(HTMLParser):
    """Looks for markup that came from a report."""

    found: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if any(
            name.startswith("on") or (text and "fuzz()" in text and name == "src")
            for name, text in attrs
        ):
            self.found = f"<{tag} {attrs}>"
        self._in = tag

    _in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script" and data.strip() == "fuzz()":
            self.found = "<script>fuzz()"


def _checksums(folder: Path) -> dict[str, str]:
    return {str(each): sha256(each.read_bytes()).hexdigest() for each in files_below(folder)}


def _changed(before: Mapping[str, str], folder: Path) -> str | None:
    after = _checksums(folder)
    changed = [name for name, held in before.items() if after.get(name) != held]
    kept = [name for name in changed if "/cache/" not in name]
    return f"changed its input: {kept}" if kept else None


def _broken_invariant(kind: str, path: Path) -> str | None:
    if kind in ("report.json", "baseline", "settings", "cache"):
        return None
    try:
        with _time_limit():
            assert_invariants(nsysflow.analyze(nsysflow.load(path)))
    except NsysflowError:
        return None
    except (AssertionError, Exception, TooLong) as error:
        return "invariant: " + "".join(traceback.format_exception(error))
    return None


def _peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) << 10 if found else 0
