"""The lab's Kubernetes API server.

Its answers are compared with recordings of a real server. What happens because of an object, such
as pods that start or nodes that turn NotReady, belongs to the package `world`.
"""
