"""Make the files of a release in dist/, check them, and try them. Nothing is uploaded.

`make release` runs it. The tools are those of the extra `release`; each failure ends it with their
own message. dist/ then holds the wheel, the sdist, the list of components (SBOM) and the licences
of all dependencies.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tarfile import TarFile
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
SAMPLE: Final = "samples/nan_check-sync.sqlite.xz"
SKIPPABLE: Final = ("audit",)
"""Checks that need more than a package index."""

LICENCES: Final = (
    *("Apache Software License", "Apache-2.0", "BSD License", "BSD-2-Clause", "BSD-3-Clause"),
    *("MIT", "MIT License", "PSF-2.0", "Python Software Foundation License"),
)
"""What a dependency may be under, as packages name it: nothing that binds what uses it."""


def main() -> None:
    """Make a release of the last commit."""
    parser = argparse.ArgumentParser(description="Make and try a release in dist/")
    parser.add_argument("--skip", action="append", default=[], choices=SKIPPABLE)
    skipped = parser.parse_args().skip
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = str(project["version"])
    require_commit()
    with TemporaryDirectory(prefix="nsysflow-release-") as folder:
        work = Path(folder)
        built = build_twice(work)
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(built, DIST)
        say("twine check", run(sys.executable, "-m", "twine", "check", "--strict", *files(DIST)))
        python = install(next(DIST.glob("*.whl")), work / "venv")
        try_it(python, work)
        audit(python, work, skip="audit" in skipped)
        licences(python, DIST / f"nsysflow-{version}-licences.md")
        components(python, DIST / f"nsysflow-{version}.cdx.json")
    end(version, skipped)


def say(what: str, found: str) -> None:
    """Print a check and what it found."""
    text = found.strip("\n")
    sys.stdout.write(f"\n== {what}\n{text}\n")
    sys.stdout.flush()


def run(*argv: str | Path, folder: Path = ROOT, only: dict[str, str] | None = None) -> str:
    """The output of a program that must succeed; otherwise the release ends with it.

    Args:
        argv: the program and its arguments.
        folder: where it runs.
        only: all variables of its environment, instead of ours.
    """
    done = subprocess.run(
        argv, cwd=folder, env=only, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        name = " ".join(str(word) for word in argv[:4])
        sys.exit(f"{done.stdout}\nrelease: failed (exit {done.returncode}): {name} …")
    return done.stdout


def files(folder: Path) -> list[Path]:
    """The files of a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.is_file())


def require_commit() -> None:
    """End where files differ from the last commit, which is what is built."""
    changed = run("git", "status", "--porcelain")
    if changed:
        sys.exit(f"{changed}release: these files are not committed; commit or remove them")


def build_twice(work: Path) -> Path:
    """The folder with wheel and sdist of the last commit. Both are built twice, from copies in
    different folders, and must be the same bytes."""
    seconds = run("git", "log", "-1", "--format=%ct").strip()
    builds = []
    for name in ("first", "second"):
        source, out = work / name / "source", work / name / "dist"
        source.mkdir(parents=True)
        packed = work / f"{name}.tar"
        run("git", "archive", "--output", packed, "HEAD")
        with TarFile(packed) as archive:
            archive.extractall(source, filter="tar")
        only = {**os.environ, "SOURCE_DATE_EPOCH": seconds}
        run(sys.executable, "-m", "build", "--outdir", out, source, only=only)
        date_members(next(out.glob("*.tar.gz")), int(seconds))
        builds.append(out)
    require_equal(*builds)
    return builds[0]


def date_members(sdist: Path, seconds: int) -> None:
    """Give all that is in an sdist one date and no owner: setuptools heeds SOURCE_DATE_EPOCH in
    wheels alone, and writes here when and by whom it was built."""
    with TarFile.open(sdist) as archive:
        read = ((each, archive.extractfile(each)) for each in archive)
        held = [(each, b"" if file is None else file.read()) for each, file in read]
    with (
        gzip.GzipFile(sdist, "wb", mtime=seconds) as packed,
        TarFile(fileobj=packed, mode="w") as new,
    ):
        for member, content in sorted(held, key=lambda each: each[0].name):
            member.mtime, member.uid, member.gid = seconds, 0, 0
            member.uname, member.gname, member.pax_headers = "", "", {}
            new.addfile(member, io.BytesIO(content))


def require_equal(first: Path, second: Path) -> None:
    """End where two builds differ, with the members that do."""
    names = [path.name for path in files(first)]
    lines = []
    for name in names:
        one, other = (folder / name for folder in (first, second))
        if one.read_bytes() != other.read_bytes():
            sys.exit(f"release: two builds of {name} differ: {', '.join(differing(one, other))}")
        digest = hashlib.sha256(one.read_bytes()).hexdigest()
        lines.append(f"{name}: {one.stat().st_size:,} bytes, twice the same, sha256 {digest}")
    if names != [path.name for path in files(second)]:
        sys.exit(f"release: two builds made other files: {names}")
    say("built twice", "\n".join(lines))


def differing(one: Path, other: Path) -> list[str]:
    """The members of two archives that are not alike; "order, times or modes" if all are."""
    first, second = members(one), members(other)
    changed = [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]
    return changed or ["order, times or modes of its members"]


def members(archive: Path) -> dict[str, bytes]:
    """The content of each file in a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with TarFile.open(archive) as sdist:
        opened = ((each.name, sdist.extractfile(each)) for each in sdist if each.isfile())
        return {name: file.read() for name, file in opened if file is not None}


def install(wheel: Path, home: Path) -> Path:
    """The Python of a new environment that holds the wheel, and what it needs."""
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel)
    return python


def try_it(python: Path, work: Path) -> None:
    """Use what was installed as its user would, in an empty home, without our variables."""
    home = work / "home"
    home.mkdir()
    only = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8"}
    code = "import importlib.util as u, nsysflow; print(u.find_spec('torch'), nsysflow.__path__[0])"
    torch, package = run(python, "-c", code, folder=home, only=only).split(maxsplit=1)
    if torch != "None":
        sys.exit("release: torch came with the wheel, and the core must do without it")
    command = python.with_name("nsysflow")
    demo = run(command, "demo", folder=home, only=only)
    sample = Path(package.strip()) / SAMPLE
    page = run(command, "analyze", sample, "-o", "out", folder=home, only=only)
    if "nan_check.py:125 in check" not in demo or "nan_check.py:125 in check" not in page:
        sys.exit(f"{demo}\n{page}\nrelease: the first finding of the sample is not what it was")
    wrote = ", ".join(path.name for path in files(home / "out")[:4])
    first = next(line for line in demo.splitlines() if line.strip())
    say(
        "tried in an empty environment without torch",
        f"demo: {first}\nanalyze: wrote {wrote}, …",
    )


def audit(python: Path, work: Path, *, skip: bool) -> None:
    """Ask the database of the package index for known faults of all dependencies."""
    if skip:
        say("pip-audit", "SKIPPED by name: known faults of the dependencies were not looked up")
        return
    pinned = work / "dependencies.txt"
    pip = (sys.executable, "-m", "pip", "--python", python)
    pinned.write_text(run(*pip, "freeze", "--exclude", "nsysflow"), encoding="utf-8")
    argv = ("-m", "pip_audit", "--strict", "--no-deps", "--disable-pip", "-r", pinned)
    done = subprocess.run([sys.executable, *argv], text=True, capture_output=True, check=False)
    if done.returncode:
        why = (done.stdout + done.stderr).strip().splitlines()
        sys.exit(
            "\n".join(why[-20:])
            + "\nrelease: pip-audit found faults, or could not ask its database"
            " (it needs the network). Without it: make release SKIP=audit"
        )
    say("pip-audit", done.stdout + done.stderr)


def licences(python: Path, table: Path) -> None:
    """Write the licence of each dependency; end where one is not in `LICENCES`."""
    argv = (sys.executable, "-m", "piplicenses", "--python", python, "--from=mixed")
    rules = ("--ignore-packages", "nsysflow", "--allow-only", ";".join(LICENCES))
    found = run(*argv, *rules, "--format=markdown", "--with-urls")
    table.write_text(found, encoding="utf-8")
    say("licences", found)


def components(python: Path, document: Path) -> None:
    """Write what the release consists of as CycloneDX JSON; the same bytes every time."""
    argv = ("-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON")
    project = ("--pyproject", ROOT / "pyproject.toml", "-o", document, python)
    run(sys.executable, *argv, *project)
    say("components (SBOM)", f"{document.name}: {document.stat().st_size:,} bytes")


def end(version: str, skipped: Sequence[str]) -> None:
    """Say what is there and what to type next."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    listed = "".join(f"  dist/{path.name}\n" for path in files(DIST))
    first = ""
    if f"## [{version}] - unreleased" in changelog:
        first = (
            f"Write the date of {version} into CHANGELOG.md and CITATION.cff, commit, and make it"
            " again. "
        )
    left_out = f" WITHOUT {', '.join(skipped)}" if skipped else ""
    say(
        f"release {version} is ready{left_out}",
        f"{listed}\n{first}Then type:\n"
        f"  git tag -a v{version} -m 'nsysflow {version}'\n"
        f"  git push origin v{version}\n"
        f"  {Path(sys.executable).parent.relative_to(ROOT)}/twine upload"
        f" dist/nsysflow-{version}*.whl dist/nsysflow-{version}.tar.gz",
    )


if __name__ == "__main__":
    main()
