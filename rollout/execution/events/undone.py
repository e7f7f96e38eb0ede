"""What an abort makes of a node, as a Kubernetes Event on it: for whoever wonders why it was cordoned, or still is.

The words are those of a rollout: a node that is given back was `GivenBack` by whoever stopped it.
"""

from datetime import datetime

from rollout.errors import RolloutError
from rollout.execution.base.reporting import Reporter
from rollout.execution.events.phases import CLOSING_SECONDS, ENDS, FAILED
from rollout.execution.events.writer import EventWriter, NodeNote
from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult, Outcome
from rollout.ports import ClusterApi


def undone_events(api: ClusterApi, run: str, report: Reporter) -> EventWriter:
    """What writes them, for the nodes of one run; that it cannot is told once, and keeps nothing from being undone."""

    def refused(error: RolloutError) -> None:
        report.notice(f"Events about this abort cannot be written: {error.message}")

    return EventWriter(api, run, report.clock, closing_seconds=CLOSING_SECONDS, refused=refused)


def undone_note(node: PlannedNode, result: NodeResult, run: str, at: datetime) -> NodeNote:
    """The Event of one node: of a node that is left as it is, a warning."""
    is_left = result.left_cordoned
    reason = FAILED if is_left else ENDS[Outcome.ABORTED]
    message = f"{_left(result) if is_left else _given_back(node, result)} (rollout {run})"
    return NodeNote(node.name, node.node_uid, f"{node.name}/{reason}", reason, message, at, at, warning=is_left)


def _left(result: NodeResult) -> str:
    return f"Not undone by rollout abort in phase {result.phase}: {result.message}; it was left as it is"


def _given_back(node: PlannedNode, result: NodeResult) -> str:
    cordon = "it was cordoned before, and stays so" if node.cordoned else "it is uncordoned"
    return f"Undone by rollout abort in phase {result.phase}; {cordon}"
