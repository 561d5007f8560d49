"""Reports that were loaded before, as canonical frames, and pages that were printed before: kept
in the user's cache folder."""
