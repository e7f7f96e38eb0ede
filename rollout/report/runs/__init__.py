"""The report of one run, from its journal."""
