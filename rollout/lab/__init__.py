"""A simulated cluster over a real wire: an API server that clients cannot tell from a real one, and SSH hosts.

It is for rehearsal, for demonstration, and what the tests run against; nothing outside this package may
depend on how it works inside.
"""
