"""Kubernetes Events that rollouts have written about Nodes: what the annotations have no room for."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from rollout.gather.cluster import wire
from rollout.gather.cluster.listing import Listing, read_list
from rollout.model.memory import moment
from rollout.ports import ClusterApi

# Events of objects without a namespace stand in this one.
EVENTS = "/api/v1/namespaces/default/events"
COMPONENT = "node-rollout"
OURS = {"fieldSelector": f"source={COMPONENT}"}


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """What was told of a Node: by which run, under which reason, and last when, by the clock of whoever told it."""

    uid: str
    run: str
    node: str
    reason: str
    message: str
    at: datetime | None


class _Object(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class WireEvent(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """As it comes; `reporting_instance` is the run."""

    metadata: wire.Meta = wire.Meta()
    involved_object: _Object = _Object()
    reason: str | None = None
    message: str | None = None
    reporting_instance: str | None = None
    last_timestamp: str | None = None


def node_event(read: WireEvent) -> NodeEvent:
    """An Event about a Node."""
    return NodeEvent(
        uid=read.metadata.uid or "",
        run=read.reporting_instance or "",
        node=read.involved_object.name,
        reason=read.reason or "",
        message=read.message or "",
        at=moment(read.last_timestamp or ""),
    )


def read_node_events(api: ClusterApi) -> Listing[NodeEvent]:
    """All that rollouts have told and the server has not forgotten yet, which takes it an hour; `ApiError`."""
    return read_list(api, EVENTS, WireEvent, node_event, OURS)
