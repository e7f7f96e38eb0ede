"""Formats what people and programs read.

Text from the cluster or hosts must pass `text.printable` before it reaches a terminal.
"""
