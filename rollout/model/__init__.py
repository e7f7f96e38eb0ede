"""Frozen values that the stages exchange, without I/O."""
