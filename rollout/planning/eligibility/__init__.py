"""Decide which nodes may start, and why the others may not."""
