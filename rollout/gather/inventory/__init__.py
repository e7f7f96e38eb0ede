"""Inventories read, and the Nodes as one."""
