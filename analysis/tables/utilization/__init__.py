"""How much of what a GPU can do is used: sampled counters, and FLOPs."""
