"""rocpd databases, which rocprofv3 writes."""
