"""Freezes from iCalendar files (RFC 5545)."""
