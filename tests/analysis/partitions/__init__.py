"""A report in partitions has the figures of the whole."""
