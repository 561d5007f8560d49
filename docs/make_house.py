"""How the code is laid out, in figures and as a picture: modules, folders, who imports whom.

python docs/make_house.py                     the figures of this tree
python docs/make_house.py --rev REV           those of another commit
python docs/make_house.py --picture FILE      also draw the folders and their imports
python docs/make_house.py --passed            also count the files that `analyze` runs through
"""

import argparse
import ast
import io
import os
import statistics
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

import click

ROOT: Final = Path(__file__).parents[1]
LINKED: Final = ("analysis", "kernels", "workloads")
"""Folders at the root that are imported through links in `nsysflow/`."""

SHIPPED: Final = ("nsysflow", *LINKED)

Arrow = tuple[str, str]
"""Who imports whom: two dotted names of modules, or two folders."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """One file of Python.

    Attributes:
        path: from the root of the repository.
        text: what is in it.
    """

    path: PurePosixPath
    text: str

    @property
    def name(self) -> str:
        """Its dotted name, e.g. `nsysflow.analysis.load.pack`; of `__init__`, its folder's."""
        parts = list(self.path.with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        return ".".join(parts if parts[0] not in LINKED else ["nsysflow", *parts])

    @property
    def folder(self) -> str:
        """The folder that it is in, of two levels at most, e.g. `analysis/load`."""
        return "/".join(self.path.parent.parts[:2])

    @property
    def is_package(self) -> bool:
        """Whether it is the `__init__` of a folder."""
        return self.path.stem == "__init__"

    @property
    def length(self) -> int:
        """Its lines."""
        return len(self.text.splitlines())

    def imports(self, known: Mapping[str, "Module"]) -> Iterator[tuple[str, int]]:
        """The modules among `known` that it names in an import, and how many lines that takes."""
        for node in ast.walk(parsed(self.text)):
            lines = getattr(node, "end_lineno", 0) - getattr(node, "lineno", 0) + 1
            if isinstance(node, ast.Import):
                yield from ((name.name, lines) for name in node.names if name.name in known)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for name in node.names:
                    inner = f"{node.module}.{name.name}"
                    target = inner if inner in known else node.module
                    if target in known:
                        yield target, lines

    def import_lines(self) -> int:
        """How many of its lines are imports, of ours and of others."""
        kinds = (ast.Import, ast.ImportFrom)
        nodes = (node for node in ast.walk(parsed(self.text)) if isinstance(node, kinds))
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)

    def functions(self) -> list[int]:
        """The lines of each of its functions and methods."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = (node for node in ast.walk(parsed(self.text)) if isinstance(node, kinds))
        return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes]


@cache
def parsed(text: str) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(text)


def modules_of(revision: str | None, folders: tuple[str, ...] = SHIPPED) -> list[Module]:
    """All Python files in these folders, of a commit or, with None, as they are on disk."""
    if revision is None:
        command = ["git", "ls-files", "-co", "--exclude-standard", *folders]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = (PurePosixPath(line) for line in listed.stdout.splitlines())
        kept = [path for path in paths if path.suffix == ".py" and (ROOT / path).is_file()]
        return [Module(path=path, text=(ROOT / path).read_text("utf-8")) for path in kept]
    command = ["git", "archive", "--format=tar", revision, *folders]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    modules = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                path = PurePosixPath(member.name)
                modules.append(Module(path=path, text=file.read().decode("utf-8")))
    return modules


def arrows_of(modules: list[Module]) -> set[Arrow]:
    """Who imports whom, also inside functions and for type checkers alone."""
    known = {module.name: module for module in modules}
    return {
        (module.name, target)
        for module in modules
        for target, _ in module.imports(known)
        if target != module.name
    }


def circles(arrows: set[Arrow]) -> list[set[str]]:
    """Groups of modules that import each other, directly or not (Kosaraju's algorithm)."""
    to, back = defaultdict(set), defaultdict(set)
    for source, target in arrows:
        to[source].add(target)
        back[target].add(source)

    def reach(start: str, edges: Mapping[str, set[str]], seen: set[str]) -> list[str]:
        """What is newly reached from `start`, each after all that it leads to."""
        order, stack = [], [(start, iter(edges.get(start, ())))]
        seen.add(start)
        while stack:
            node, following = stack[-1]
            target = next((other for other in following if other not in seen), None)
            if target is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(target)
                stack.append((target, iter(edges.get(target, ()))))
        return order

    seen: set[str] = set()
    order = [node for start in sorted({*to, *back}) if start not in seen
             for node in reach(start, to, seen)]  # fmt: skip
    seen = set()
    groups = [set(reach(node, back, seen)) for node in reversed(order) if node not in seen]
    return [group for group in groups if len(group) > 1]


def figures(modules: list[Module], tests: list[Module]) -> dict[str, str]:
    """The figures of a tree, by what they count."""
    files = [module for module in modules if not module.is_package]
    arrows = arrows_of(modules)
    importers = Counter(target for _, target in arrows)
    tied = circles({arrow for arrow in arrows if not is_within(*arrow)})
    lines = sum(module.length for module in modules)
    functions = [length for module in modules for length in module.functions()]
    return {
        "modules, without __init__": f"{len(files):,}",
        "modules, all": f"{len(modules):,}",
        "folders": f"{len({module.path.parent for module in modules}):,}",
        "lines": f"{lines:,}",
        "imports of one module by another": f"{len(arrows):,}",
        "modules with one importer": f"{sum(importers[file.name] == 1 for file in files):,}",
        "import lines": f"{sum(module.import_lines() for module in modules) / lines:.1%}",
        "median lines of a module": f"{statistics.median(file.length for file in files):g}",
        "longest module": f"{max(file.length for file in files):,}",
        "median lines of a function": f"{statistics.median(functions):g}",
        "functions over 40 lines": f"{share(length > 40 for length in functions):.1%}",
        "modules in circles of imports": f"{sum(map(len, tied)):,}",
        "files of tests": f"{len(tests):,}",
        "lines of tests": f"{sum(test.length for test in tests):,}",
    }


def share(answers: Iterable[bool]) -> float:
    """The share of answers that are yes."""
    return statistics.fmean(map(float, answers))


def is_within(source: str, target: str) -> bool:
    """Whether one of the two is a folder that the other is in: its `__init__` may name what it
    holds."""
    return source.startswith(f"{target}.") or target.startswith(f"{source}.")


def draw(modules: list[Module], file: Path) -> None:
    """Draw the folders by floors: who imports others above them. A box says how many modules and
    lines a folder has; a line is as wide as there are imports."""
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch

    folder_of = {module.name: module.folder for module in modules}
    pairs = [(folder_of[source], folder_of[target]) for source, target in arrows_of(modules)]
    imports = Counter((source, target) for source, target in pairs if source != target)
    floors = floors_of(imports, set(folder_of.values()))
    rows = [sorted(name for name, floor in floors.items() if floor == number)
            for number in range(max(floors.values()) + 1)]  # fmt: skip
    width = max(map(len, rows))
    place = {name: ((index + 0.5) * width / len(row), number)
             for number, row in enumerate(rows) for index, name in enumerate(row)}  # fmt: skip
    figure = Figure(figsize=(2.1 * width, 1.15 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for (source, target), count in imports.items():
        axes.add_patch(
            FancyArrowPatch(
                place[source], place[target], arrowstyle="-|>", mutation_scale=7, shrinkA=14,
                shrinkB=14, linewidth=0.3 + count / 25, color="#3b6ea5", alpha=0.35,
            )
        )  # fmt: skip
    for name, (x, y) in place.items():
        inside = [module for module in modules if module.folder == name and not module.is_package]
        label = f"{name}\n{len(inside)} modules, {sum(module.length for module in inside):,} lines"
        box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "#1f2933"}
        axes.text(x, y, label, ha="center", va="center", fontsize=8, bbox=box)
    axes.set(xlim=(0, width), ylim=(-0.6, len(rows) - 0.4))
    axes.set_axis_off()
    figure.savefig(file, metadata={"Date": None})


def floors_of(imports: Mapping[Arrow, int], folders: set[str]) -> dict[str, int]:
    """The floor of each folder: one above the highest that it imports. Where folders import each
    other in a circle, the one that imports least of the others is lowest."""
    floors: dict[str, int] = {}
    left = set(folders)
    while left:
        needs = {name: sum(imports.get((name, other), 0) for other in left) for name in left}
        lowest = min(left, key=lambda name: (needs[name], name))
        below = [floor for name, floor in floors.items() if imports.get((lowest, name))]
        floors[lowest] = max(below, default=-1) + 1
        left.remove(lowest)
    return floors


PASSED: Final = """
import os, sys, threading
from nsysflow.cli.main import main
files, root = set(), os.getcwd()

def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(root):
        files.add(os.path.realpath(code.co_filename))

threading.setprofile(note)
sys.setprofile(note)
try:
    main(sys.argv[1:], standalone_mode=False)
except SystemExit:
    pass
sys.setprofile(None)
kept = [file for file in files if "/.venv/" not in file and "/tests/" not in file]
print(len(kept), file=sys.stderr)
"""
"""A program that runs a command and counts the files whose functions it called."""


def passed(*words: str) -> int:
    """How many files of ours have functions that a command calls."""
    command = [sys.executable, "-c", PASSED, *words]
    environment = {**os.environ, "NSYSFLOW_CACHE": "off"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stderr.splitlines()[-1])


def main() -> None:
    """Print the figures, and draw the picture if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rev", help="a commit; without it, the files as they are on disk")
    parser.add_argument("--passed", action="store_true", help="also run `analyze` and count files")
    parser.add_argument("--picture", type=Path, help="draw the folders to this SVG file")
    options = parser.parse_args()
    modules = modules_of(options.rev)
    for name, value in figures(modules, modules_of(options.rev, ("tests",))).items():
        click.echo(f"{name:36} {value:>8}")
    if options.passed:
        report = "samples/nan_check-sync.sqlite.xz"
        with TemporaryDirectory() as folder:
            page = passed("analyze", report, "--no-files")
            files = passed("analyze", report, "-o", f"{folder}/out")
        click.echo(f"{'files that a page runs through':36} {page:>8}")
        click.echo(f"{'files that analyze -o runs through':36} {files:>8}")
    if options.picture:
        draw(modules, options.picture)


if __name__ == "__main__":
    main()
