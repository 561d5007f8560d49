"""Exports are complete or missing, and an error quotes nsys."""

import os
from pathlib import Path

import pytest

from nsysflow.base.errors import CaptureError, Damaged, NsysMissing, OutputError
from nsysflow.nsys import export, exporter
from tests.exports import write_export
from tests.nsys.fakes import an_nsys, fake_nsys, script
from tests.unprivileged import unprivileged

WRITE = 'for option in "$@"; do case $option in --output=*) out=${option#--output=};; esac; done\n'


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"what nsys recorded")
    return path


def exporting(folder: Path, body: str = "") -> Path:
    """A program that exports the `export.sqlite` beside it, then runs `body`."""
    folder.mkdir()
    write_export(folder / "export.sqlite", kernels=[{}])
    copy = f'cp "{folder}/export.sqlite" "$out"'
    return script(folder / "nsys", f"{WRITE}{copy}\n{body}")


def test_an_export_replaces_what_was_there_and_leaves_nothing_else(
    report: Path, tmp_path: Path
) -> None:
    nsys = exporting(tmp_path / "bin")
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
def test_a_failed_export_is_an_error_and_leaves_nothing(
    body: str, said: str, report: Path, tmp_path: Path
) -> None:
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
def test_a_full_disk_is_named_even_if_nsys_exits_with_0_and_a_file(
    said: str, code: int, report: Path, tmp_path: Path
) -> None:
    nsys = exporting(tmp_path / "bin", f"echo '{said}' >&2; exit {code}")
    out = tmp_path / "run.sqlite"
    with pytest.raises(OutputError, match=r"no space is left in .* MB free.* Make room:\n  df -h"):
        export(an_nsys(nsys), report, out)
    assert not out.exists()


def test_an_nsys_that_does_not_start_is_an_error(report: Path, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="does not start: No such file"):
        export(an_nsys(tmp_path / "gone"), report, tmp_path / "run.sqlite")


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with unprivileged() as folder:
        report = folder / "run.nsys-rep"
        report.touch()
        folder.chmod(0o500)
        with pytest.raises(OutputError, match=r"cannot be written \(Permission denied\)"):
            export(an_nsys(Path("nsys")), report, folder / "run.sqlite")


def test_json_is_exported_if_this_nsys_can(report: Path, tmp_path: Path) -> None:
    nsys = exporting(tmp_path / "bin", f'echo "$*" > {tmp_path}/said')
    out = tmp_path / "run.sqlite"
    export(an_nsys(nsys), report, out, json=True)
    assert "--include-json=true" in (tmp_path / "said").read_text()
    export(an_nsys(nsys, "--quiet"), report, out, json=True)
    assert "--include-json" not in (tmp_path / "said").read_text()


def test_nsys_gets_the_libraries_for_its_importer(report: Path, tmp_path: Path) -> None:
    nsys = exporting(tmp_path / "bin", f'echo "$LD_LIBRARY_PATH" > {tmp_path}/said')
    export(an_nsys(nsys, library_path=tmp_path / "lib"), report, tmp_path / "run.sqlite")
    said = (tmp_path / "said").read_text().strip()
    assert said.split(os.pathsep)[0] == str(tmp_path / "lib")


def test_an_exporter_looks_for_nsys_when_it_is_called(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = exporter(tmp_path / "bin/nsys")
    with pytest.raises(CaptureError):
        later(report, tmp_path / "run.sqlite")
    copy = f'{WRITE} cp "$(dirname "$0")/export.sqlite" "$out"'
    fake_nsys(tmp_path / "bin/nsys", body=copy)
    write_export(tmp_path / "bin/export.sqlite", kernels=[{}])
    later(report, tmp_path / "run.sqlite")
    assert (tmp_path / "run.sqlite").is_file()


def test_without_an_nsys_an_exporter_says_so(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(asked: Path | None) -> None:
        msg = "no nsys was found"
        raise NsysMissing(msg)

    monkeypatch.setattr("nsysflow.nsys.run.find", nowhere)
    with pytest.raises(NsysMissing):
        exporter(None)(report, tmp_path / "run.sqlite")
