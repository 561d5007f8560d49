"""Change the analysis in one random place at a time, and see whether a test fails.

    python -m tests.mutants --mutants 300 --seed 1

Mutmut finds no test of what is imported through a link, and forks after polars has started threads;
cosmic-ray changes the working tree, draws no samples and deletes nothing.
"""

import ast
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import cache_from_source
from itertools import islice
from pathlib import Path
from queue import Queue
from shutil import copytree, ignore_patterns
from subprocess import PIPE, run
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from tests.reports import ROOT

FOLDERS: Final = ("idle", "phases", "replay", "frames")
PAIRS: Final = (
    "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, And Or, BitAnd BitOr, Add Sub, Mult Div,"
    "FloorDiv Mod, min max, min_horizontal max_horizontal, cum_min cum_max, any all, first last,"
    "any_horizontal all_horizontal, head tail, left right, semi anti, forward backward"
)
ORDERED: Final = [pair.split() for pair in PAIRS.split(",")]
OTHER: Final = {one: two for pair in ORDERED for one, two in (pair, reversed(pair))}
UNCHANGED: Final = ("annotation", "returns", "decorator_list")
UNSEEN: Final = ("check_sortedness",)  # polars is asked to check what is so
KEYWORDS: Final = ("closed", "side", "keep", "how", "strategy")
ORACLE: Final = "tests/analysis/test_oracle_agrees.py"
SLICED: Final = "tests/analysis/frames/test_scratch.py"  # what runs only where memory is short
MEMORY_BYTES: Final = 16 << 30  # of addresses; the tests take 4 GB


def places(parent: ast.AST, line: int = 0) -> Iterator[tuple[int, ast.AST, Callable[..., None]]]:
    """Each node below that may change: its line, and what puts another one there."""
    for name, value in ast.iter_fields(parent):
        many = value if isinstance(value, list) else [value]
        for index, node in enumerate(many if name not in UNCHANGED else ()):
            if isinstance(node, ast.AST) and getattr(node, "arg", None) not in UNSEEN:
                at = getattr(node, "lineno", line)
                in_list, in_node = partial(many.__setitem__, index), partial(setattr, parent, name)
                yield at, node, in_list if many is value else in_node
                yield from places(node, at)


def changed(node: ast.AST) -> ast.AST | None:
    """What a mutant has in place of this node; None if it is to stay."""
    other: ast.AST | None = None
    match node:
        case ast.cmpop() | ast.boolop() | ast.operator() if type(node).__name__ in OTHER:
            other = getattr(ast, OTHER[type(node).__name__])()
        case ast.UnaryOp(operand=operand):
            other = operand
        case ast.Constant(bool() as flag):
            other = ast.Constant(not flag)
        case ast.Constant(int() as number):
            other = ast.Constant(number + 1)
        case ast.Attribute(value, name, context) if name in OTHER:
            other = ast.Attribute(value, OTHER[name], context)
        case ast.Name("min" | "max" | "any" | "all" as name, context):
            other = ast.Name(OTHER[name], context)
        case ast.keyword(name, ast.Constant(str() as word)) if name in KEYWORDS and word in OTHER:
            other = ast.keyword(name, ast.Constant(OTHER[word]))
        case ast.Assign([ast.Name(name)], value):  # without it, the name keeps its earlier value
            names = [each.id for each in ast.walk(value) if isinstance(each, ast.Name)]
            other = ast.Pass() if name in names else None
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            other = ast.Pass()
    return other


def mutants_of(file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Every mutant of a file: where it is changed and how, and its text."""
    tree = ast.parse(file.read_text())
    original = ast.unparse(tree)
    for line, node, put in list(places(tree)):
        if other := changed(node):
            put(other)
            text = ast.unparse(tree)
            put(node)
            same = next(at for at, letter in enumerate(text) if not original.startswith(letter, at))
            before, after = (whole[max(same - 40, 0) : same + 40] for whole in (original, text))
            path = str(file.relative_to(ROOT))
            yield {"file": path, "line": line, "before": before, "after": after}, text


def tests_of(path: str) -> Iterator[tuple[int, list[str]]]:
    """What may notice a change of a file, the likeliest first, each with a limit of CPU seconds."""
    folder, name = Path("tests", path).parent, f"test_{Path(path).name}"
    late = {Path(SLICED).name} - {name}
    own = [file.name for file in (ROOT / folder).glob("test_*.py") if file.name not in late]
    own.sort(key=lambda each: (each != name, each))
    yield 150, [f"{folder}/{each}" for each in own]
    yield 450, [ORACLE, SLICED, "-k", "random or graph-level or slices"]
    yield 900, [ORACLE, "-k", "real_report"]
    yield 1800, ["tests/analysis", "tests/oracle", f"--ignore={ORACLE}"]


def first_failure(project: Path, limit_s: int, tests: list[str]) -> str | None:
    """The first test that fails; how pytest ended if no test is named."""
    # a mutant may loop or wait for ever, or ask for all the memory
    limits = ["timeout", f"{20 * limit_s}", "prlimit", f"--cpu={limit_s}", f"--as={MEMORY_BYTES}"]
    pytest = ["-m", "pytest", "-x", "-n0", "-rfE", "--tb=no", "--hypothesis-profile=mutants"]
    argv = [*limits, sys.executable, *pytest, *tests]
    environment = {**os.environ, "PYTHONPATH": str(project), "POLARS_MAX_THREADS": "1"}
    done = run(argv, cwd=project, env=environment, text=True, stdout=PIPE, check=False)
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    ended = failed[1] if failed else f"exit {done.returncode}"
    return ended if done.returncode else None


@cache
def passes(project: Path, limit_s: int, test: str) -> bool:
    """Whether a test passes without any change; asked once, as a test kills many mutants."""
    return first_failure(project, limit_s, [test]) is None


def write(file: Path, text: str) -> None:
    """Write a source; its bytecode would be taken for current if second and size were the same."""
    Path(cache_from_source(str(file))).unlink(missing_ok=True)
    file.write_text(text)


def killer(project: Path, path: str, text: str, stages: int) -> str | None:
    """The first test that fails if the file has this text, and not as it is."""
    file, original = project / path, (ROOT / path).read_text()
    for limit_s, tests in islice(tests_of(path), stages):
        write(file, text)
        failed = first_failure(project, limit_s, tests)
        write(file, original)
        if failed and "tests/" in failed and not passes(project, limit_s, failed):
            raise click.ClickException(f"fails without any change, too: {failed}")
        if failed:
            return failed
    return None


@click.command()
@click.option("--mutants", "count", default=300, show_default=True, help="How many to draw.")
@click.option("--seed", default=1, show_default=True, help="Draws the same ones again.")
@click.option("--stages", default=4, show_default=True, help="The last two take minutes each.")
@click.option("--results", default="mutants.json", show_default=True, help="Goes on from these.")
def main(count: int, seed: int, stages: int, results: str) -> None:
    """Test random mutants, and list those that no test noticed."""
    files = [file for each in FOLDERS for file in sorted((ROOT / "analysis" / each).glob("*.py"))]
    mutants = [mutant for file in files for mutant in mutants_of(file)]
    random.Random(seed).shuffle(mutants)
    written = Path(results)
    rows = json.loads(written.read_text()) if written.exists() else []
    jobs = os.cpu_count() or 1
    with TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        projects: Queue[Path] = Queue()
        for number in range(jobs):
            projects.put(Path(folder, str(number)))

        def tested(mutant: tuple[dict[str, Any], str]) -> dict[str, Any]:
            (row, text), project = mutant, projects.get()
            if not project.exists():
                copytree(ROOT, project, symlinks=True, ignore=ignore_patterns(".*", "__pycache__"))
            row["killed_by"] = killer(project, row["file"], text, stages)
            projects.put(project)
            return row

        for row in pool.map(tested, mutants[len(rows) : count]):
            rows.append(row)
            written.write_text(json.dumps(rows, indent=1))
            click.echo("{file}:{line} {killed_by}".format_map(row), err=True)
    survivors = [row for row in rows if row["killed_by"] is None]
    for row in survivors:
        click.echo("{file}:{line}\n- {before}\n+ {after}\n".format_map(row))
    click.echo(f"{1 - len(survivors) / len(rows):.1%} of {len(rows)} mutants were noticed")


if __name__ == "__main__":
    main()
