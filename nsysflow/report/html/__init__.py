"""report.html: the run as one file for a browser, which needs nothing else."""
