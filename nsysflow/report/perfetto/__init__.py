"""The whole trace for ui.perfetto.dev and trace_processor."""
