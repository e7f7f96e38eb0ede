"""The lab's Kubernetes API server.

What happens because of an object belongs to the package `world`.
"""
