"""Drains a node within the disruption budgets, and reports what the drain waits for."""
