"""A whole trace as a timeline, and the part of it that is selected or judged."""
