"""The time that operations would take as one CUDA graph (spec §5.7)."""

from typing import Final

GRAPH_NODE_NS: Final = 500
"""The time that a CUDA graph takes per operation, in addition to the operation's duration. On five
real graphs the estimates were off by +10, +6, +14, -3 and -2 %."""
