"""Whole documents for programs."""

from collections.abc import Sequence

from rollout.model.json_text import json_document
from rollout.planning.status import NodeStatus


def statuses_document(statuses: Sequence[NodeStatus]) -> bytes:
    """An array with one object a node."""
    return json_document(statuses)
