"""Every precondition, looked at."""
