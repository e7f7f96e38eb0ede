"""The lab's Kubernetes API server.

What a client sees here was held against recordings of a real server. What happens *because* of an
object (pods that start, budgets that follow, nodes that go NotReady) is the world's business, not
this package's.
"""
