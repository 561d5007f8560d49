"""What the workloads share: how they are configured and run, and the work they have in common."""
