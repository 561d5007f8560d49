"""Run docs/library.ipynb and store what its cells print.

    python docs/run_notebook.py

A test fails when the file is behind. What differs from machine to machine is not stored.
"""

import sys
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

NOTEBOOK: Final = Path(__file__).with_name("library.ipynb")

_SECONDS: Final = 120
"""So long a cell may take, on a slow machine too."""


def executed(file: Path = NOTEBOOK) -> Any:  # nbformat has no types
    """The notebook, with what its cells give now.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook,
        timeout=_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": file.parent}},
    )
    client.execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.metadata = {}
        cell.id = f"cell{number}"
    return notebook


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else NOTEBOOK
    text = nbformat.writes(executed())  # type: ignore[no-untyped-call]
    target.write_text(f"{text}\n", encoding="utf-8")
