"""A FleetLock server: hosts that reboot by themselves ask it, and it drains their nodes.

Every replica answers hosts. Only the holder of the Lease drains and uncordons.
"""
