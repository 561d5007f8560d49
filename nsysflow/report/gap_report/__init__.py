"""What does a review see? The idle time of a step by place and cause, so rounded that only a change
of the program changes a line (spec §21)."""
