"""Traces of Perfetto, of torch.profiler's monitor, of rocprofv3, and our own."""
