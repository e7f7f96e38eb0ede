"""Deciding. Pure functions over what was gathered: no clock, no socket, no random number."""
