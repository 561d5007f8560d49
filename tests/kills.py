"""Kill nsysflow at random instants, and see that nothing is lost.

    python -m tests.kills --kills 200 --seed 1

Each kill is a SIGKILL somewhere in a command that writes; `TASKS` has one of each kind. Afterwards
each file is whole, as it was or new, and the report is untouched. The next run gives what a run
gives that nobody killed, and no scratch file stays: neither where it writes, nor where temporary
files go, nor in the cache.
"""

import lzma
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from nsysflow.runs.cache import VARIABLE, unpacked
from tests.record.fake import fake_nsys
from tests.reports import ROOT, sqlite_report

PROGRAM: Final = (
    "import nsysflow.cli.answers; nsysflow.cli.answers.WORTH_S = 0; "
    "from nsysflow.cli.main import main; main()"
)
"""The command line, with a cache that keeps answers on small reports, too."""


_WHILE_WRITING: Final = 0.5
"""Most of a run is reading; so many of the kills wait until there is a scratch file."""

_WRITING_S: Final = 0.2
_LOOKS_EVERY_S: Final = 0.002


@dataclass(frozen=True)
class Task:
    """A command to kill.

    Attributes:
        words: the command line; `{report}` is the report, beside which lie a compressed one and
            what nsys recorded; `{other}` is one more.
        over: whether the same command wrote another report's files there before.
        keeps: whether the answers are to be kept anew each time.
    """

    words: str
    over: bool = False
    keeps: bool = False


TASKS: Final = {
    "folder": Task("analyze {report} -o out"),
    "page": Task("analyze {report} -o out --html", over=True),
    "gaps": Task("analyze {report} --gaps-csv gaps.csv", over=True),
    "SARIF": Task("analyze {report} --no-files --sarif out.sarif", over=True),
    "Perfetto": Task("analyze {report} --no-files --perfetto out.pftrace", over=True),
    "figures": Task("analyze {report} --no-files --figures figures", over=True),
    "comparison": Task("diff {report} {other} --html diff.html", over=True),
    "baseline": Task("check {report} --baseline base.json --update-baseline", over=True),
    "pack": Task("pack {report} -o out.sqlite.xz", over=True),
    "unpacked": Task("analyze {report}.xz -o out"),
    "exported": Task("analyze {report}.nsys-rep -o out"),
    "cache": Task("analyze {report} -o out", keeps=True),
    "from disk": Task("analyze {report} -o out --low-memory"),
}
"""By what each writes."""


class Place:
    """A folder in which a task is killed, with all that it reads and writes."""

    def __init__(self, folder: Path, task: Task) -> None:
        """Run the task undisturbed, to know what it writes and how long it takes."""
        self._task = task
        self._written, self._tmp, self._cache = (folder / name for name in ("w", "tmp", "cache"))
        for each in (self._written, self._tmp, self._cache):
            each.mkdir()
        self._report = sqlite_report(folder, "nan_check-sync")
        self._other = sqlite_report(folder, "nan_check-async")
        for report in (self._report, self._other):
            Path(f"{report}.xz").write_bytes(lzma.compress(report.read_bytes(), preset=0))
            Path(f"{report}.nsys-rep").write_text("recorded")
        self._nsys = fake_nsys(folder)
        self._inputs = {file: _checksum(file) for file in folder.glob("*.sqlite*")}
        begin_s = time.monotonic()
        self._finish(self._report)
        self._seconds = time.monotonic() - begin_s
        self._new = self._found()
        shutil.rmtree(self._written)
        self._written.mkdir()
        if task.over:
            self._finish(self._other)
        self._old = self._found()
        self._as_before = folder / "before"
        shutil.copytree(self._written, self._as_before)

    def kill(self, draw: random.Random) -> None:
        """Kill the task at a random instant, and look at what is there."""
        while not self._killed(draw):
            self._seconds *= 0.9  # it is faster now than when its time was taken
            self.go_on()
        for name, checksum in self._found().items():
            whole = (self._old.get(name), self._new.get(name))
            assert checksum in whole, f"{name} is neither as it was nor new"
        for file in self._cache.glob("*.kept"):
            unpacked(file.read_bytes())
        self._check_inputs()

    def go_on(self) -> None:
        """Run the task to its end, look at what is there, and put back what was there before."""
        self._finish(self._report)
        assert self._found() == self._new, "the next run wrote something else"
        assert not self._scratch(), f"left behind: {self._scratch()}"
        self._check_inputs()
        shutil.rmtree(self._written)
        shutil.copytree(self._as_before, self._written)

    def _scratch(self) -> list[Path]:
        """What no run may leave."""
        while True:
            try:
                return [*self._written.rglob(".*"), *self._cache.glob(".*"), *self._tmp.iterdir()]
            except FileNotFoundError:  # a folder that went meanwhile
                continue

    def _killed(self, draw: random.Random) -> bool:
        """Kill the task, every other time while it writes; whether that was before it had ended."""
        if self._task.keeps:
            for file in self._cache.glob("*.kept"):
                file.unlink()
        with self._started(self._report) as running:
            if draw.random() < _WHILE_WRITING:
                while running.poll() is None and not self._scratch():
                    time.sleep(_LOOKS_EVERY_S)
                time.sleep(draw.random() * _WRITING_S)
            else:
                time.sleep(draw.random() * self._seconds)
            running.kill()
        return running.returncode != 0

    def _started(self, report: Path) -> subprocess.Popen[str]:
        folders = {"TMPDIR": self._tmp, VARIABLE: self._cache, "PYTHONPATH": ROOT}
        variables = folders | {"NSYSFLOW_NSYS": self._nsys}
        words = self._task.words.format(report=f"../{report.name}", other=f"../{self._other.name}")
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words.split()],
            cwd=self._written,
            env=os.environ | {name: str(folder) for name, folder in variables.items()},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _finish(self, report: Path) -> None:
        running = self._started(report)
        said, _ = running.communicate()
        assert running.returncode == 0, said

    def _found(self) -> Mapping[str, str]:
        """The checksum of each file that the task wrote, by its path; without scratch files."""
        files = (each for each in self._written.rglob("*") if each.is_file())
        paths = {file.relative_to(self._written): file for file in files}
        scratch = [path for path in paths if any(part.startswith(".") for part in path.parts)]
        return {str(path): _checksum(paths[path]) for path in paths.keys() - scratch}

    def _check_inputs(self) -> None:
        for file, checksum in self._inputs.items():
            assert _checksum(file) == checksum, f"{file} was changed"


def _checksum(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


@click.command()
@click.option("--kills", default=200, show_default=True, help="How many, shared by the commands.")
@click.option("--seed", default=None, type=int, help="Draws the same instants again.")
def main(kills: int, seed: int | None) -> None:
    """Kill each command at random instants; stop at the first harm."""
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}")
    draw = random.Random(seed)
    for name, task in TASKS.items():
        with TemporaryDirectory(prefix="kills-") as folder:
            place = Place(Path(folder), task)
            for _ in range(kills // len(TASKS)):
                place.kill(draw)
                place.go_on()
        click.echo(f"{name}: {kills // len(TASKS)} kills, no harm")


if __name__ == "__main__":
    main()
