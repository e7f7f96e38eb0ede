"""Reaches hosts through ansible-runner."""
