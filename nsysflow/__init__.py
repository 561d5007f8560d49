"""nsysflow: where a GPU waits, why, and what to change."""

__version__ = "0.1.0"
