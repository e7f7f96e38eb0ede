"""Make, explain, read, write, compare and continue plans."""
