"""Forecast drains."""
