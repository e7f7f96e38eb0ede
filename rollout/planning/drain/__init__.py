"""What a drain meets: which pods leave, what their budgets allow, where they find room, and what blocks it."""
