"""From a trace's rows to events in order: cleaned, numbered, sorted, launches joined."""
