"""Who waits for whom in a recorded trace, and for how long."""
