"""What coding agents use: the tools, their server, and the guide."""
