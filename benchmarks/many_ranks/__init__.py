"""Runs of many ranks, made from one real report, with delays whose cost is known."""
