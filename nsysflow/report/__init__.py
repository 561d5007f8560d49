"""What people and programs read: the terminal page, summary.md, the tables and report.json."""
