"""JSON documents of commands that print one object. Times are RFC 3339 in UTC.

The published schemas are made from these types, so no field may change.
"""

from collections.abc import Sequence
from typing import TypedDict

from rollout.gather.updates import CheckResult


class PauseReport(TypedDict):
    """A pause that was set."""

    all: bool
    nodes: Sequence[str]
    by: str
    at: str
    reason: str
    until: str


class UnpauseReport(TypedDict):
    """Pauses that were ended."""

    all: bool
    nodes: Sequence[str]
    unattended: bool


class HoldReport(TypedDict):
    """Versions that are held from now on."""

    versions: Sequence[str]
    by: str
    at: str


class ReleaseReport(TypedDict):
    """Holds and failures that were cleared."""

    versions: Sequence[str]
    nodes: Sequence[str]
    unknown: Sequence[str]
    reset: bool


class CheckReport(TypedDict):
    """The results of the checks for updates."""

    format_version: str
    hosts: Sequence[CheckResult]
