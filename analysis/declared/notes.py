"""What a reader should know about a report besides its numbers: one note, one sentence."""

from dataclasses import dataclass
from enum import StrEnum


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
