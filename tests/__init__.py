"""The tests; a package, so that they can share their oracle and their traces."""
