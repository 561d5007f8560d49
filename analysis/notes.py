"""What a reader should know about a report besides its numbers: our notes, and what the profiler
says of itself.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class NoteKind(StrEnum):
    """What a note is about. Code decides by the kind, never by the text."""

    NEWER_SCHEMA = "newer-schema"
    UNKNOWN_COLUMNS = "unknown-columns"
    NO_GPU_WORK = "no-gpu-work"
    NO_CALLS = "no-calls"
    NO_KERNELS = "no-kernels"
    NO_RANGES = "no-ranges"
    GRAPHS_TRACED_WHOLE = "graphs-traced-whole"
    BACKTRACES_NOT_EXPORTED = "backtraces-not-exported"
    OTHER_COUNTERS = "other-counters"
    NO_CORRELATION = "no-correlation"
    UNUSABLE_ROWS = "unusable-rows"
    NAMELESS_CALLS = "nameless-calls"
    NAMELESS_RANGES = "nameless-ranges"
    EVENTS_NOT_RECORDED = "events-not-recorded"
    CAPTURES_NOT_RECORDED = "captures-not-recorded"
    SEVERAL_THREADS = "several-threads"
    OTHER_RANKS = "other-ranks"
    COMMAND_BUFFERS = "command-buffers"
    SLOWED_GRAPHS = "slowed-graphs"
    RUN = "run"
    LEFT_OUT = "left-out"
    UNFIT_RANKS = "unfit-ranks"
    UNSOUND_FINDING = "unsound-finding"


@dataclass(frozen=True)
class Note:
    """One sentence for the reader.

    Attributes:
        kind: what it is about.
        text: the sentence, without its full stop.
    """

    kind: NoteKind
    text: str

    def __str__(self) -> str:
        return self.text


LOST_EVENTS: Final = (
    r"(?i)\b(?:lost|dropped|discarded)\b.*\bevents?\b|\bevents?\b.*\b(?:lost|dropped|discarded)\b"
)
"""Events were lost."""

MAYBE_LOST: Final = r"(?i)not all CUDA events might have been collected"
"""In healthy reports too; it counts only where launches lack operations."""

IMPORT_ERRORS: Final = (
    r"(?i)\bimport\w*\b.*\b(?:errors?|fail\w*|exception)\b"
    r"|\b(?:errors?|fail\w*|exception)\b.*\bimport\w*\b"
    r"|\bwrong event order\b|\bexterior index\b|\berrors? occurred while processing\b"
)
"""nsys could not read all of what it had recorded: `Importer error status: …`, `Wrong event order
has been detected`, `Cannot find string for an exterior index` (JAX's command buffers, nsys 2025.3).
"""
