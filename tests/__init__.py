"""The tests. They are a package to share the oracle and traces."""
