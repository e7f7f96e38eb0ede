"""What people and programs read: tables, progress, JSON lines, the summary.

Everything here only formats. Text that came from the cluster or from hosts passes `text.printable`
before it reaches a terminal.
"""
