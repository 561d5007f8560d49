"""The idle flame graph: what Python ran while the GPU waited, as a picture and for speedscope."""
