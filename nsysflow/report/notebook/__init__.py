"""What a notebook shows of a run: the verdict, what to change, and two small pictures."""
