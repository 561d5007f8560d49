"""The runtime keeps to Python 3.9: the program's Python may be older than ours."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import nsysflow.runtime

RUNTIME: Final = Path(nsysflow.runtime.__file__).parent
FILES: Final = sorted(RUNTIME.rglob("*.py"))

NEWER: Final = frozenset(
    {"StrEnum", "Self", "ParamSpec", "TypeAlias", "TypeGuard", "override", "kw_only", "slots"}
    | {"strict", "pairwise", "orig_argv", "aclosing", "chdir", "batched", "NoneType", "UnionType"}
)
"""Names and keywords that 3.9 does not have, of those that one would use here."""


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.alias | ast.keyword):
            yield str(node.name if isinstance(node, ast.alias) else node.arg)
        elif isinstance(node, ast.Attribute):
            yield node.attr


def is_union_of_types(node: ast.AST) -> bool:
    """`A | B` or `A | None`, where `A` and `B` look like classes."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
        return False
    return is_type(node.left) and is_type(node.right)


def is_type(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id[0].isupper() and not node.id.isupper()
    return isinstance(node, ast.Constant) and node.value is None


def evaluated(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes that run; annotations do not where the file postpones them."""
    postponed = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body
    )
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts = [getattr(node, field, None) for field in ("annotation", "returns")]
        for part in parts if postponed else ():
            if part is not None:
                skipped.update(id(inner) for inner in ast.walk(part))
    return (node for node in ast.walk(tree) if id(node) not in skipped)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(RUNTIME)))
def test_a_file_of_the_runtime_uses_nothing_newer_than_python_3_9(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))
    assert NEWER.isdisjoint(names_in(tree))
    assert [ast.unparse(node) for node in evaluated(tree) if is_union_of_types(node)] == []
