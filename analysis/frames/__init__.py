"""Frames of any kind: intervals, look-ups, statistics, and work on all cores."""
