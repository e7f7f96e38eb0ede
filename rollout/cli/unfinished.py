"""What the commands have to do with a rollout that stands on the cluster unfinished: find it, refuse beside it."""

from collections.abc import Sequence

from rollout.cli.gathering import Connections, with_patience
from rollout.errors import BlockedError
from rollout.execution.recovery import Unfinished, assess, look
from rollout.execution.run_record import read_record
from rollout.model.cluster import Node
from rollout.report.unfinished import heading


def find_unfinished(connections: Connections, namespace: str) -> Unfinished | None:
    """What an interrupted rollout has left, or None."""
    return with_patience(lambda: look(connections.api, namespace))


def refuse_unfinished(connections: Connections, nodes: Sequence[Node], namespace: str) -> None:
    """`BlockedError` while another rollout is under way, or was interrupted."""
    found = assess(with_patience(lambda: read_record(connections.api, namespace)), nodes)
    if found is not None and found.blocks:
        raise BlockedError(
            heading(found),
            hint="If nobody is running it: `rollout resume` goes on with it, `rollout abort` undoes what it has begun.",
        )
