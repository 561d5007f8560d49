"""A folder for the front of PYTHONPATH, which brings our runtime into each Python of a program.

Python runs `sitecustomize.py` when it starts; `nsysflow_hook.py` waits there for torch, which
`nsysflow_annotate.py` then annotates. They are imported by their bare names, from this folder, by
whatever Python the program uses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
"""What `nsysflow profile` puts at the front of PYTHONPATH."""
