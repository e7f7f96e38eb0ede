"""The transition table of a node's update.

The phase is written on the Node, so a crash leaves enough to continue. `draining` and `rebooting`
are written before they begin, the others once they are reached. A `pending` node may be marked
before its cordon. A `failed` one stays cordoned.

1. Only the edge `proven` leads to done, and only after `booted` and `ready`.
2. Only drained nodes are rebooted. The edge `taken-up-rebooting` is for hosts that have rebooted by
   themselves, and for hosts of failed nodes that do not respond; `granted` is for hosts that got
   their grant before the current drain.
3. A node that is not proven is `returned` (without cordon and marks) or has `failed`.
"""

from collections.abc import Mapping

from rollout.model.progress import Edge, Phase

TABLE: Mapping[Phase, Mapping[Edge, Phase]] = {
    Phase.PENDING: {
        Edge.CORDONED: Phase.CORDONED,
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.PENDING,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
    Phase.CORDONED: {
        Edge.DRAIN_STARTED: Phase.DRAINING,
        Edge.GRANTED_BEFORE_DRAIN: Phase.REBOOTING,
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.CORDONED,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
    Phase.DRAINING: {
        Edge.EVICTED: Phase.DRAINED,
        Edge.GRANTED_BEFORE_DRAIN: Phase.REBOOTING,
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.CORDONED,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
    Phase.DRAINED: {
        Edge.REBOOT_REQUESTED: Phase.REBOOTING,
        Edge.REFILLED: Phase.DRAINING,
        Edge.RESTAGED: Phase.DRAINED,
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.CORDONED,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
    Phase.REBOOTING: {
        Edge.BOOTED: Phase.BOOTED,
        Edge.REFILLED: Phase.DRAINING,
        Edge.RESTAGED: Phase.REBOOTING,
        Edge.RETURNED: Phase.PENDING,
        Edge.FAILED: Phase.FAILED,
        Edge.TAKEN_UP: Phase.REBOOTING,
    },
    Phase.BOOTED: {
        Edge.READY: Phase.READY,
        Edge.RETURNED: Phase.PENDING,
        Edge.FAILED: Phase.FAILED,
        Edge.TAKEN_UP: Phase.REBOOTING,
    },
    Phase.READY: {
        Edge.PROVEN: Phase.DONE,
        Edge.RETURNED: Phase.PENDING,
        Edge.FAILED: Phase.FAILED,
        Edge.TAKEN_UP: Phase.REBOOTING,
    },
    Phase.DONE: {},
    Phase.FAILED: {
        Edge.RETURNED: Phase.PENDING,
        Edge.TAKEN_UP: Phase.CORDONED,
        Edge.TAKEN_UP_UNCORDONED: Phase.PENDING,
        Edge.TAKEN_UP_REBOOTING: Phase.REBOOTING,
    },
}

BEFORE_REBOOT = frozenset({Phase.PENDING, Phase.CORDONED, Phase.DRAINING, Phase.DRAINED})
# These may be in another boot, which has to be proven.
AFTER_REBOOT = frozenset({Phase.REBOOTING, Phase.BOOTED, Phase.READY})
TAKEN_UP = frozenset({Edge.TAKEN_UP, Edge.TAKEN_UP_UNCORDONED, Edge.TAKEN_UP_REBOOTING})


def follow(phase: Phase, edge: Edge) -> Phase:
    require_edge(phase, edge)
    return TABLE[phase][edge]


def require_edge(phase: Phase, edge: Edge) -> None:
    """A move that is not in the table is a defect."""
    if edge not in TABLE[phase]:
        raise AssertionError(f"no edge {edge} starts at the phase {phase}")
