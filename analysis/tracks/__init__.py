"""The picture of a report: what lies on which lane of a timeline (spec §22)."""
