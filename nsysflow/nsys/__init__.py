"""nsys, the command line program of Nsight Systems: find it, build its argv, run it."""
