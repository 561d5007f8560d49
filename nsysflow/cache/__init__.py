"""Reports that were loaded before, kept as canonical frames in the user's cache folder."""
