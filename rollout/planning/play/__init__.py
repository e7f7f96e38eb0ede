"""Simulate the rollout in time, at the pace of past runs."""
