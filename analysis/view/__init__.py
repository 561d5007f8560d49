"""The part of a timeline that is selected."""
