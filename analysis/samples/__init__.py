"""What the host was running while the GPU waited: Python samples and operators (spec §17)."""
