"""What a reader sees of a comparison: sentences and blocks, as terminal, Markdown, JSON and CSV."""
