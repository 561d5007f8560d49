"""What a profiled program imports. It imports nothing else of nsysflow."""
