"""Flags, each declared once: groups that commands take, and how a value is read."""
