"""nsys exports as SQLite files: read, and copied without what is private."""
