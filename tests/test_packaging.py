"""The installed package contains what the repository has; each shipped report is listed."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

import nsysflow
from nsysflow.catalog.catalog import workloads
from tests.reports import SAMPLES

ROOT = Path(__file__).parent.parent
LINKED = ("analysis", "kernels", "workloads", "samples")
SAMPLE = "nsysflow/samples/nan_check-sync.sqlite.xz"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
CORE_MAX_BYTES = 300e6
"""The disk space that the core and its dependencies may take: 240 MB in 2026-11, mostly polars."""

ELSEWHERE = re.compile(
    r"(?<![\w.])/(?:work|tmp|root)/|pythonhosted\.|pypi\.org|\.debian\.org|npmjs\."
)
"""Folders of one machine, and registries' hosts."""


def run(*argv: str | Path, cwd: Path) -> str:
    """Stdout of a command that must succeed; a failure shows all its output."""
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: setuptools leaves build/ and an egg-info beside its source."""
    source = tmp_path_factory.mktemp("source") / "nsysflow"
    shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(".*", "build"))
    run(*PIP, "wheel", "--no-deps", "--wheel-dir", source.parent, source, cwd=source.parent)
    (built,) = source.parent.glob("*.whl")
    return built


@pytest.mark.parametrize("name", LINKED)
def test_the_package_reaches_each_root_folder_through_a_link(name: str) -> None:
    link = ROOT / "nsysflow" / name
    assert link.is_symlink(), f"{link} is not a link; `make links` restores it"
    assert link.readlink() == Path("..", name)


@pytest.mark.long
def test_the_wheel_holds_every_package_and_data_file_under_one_import_name(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    # rglob does not follow links, so each linked folder is walked by its own name
    wanted = {
        path.relative_to(ROOT).as_posix()
        for folder in ("", *LINKED)
        for kind in ("*.toml", "*.css", "*.js", "skill.md", "py.typed", "*.xz", "*.py")
        for path in (ROOT / "nsysflow" / folder).rglob(kind)
    }
    assert wanted <= held, f"not in the wheel: {sorted(wanted - held)}"
    assert {SAMPLE, "nsysflow/py.typed"} <= wanted
    assert any(name.startswith("nsysflow/analysis/") and name.endswith(".toml") for name in wanted)
    tops = {name.split("/", 1)[0] for name in held}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"nsysflow"}


@pytest.mark.long
def test_the_wheel_alone_in_an_empty_venv_analyses_the_sample(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    run(*PIP, "--python", home / "bin" / "python", "install", wheel, cwd=tmp_path)
    assert "analyze" in run(home / "bin" / "nsysflow", "-h", cwd=tmp_path)
    assert "nan_check.py:125 in check" in run(home / "bin" / "nsysflow", "demo", cwd=tmp_path)

    size = sum(path.lstat().st_size for path in home.rglob("*") if path.is_file())
    assert size <= CORE_MAX_BYTES, f"the core takes {size / 1e6:.0f} MB"


@pytest.mark.parametrize(
    ("code", "others"),
    [
        ("import nsysflow", {"polars", "torch", "rich", "click"}),
        ("import nsysflow.cli.main", {"dataclasses", "nsysflow.cli.analyze", "polars", "rich"}),
        (
            "from tests.cli.running import COMMANDS",
            {"torch", "triton", "polars", "numpy", "pandas", "rich"},
        ),
        (
            "import nsysflow.runs.files",  # writes the tables
            {"nsysflow.report.html.page", "nsysflow.report.perfetto.trace", "matplotlib"},
        ),
        (
            "from nsysflow import region, steps\nwith region('a'): list(steps(range(12)))",
            {"polars", "torch", "nvtx", "numpy", "click"},
        ),
        (
            "from nsysflow.catalog import kernels, workloads; kernels(); workloads()",
            {"polars", "torch", "click", "nsysflow.kernels", "nsysflow.workloads"},
        ),
        ("from nsysflow.report.explain.names import names_by_kind; names_by_kind()", {"polars"}),
    ],
)
def test_what_starts_fast_imports_nothing_for_other_work(code: str, others: set[str]) -> None:
    asked = f"import sys\n{code}\nprint(*sorted({others} & set(sys.modules)))"
    assert run(sys.executable, "-c", asked, cwd=ROOT).strip() == ""


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git which files are tracked")
def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    listed = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    named = []
    for path in (ROOT / name for name in listed if name):
        if path.is_symlink() or not path.is_file() or path.suffix in (".xz", ".gz", ".png"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if ELSEWHERE.search(line):
                named.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not named, "\n".join(named)


def test_the_page_of_tables_is_what_the_schemas_say() -> None:
    made = runpy.run_path(os.fspath(ROOT / "docs" / "make_docs.py"))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), "run `make docs`"


def test_all_that_name_a_version_name_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    latest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert cited is not None
    assert latest is not None
    assert {nsysflow.__version__, cited[1], latest[1]} == {project["version"]}


COMPATIBILITY: Final = runpy.run_path(os.fspath(ROOT / "docs" / "make_compatibility.py"))


@pytest.mark.long
def test_the_page_of_compatibility_is_what_our_reports_say() -> None:
    made = COMPATIBILITY["page"]()
    assert COMPATIBILITY["PAGE"].read_text(encoding="utf-8") == made, "run `make docs`"


def test_every_test_that_a_set_up_names_is_there() -> None:
    named = [test for setup in COMPATIBILITY["known"]().setups for test in setup.tested_by]
    assert len(named) > 5
    for file, _, test in (name.partition("::") for name in named):
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8"), test


def test_what_differs_between_two_builds_is_named(tmp_path: Path) -> None:
    release = runpy.run_path(os.fspath(ROOT / "release" / "make_release.py"))
    one, other = tmp_path / "one.whl", tmp_path / "other.whl"
    for file, text in ((one, "a"), (other, "b")):
        with zipfile.ZipFile(file, "w") as wheel:
            wheel.writestr("same.py", "same")
            wheel.writestr("made.py", text)
    assert release["differing"](one, other) == ["made.py"]
    assert release["differing"](one, one) == ["order, times or modes of its members"]


README: Final = (SAMPLES / "README.md").read_text(encoding="utf-8")
ROWS: Final = dict(
    re.findall(r"^\| `([^`]+)` \| `nsysflow profile ([^`]+)` \|", README, re.MULTILINE)
)
"""The command of each report in `samples/README.md`."""

SAMPLE_MAX_BYTES: Final = 300_000
SAMPLES_BY_NAME: Final = {
    sample.name.removesuffix(".sqlite.xz"): sample for sample in SAMPLES.glob("*.xz")
}


def test_each_sample_is_listed_small_and_called_after_its_workload_and_variant() -> None:
    assert ROWS.keys() == SAMPLES_BY_NAME.keys()
    variants = {one.name: {variant.name for variant in one.variants} for one in workloads()}
    for name, sample in SAMPLES_BY_NAME.items():
        workload, *words = ROWS[name].split()
        variant = words[words.index("--variant") + 1]
        assert variant in variants[workload], name
        assert re.fullmatch(rf"{workload}-{variant}(-\w+)*", name)
        assert sample.stat().st_size <= SAMPLE_MAX_BYTES, name
