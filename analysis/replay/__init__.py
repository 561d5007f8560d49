"""What would a change to the program save? The trace is replayed with it."""
