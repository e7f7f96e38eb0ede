"""Drains a node within the disruption budgets."""
