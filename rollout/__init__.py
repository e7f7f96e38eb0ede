"""Coordinates reboots of Flatcar and CoreOS hosts of Kubernetes clusters from outside."""

__version__ = "0.1.0"
