"""docs/design.md says where things are."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", ["nsysflow", "analysis", "kernels", "workloads"])
def test_every_module_is_in_the_tree(folder: str) -> None:
    modules = {path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*.py")}
    assert modules
    told = {
        module
        for module in modules
        if module.name == "__init__.py"
        or f"`{module.name}`" in DESIGN
        or f"/{module.name}`" in DESIGN
        or any(f"`{folder.name}/`" in DESIGN for folder in module.parents)
    }
    assert modules - told == set()
