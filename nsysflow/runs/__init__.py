"""A run's folder: what is in it, how its reports are analysed, and what is written."""
