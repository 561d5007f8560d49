"""How is a report analysed that does not fit into memory? In partitions by time."""
