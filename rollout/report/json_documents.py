"""Whole documents for programs."""

from collections.abc import Sequence

import msgspec

from rollout.planning.status import NodeStatus


def statuses_document(statuses: Sequence[NodeStatus]) -> bytes:
    """An array with one object a node."""
    return msgspec.json.format(msgspec.json.encode(statuses), indent=2)
