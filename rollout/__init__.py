"""Reboot coordination for Flatcar / CoreOS hosts of Kubernetes clusters, from outside the cluster."""

__version__ = "0.1.0"
