"""How much of the GPU is used: sampled counters, and FLOPs."""
