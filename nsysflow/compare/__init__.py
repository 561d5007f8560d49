"""Did it change, and why? Pure functions on captures; nothing here needs polars."""
