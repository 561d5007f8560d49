import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.reports import ROOT

NOTEBOOK = ROOT / "docs" / "library.ipynb"

Cell = dict[str, Any]

_IMAGE: Final = re.compile('data:image/png;base64,[^"]*')


def executed(target: Path) -> list[Cell]:
    """The cells as they are now, run by a process of its own."""
    argv = [sys.executable, str(ROOT / "docs" / "run_notebook.py"), str(target)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return cells(target)


def cells(file: Path) -> list[Cell]:
    found: list[Cell] = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return found


def shown(cell: Cell) -> list[str]:
    """What a cell prints, and what we show: neither frames nor figures, whose looks are those of
    their libraries."""
    found = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        plain = "".join(data.get("text/plain", []))
        if output["output_type"] == "stream":
            found.append("".join(output["text"]))
        elif plain.startswith("<Analysis"):
            found += [plain, _IMAGE.sub("", "".join(data["text/html"]))]
    return found


@pytest.mark.long
def test_the_cells_give_what_is_stored_and_print_no_warning(tmp_path: Path) -> None:
    run, stored = executed(tmp_path / "library.ipynb"), cells(NOTEBOOK)
    assert [each["source"] for each in run] == [each["source"] for each in stored]
    behind = [
        "".join(now["source"])
        for now, then in zip(run, stored, strict=True)
        if shown(now) != shown(then)
    ]
    assert behind == [], "run `python docs/run_notebook.py`"
    outputs = [output for cell in run for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.get("name") == "stderr"]
