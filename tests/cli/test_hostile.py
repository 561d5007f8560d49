"""No writer lets through what a report holds to harm its reader, or knows of its program."""

import csv
import json
import lzma
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from nsysflow.base.names import CSV_FORMULA, csv_text, from_csv
from nsysflow.cli.main import main
from tests.analysis.load.kineto.traces import call, event, function, kernel, write
from tests.exports import PID, write_export
from tests.fuzz.cases import CONTROL, QUESTIONS, Page, ask
from tests.sharing import shared_analyses

FORMULAS: Final = ('=HYPERLINK("http://x")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "'=1")
HOSTILE: Final = (
    *FORMULAS,
    *("\x1b[2J\x1b]0;fuzz\x07", "\x9b31m", "nul\0byte", "\u202egnp", "back\x08space"),
    *("<script>fuzz()</script>", "</script><script>fuzz()</script>", "]]><svg onload=fuzz()>"),
    *('"><img src=x onerror=fuzz()>', "' onerror='fuzz()", "[a](javascript:fuzz())"),
    *("../../fuzz", "/dev/stdout", "; touch fuzz", "$(touch fuzz)", "`touch fuzz`", "%s{0}{x}"),
    *("a\n::error::fuzz", "a\r\n::stop-commands::fuzz", "[red]a[/]", "a|b|c", "'; DROP TABLE x;--"),
)
SECRET: Final = "hunter2"
ENVIRONMENT: Final = f"AWS_SECRET_ACCESS_KEY={SECRET}"
COMMAND: Final = f"/home/{SECRET}/bin/python train.py --token={SECRET}"


def hostile_export(path: Path) -> Path:
    """Steps whose kernels, ranges, threads, domains and GPU are called so, in a program whose
    environment, command line and paths are secret."""
    frames = [[f"/home/{SECRET}/{number}.py", number, text] for number, text in enumerate(HOSTILE)]
    asked = [["alloc", at, 1 << 20, 30_000 + at, at] for at in range(len(HOSTILE))]
    gpu = {"history": asked, "blocks": [], "reserved": 1 << 30, "usable": 2 << 30}
    memory = {"pid": PID, "frames": frames, "stacks": [[at] for at in range(len(HOSTILE))]}
    kernels: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    ranges: list[dict[str, Any]] = [
        {"start": 0, "end": None, "eventType": 75, "domainId": 5, "text": HOSTILE[7]},
        {"start": 0, "end": None, "eventType": 34, "text": '{"nsysflow": {"unix_ns": 0}}'},
    ]
    for step in range(4):
        begin = 10_000_000 * step
        ranges.append({"start": begin, "end": begin + 9_900_000, "text": "step"})
        for at, text in enumerate(HOSTILE):
            start, number = begin + 250_000 * at, 100 * step + at + 1
            ranges.append({"start": start, "end": start + 240_000, "text": text})
            ranges.append({"start": start + 5, "end": start + 9, "text": text, "domainId": 5})
            launch = {"start": start + 1000, "end": start + 9000, "correlationId": number}
            wait = {"start": start + 60_000, "end": start + 200_000, "correlationId": 9000 + number}
            calls += [launch, wait | {"nameId": "cudaStreamSynchronize"}]
            names = {"demangledName": text, "shortName": text}
            ran = {"start": start + 9500, "end": start + 120_000, "correlationId": number}
            kernels.append(names | ran)
    return write_export(
        path,
        kernels=kernels,
        calls=calls,
        nvtx=ranges,
        threads=[{"nameId": HOSTILE[7]}],
        gpus=[{"name": "".join(HOSTILE), "busLocation": SECRET}],
        diagnostics=[{"text": f"{COMMAND} {ENVIRONMENT}"}],
        tables={
            "TARGET_INFO_SYSTEM_ENV": [{"name": "Environment", "value": ENVIRONMENT}],
            "TARGET_INFO_SESSION_START_TIME": [{"utcTime": SECRET}],
            "ProcessStreams": [{"globalPid": PID << 24, "filenameId": 1, "contentId": 2}],
            "NSYSFLOW_MEMORY": [{"pid": PID, "history": json.dumps(memory | {"devices": [gpu]})}],
            "PROCESSES": [{"globalPid": PID << 24, "pid": PID, "name": COMMAND}],
            "META_DATA_CAPTURE": [{"name": "COMMAND_LINE", "value": COMMAND}],
            "ANALYSIS_FILE": [{"id": 1, "filename": COMMAND, "content": ENVIRONMENT}],
        },
        strings={900: ENVIRONMENT, 901: COMMAND},
    )


def hostile_trace(folder: Path) -> Path:
    """A trace of torch.profiler whose functions, operators and ranges are called so, in a program
    whose files are in a secret folder."""
    events = [event("user_annotation", "step", 0, 10_000)]
    for at, text in enumerate(HOSTILE):
        begin = 100 * at
        path = f"/home/{SECRET}/project/train.py({at}): {text}"
        events += [
            function(path, begin, 90),
            event("user_annotation", text, begin + 1, 80),
            event("cpu_op", text, begin + 2, 70),
            call(begin + 60, at + 1),
            kernel(begin + 65, 5, text, correlation=at + 1),
        ]
    environment = {"environment": ENVIRONMENT, "traceName": COMMAND}
    return write(folder, *events, **environment)


ASKED: Final = ("list_reports", "open_report", "findings", "explain", "kernels", "phases")
"""What is asked of the tools for coding agents."""

SHOWN: Final = ("kernels", "phases", "gaps", "syncs", "findings", "peak_memory")
"""Tables that are printed; all tables are among the files."""

WRITERS: Final = (
    ["analyze", "{r}", "--no-files", "--full"],
    ["analyze", "{r}", "--json"],
    ["analyze", "{r}", "--gaps-csv", "-"],
    ["analyze", "{r}", "-o", "{out}/all", "--html", "--sarif", "{out}/f.sarif"],
    ["analyze", "{r}", "--no-files", "--perfetto", "{out}/p.pftrace"],
    ["analyze", "{k}", "--flamegraph", "{out}/idle.svg"],
    ["analyze", "{k}", "--flamegraph", "{out}/idle.speedscope.json"],
    ["analyze", "{k}", "-o", "{out}/kineto", "--html"],
    ["pack", "{k}", "-o", "{out}/k.pftrace.xz"],
    ["analyze", "{r}", "--no-files", "--figures", "{out}/figures"],
    *(["analyze", "{r}", "--table", name, "--wide"] for name in SHOWN),
    *(["analyze", "{r}", "--table", name, "--format", "csv"] for name in SHOWN),
    *(["analyze", "{r}", "--table", name, "--format", "md"] for name in SHOWN),
    *(["explain", str(number), "{r}"] for number in range(1, 4)),
    ["whatif", "{r}", "--remove", "all"],
    ["check", "{r}", "--max", "step_ms<=0.001", "--junit", "{out}/junit.xml", "--github"],
    ["check", "{r}", "--max", "phase:step/a|b|c.busy_ms<=0.001", "--json"],
    ["diff", "{r}", "{r}", "--force", "--html", "{out}/diff.html"],
    *(["diff", "{r}", "{r}", "--force", form] for form in ("--md", "--csv", "--json", "--full")),
    ["pack", "{r}", "-o", "{out}/p.sqlite"],
    ["pack", "{r}", "-o", "{out}/q.pftrace.xz"],
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What every writer wrote and printed, by name."""
    folder = tmp_path_factory.mktemp("hostile")
    out = folder / "out"
    out.mkdir()
    report = hostile_export(folder / "r\x1b[2J<img src=x onerror=fuzz()>.sqlite")
    trace = hostile_trace(folder)
    with ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.chdir(out)
        patched.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patched.setenv("NSYSFLOW_CACHE", "off")
        texts: dict[str, bytes] = {}
        stack.enter_context(shared_analyses(report, trace))
        for words in (question for question in QUESTIONS if {*question} & {*ASKED}):
            asked = [trace.name, *words]
            patched.chdir(folder)
            done = CliRunner().invoke(ask, asked, catch_exceptions=False)
            texts[" ".join(("mcp", *words))] = done.stdout_bytes
        patched.chdir(out)
        for words in WRITERS:
            typed = [word.format(r=report, k=trace, out=out) for word in words]
            done = CliRunner().invoke(main, typed, catch_exceptions=False)
            assert done.exit_code in (0, 3, 4) or words[0] == "explain", done.output
            ending = {"csv": ".csv", "--csv": ".csv", "--gaps-csv": ".csv", "md": ".md"}
            form = next((ending[word] for word in words if word in ending), "")
            texts[" ".join((*words, "stdout")) + form] = done.stdout_bytes
            texts[" ".join(words) + " stderr"] = done.stderr_bytes
    assert {each.name for each in folder.iterdir()} == {"out", report.name, trace.name}
    texts |= {str(file.relative_to(out)): file.read_bytes() for file in _files(out)}
    return texts


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


BINARY: Final = (".pftrace", ".sqlite", ".xz", ".png", ".parquet")


def test_no_text_controls_a_terminal(written: dict[str, bytes]) -> None:
    for name, content in written.items():
        if not name.endswith(BINARY):
            found = CONTROL.search(content.decode().replace("\r\n", "\n"))
            assert found is None, (name, found)


def test_no_text_is_markup(written: dict[str, bytes]) -> None:
    for name, content in written.items():
        if name.endswith(".html"):
            page = Page()
            page.feed(content.decode())
            assert page.found is None, name
        elif name.endswith((".svg", ".xml")):
            for element in ElementTree.fromstring(content).iter():
                if element.tag.endswith("script"):  # our own, which holds no text of the report
                    assert "fuzz" not in (element.text or ""), name
                assert not any(key.startswith("on") for key in element.attrib), name
        elif name.endswith(".md"):
            assert not re.search(r"(?<![\\`])<(script|img|svg)", content.decode()), name
            assert "](javascript" not in content.decode().replace("\\]", ""), name
        elif name.endswith((".json", ".sarif")):
            json.loads(content)


def test_no_cell_is_a_formula(written: dict[str, bytes]) -> None:
    cells = 0
    for name, content in written.items():
        if name.endswith(".csv"):
            for row in csv.reader(content.decode().splitlines(keepends=True)):
                for cell in row:
                    cells += 1
                    number = re.fullmatch(r"-?[0-9.]+", cell)
                    assert number or not re.match(r"[=+\-@\t\r]", cell), (name, cell)
    assert cells > 1000


def test_no_line_is_a_command_of_a_forge(written: dict[str, bytes]) -> None:
    for name, content in written.items():
        if "--github" in name:
            commands = [line for line in content.decode().splitlines() if line.startswith("::")]
            assert all("fuzz" not in line.split("::")[1] for line in commands)
            assert not any(line.startswith(("::stop", "::error::fuzz")) for line in commands)


def test_no_secret_of_the_program_is_told(written: dict[str, bytes]) -> None:
    for name, content in written.items():
        for part in _unpacked(content):
            assert SECRET.encode() not in part, name


def _unpacked(content: bytes) -> Iterator[bytes]:
    """The content, and what it holds in packed form."""
    yield content
    if content.startswith(b"\xfd7zXZ"):
        yield lzma.decompress(content)
    for blob in re.findall(rb"[A-Za-z0-9+/]{24,}={0,2}", content):
        with suppress(ValueError, zlib.error):
            yield zlib.decompress(b64decode(blob))


def test_a_text_can_be_read_back_from_its_cell() -> None:
    for text in (*FORMULAS, "a", "", "'", "''=1", "'a", "(outside ranges)"):
        assert from_csv(csv_text(text)) == text
        assert not re.match(CSV_FORMULA, csv_text(text)[:1])
