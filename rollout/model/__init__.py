"""Frozen values that the stages hand to one another. No I/O, no clock, no decisions."""
