"""The tables, one module each: a view in, a frame out."""
