"""Findings for editors and code scanning: SARIF 2.1.0."""
