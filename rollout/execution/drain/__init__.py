"""How a node is emptied: evictions within the budgets, and what is told while they are waited for."""
