"""nsys run, and tried."""

import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from nsysflow.base.errors import CaptureError, Damaged, NsysMissing, OutputError
from nsysflow.nsys.installations import Places
from nsysflow.nsys.progress_lines import ProgramOutput
from nsysflow.nsys.run import (
    RANGE,
    ImporterProblem,
    Trial,
    export,
    exporter,
    importer_problem,
    may_sample,
    try_nsys,
)
from tests.exports import write_export
from tests.nsys.fakes import an_nsys, fake_nsys, places, real_elf, script
from tests.nsys.real import real_nsys
from tests.unprivileged import unprivileged

WRITE = 'for option in "$@"; do case $option in --output=*) out=${option#--output=};; esac; done\n'


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"what nsys recorded")
    return path


def working(folder: Path, *ranges: str, then: str = "") -> Path:
    """A program that makes a report or exports one with these ranges, and then runs `then`."""
    folder.mkdir()
    write_export(folder / "export.sqlite", kernels=[{}], nvtx=[{"text": name} for name in ranges])
    copy = f'cp "{folder}/export.sqlite" "$out"'
    does = f'case $1 in profile) touch "$out.nsys-rep";; export) {copy};; esac'
    return script(folder / "nsys", f"{WRITE}{does}\n{then}")


def test_an_export_replaces_an_older_one_alone(report: Path, tmp_path: Path) -> None:
    nsys = working(tmp_path / "bin")
    out = tmp_path / "run.sqlite"
    out.write_text("an older one")
    export(an_nsys(nsys), report, out)
    assert out.read_bytes() == (tmp_path / "bin/export.sqlite").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "run.nsys-rep", "run.sqlite"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'Unknown file format' >&2; exit 3", "ended with 3 and said: Unknown file format"),
        ("exit 0", "ended with 0 and said: nothing"),
        (f'{WRITE} : > "$out"', "ended with 0 and said: nothing"),
        (f'{WRITE} echo half > "$out"; kill -9 $$', "ended with -9"),
    ],
    ids=["fails", "writes nothing", "writes an empty file", "is killed"],
)
def test_a_failed_export_leaves_nothing(body: str, said: str, report: Path, tmp_path: Path) -> None:
    nsys = script(tmp_path / "bin/nsys", body)
    out = tmp_path / "run.sqlite"
    out.write_text("an older one")
    with pytest.raises(Damaged, match=said):
        export(an_nsys(nsys), report, out)
    assert out.read_text() == "an older one"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    "said", ["[tag_message*] = database or disk is full", "write: No space left on device."]
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_full_disk_is_always_named(said: str, code: int, report: Path, tmp_path: Path) -> None:
    nsys = working(tmp_path / "bin", then=f"echo '{said}' >&2; exit {code}")
    out = tmp_path / "run.sqlite"
    with pytest.raises(OutputError, match=r"no space is left in .* MB free.* Make room:\n  df -h"):
        export(an_nsys(nsys), report, out)
    assert not out.exists()


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with unprivileged() as folder:
        report = folder / "run.nsys-rep"
        report.touch()
        folder.chmod(0o500)
        with pytest.raises(OutputError, match=r"cannot be written \(Permission denied\)"):
            export(an_nsys(Path("nsys")), report, folder / "run.sqlite")


def test_nsys_gets_its_libraries_and_exports_json_if_it_can(report: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    nsys = working(tmp_path / "bin", then=f'echo "$LD_LIBRARY_PATH $*" > {said}')
    able = an_nsys(nsys, library_path=tmp_path / "lib")
    export(able, report, tmp_path / "run.sqlite", json=True)
    assert re.split("[: ]", said.read_text())[0] == str(tmp_path / "lib")
    assert "--include-json=true" in said.read_text()
    export(an_nsys(nsys, "--quiet"), report, tmp_path / "run.sqlite", json=True)
    assert "--include-json" not in said.read_text()


def test_an_exporter_looks_for_nsys_late(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = exporter(tmp_path / "bin/nsys")
    with pytest.raises(CaptureError):
        later(report, tmp_path / "run.sqlite")
    fake_nsys(tmp_path / "bin/nsys", body=f'{WRITE} cp "$(dirname "$0")/export.sqlite" "$out"')
    write_export(tmp_path / "bin/export.sqlite", kernels=[{}])
    later(report, tmp_path / "run.sqlite")
    assert (tmp_path / "run.sqlite").is_file()
    monkeypatch.setattr(Places, "here", lambda: places(tmp_path / "empty"))
    with pytest.raises(NsysMissing):
        exporter(None)(report, tmp_path / "run.sqlite")


def test_missing_libraries_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = r"printf '\tlibdw.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n'"
    script(tmp_path / "bin/ldd", f'[ "$LD_LIBRARY_PATH" = "{tmp_path}" ] || {missing}')
    real_elf(tmp_path / "host-linux-x64/QdstrmImporter")
    program = real_elf(tmp_path / "target-linux-x64/nsys")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert importer_problem(an_nsys(program)) == ImporterProblem(
        text="its importer lacks libraries: libdw.so.1", libraries=("libdw.so.1",)
    )
    assert importer_problem(an_nsys(program, library_path=tmp_path)) is None
    launcher = an_nsys(script(tmp_path / "nsys", f'exec {program} "$@"'))
    assert importer_problem(launcher) is None
    shutil.rmtree(tmp_path / "host-linux-x64")
    assert importer_problem(launcher) is not None


@pytest.mark.parametrize("ranges", [(RANGE,), ("step", RANGE), ("step",)])
def test_ranges_are_recorded_if_the_trials_is(ranges: tuple[str, ...], tmp_path: Path) -> None:
    trial = try_nsys(an_nsys(working(tmp_path / "bin", *ranges)))
    assert (trial.problem, trial.ranges) == (None, RANGE in ranges)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("echo 'The importer was not found.'; exit 1", "ended with 1 .*importer was not found"),
        ("exit 0", "ended with 0 and no report; nsys said: nothing"),
        ('[ $1 = profile ] && touch "${2#--output=}.nsys-rep"', "ended with 1 and said: nothing"),
        (r"printf '[1/1] [=12%% ] r\r[1/1] [=98%% ] r\nNo space\n'; exit 1", "said: No space$"),
    ],
    ids=["fails", "records nothing", "exports nothing", "draws bars"],
)
def test_a_failed_trial_quotes_nsys(body: str, problem: str, tmp_path: Path) -> None:
    found = try_nsys(an_nsys(script(tmp_path / "nsys", body))).problem
    assert re.search(problem, found or "")


def test_nsys_says_whether_it_may_sample(tmp_path: Path) -> None:
    environment = "CPU Profiling Environment"
    for said, may in (
        (f"{environment} (process-tree): OK\nEnvironment (system-wide): Fail", True),
        (f"{environment} (process-tree): Fail", False),
        ("something new", None),
    ):
        assert may_sample(an_nsys(script(tmp_path / "nsys", f"echo '{said}'"))) is may


def test_a_real_nsys_passes_the_trial_and_says_what_it_can() -> None:
    nsys = real_nsys()
    assert importer_problem(nsys) is None
    assert try_nsys(nsys) == Trial(ranges=True)  # with the nvtx that the tests install
    assert may_sample(nsys) is not None
    assert {"--output", "--trace", "--sample", "--cuda-graph-trace", "--type"} <= nsys.options
    assert {"--gpu-metrics-device", "--gpu-metrics-devices"} & nsys.options


BARS: Final = (
    b"\r[1/1] [0%                          ] a.nsys-rep"
    b"\r[1/1] [=====28%                    ] a.nsys-rep"
    b"\r[1/1] [========================100%] a.nsys-rep\n"
)
NSYS: Final = (
    b"Collecting data...\n"
    b"Generating 'nsys-report-474f.qdstrm'\n" + BARS + b"Generated:\n    /runs/my run/a.nsys-rep\n"
)
"""What nsys 2023.4 prints in a run (2026-11-25)."""

PROGRAM: Final = (
    b"Collecting data from 8 workers\nGenerating 'a cat' ...\n[1/10] epoch\n[INFO] 50% done\n"
    b"\r 10%|#   | 1/10\r 20%|##  | 2/10\n    indented.nsys-rep\nGenerated: 3\nwindows\r\n"
    b"WARNING: CPU sampling is not supported.\n[\n\xff\n"
)
"""What looks a little like it, and warnings of nsys."""


def shown(*chunks: bytes) -> bytes:
    output = ProgramOutput()
    return b"".join(output.feed(chunk) for chunk in chunks) + output.end()


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_progress_goes_and_every_other_byte_stays(size: int) -> None:
    printed = PROGRAM + NSYS + PROGRAM
    chunks = [printed[at : at + size] for at in range(0, len(printed), size)]
    assert shown(*chunks) == PROGRAM + PROGRAM
    assert shown(*chunks, b"[1/1] [=5") == PROGRAM + PROGRAM + b"[1/1] [=5"


@pytest.mark.parametrize("apart", [True, False])
def test_a_line_of_nsys_may_follow_an_unfinished_one_of_the_program(apart: bool) -> None:
    chunks = [b"step 3 ... ", b"Generating 'nsys-report-1.qdstrm'\n"]
    assert shown(*(chunks if apart else [b"".join(chunks)])).rstrip(b"\n") == b"step 3 ... "


@pytest.mark.parametrize(
    "begun", [b"Password: ", b"\r 10%|#  ", b"[1/10] ep", b"> ", b"Collecting dates"]
)
def test_an_unfinished_line_of_the_program_is_shown_at_once(begun: bytes) -> None:
    assert ProgramOutput().feed(b"line\n" + begun) == b"line\n" + begun
