"""What the analysis costs at scale, and how accurate it is."""
