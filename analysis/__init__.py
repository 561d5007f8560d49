"""Reports in, frames out, numbers from frames. Imports no torch."""
