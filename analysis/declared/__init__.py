"""What there is: tables, causes and notes, each declared once. Imports no polars."""
