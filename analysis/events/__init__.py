"""What happened, in which order, and who waited for whom."""
