"""Deciding: pure functions over what was gathered, without clock, socket or randomness."""
