"""Whether a recording is fit to be judged (spec §12.2)."""
