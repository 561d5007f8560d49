"""Figures for papers and code reviews, a module each; they need `nsysflow[figures]`."""
