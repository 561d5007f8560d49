"""From the tables of an nsys export to canonical frames."""
