"""The lab's Kubernetes API server.

What happens because of an object, such as pods that start, belongs to the package `world`.
"""
