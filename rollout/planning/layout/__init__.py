"""Group nodes into waves, or into parts that roll."""
