"""Where is the work of each report done? In threads, in processes here, or on a cluster."""
