"""Forecast drains: which pods leave, what budgets allow, where pods fit, and what blocks them."""
