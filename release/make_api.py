"""Write the pages of the Python API to api/, from docstrings and types. They need no network.

`make api` runs it. Public is what `nsysflow.__all__` names, with the methods of its classes.
"""

import sys
import warnings
from pathlib import Path
from typing import Final

import pdoc

import nsysflow

PAGES: Final = Path(__file__).parents[1] / "api"
TABLES: Final = "nsysflow.analysis.tables.index"
"""Declares each table of an `Analysis` as an attribute."""


def main() -> None:
    """Write the pages; a public name without a page ends it."""
    for name in nsysflow.__all__:  # pdoc takes only what is in the module already
        setattr(nsysflow, name, getattr(nsysflow, name))
    pdoc.render.configure(docformat="google", footer_text=f"nsysflow {nsysflow.__version__}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pdoc.pdoc("nsysflow", r"!nsysflow\..+", TABLES, output_directory=PAGES)
    sys.stdout.write(f"wrote {(PAGES / 'nsysflow.html').relative_to(Path.cwd())}\n")


if __name__ == "__main__":
    main()
