"""What part of a timeline is looked at."""
