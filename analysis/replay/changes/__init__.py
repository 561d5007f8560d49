"""What a caller may change in a program, and what that does to it."""
