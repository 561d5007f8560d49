"""What do coding agents use? Tools that read reports, and a guide."""
