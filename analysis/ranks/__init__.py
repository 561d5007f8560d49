"""The ranks of a run: which hold the others up, in which group, and why (spec §9)."""
