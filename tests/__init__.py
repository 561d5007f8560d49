"""The tests; a package, so that they can share their twin and their traces."""
