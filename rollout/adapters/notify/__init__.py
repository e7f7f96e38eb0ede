"""Sending notifications: where to, how, and that nobody waits for it."""
