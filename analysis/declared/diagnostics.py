"""What the profiler's own messages mean. nsys says it in text alone."""

from typing import Final

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
