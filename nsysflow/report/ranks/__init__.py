"""What a reader sees of the ranks of a run: who holds whom up, and when."""
