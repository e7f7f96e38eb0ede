"""What earlier rollouts have left to remember, for people: held versions, nodes that failed, a pause of all."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rollout.model.memory import Memory
from rollout.model.text import printable, shell_word, shortened
from rollout.planning.memory import trouble, why_aborted, why_held
from rollout.planning.status import NodeStatus

_MOST_NODES = 10


def memory_lines(memory: Memory, statuses: Sequence[NodeStatus], now: datetime | None) -> Iterator[str]:
    """A line for each thing that holds nodes back, with what ends it; nothing where nothing does."""
    if memory.pause is not None and not memory.pause.is_over(now):
        yield f"All nodes are {printable(str(memory.pause))}. End it: rollout unpause --all"
    if why := why_aborted(memory):
        yield f"No unattended pass begins anything: {printable(why)}"
    for version in memory.versions:
        if why := why_held(memory, version):
            staged = sum(status.staged_version == version for status in statuses)
            yield f"{printable(why)}; staged on {staged} of these. Release it: rollout release {shell_word(version)}"
    resting = [status for status in statuses if status.retry_after]
    for status in resting[:_MOST_NODES]:
        why = printable(trouble(memory.nodes[status.node]))
        yield f"{printable(status.node)} {why}: rollout operate tries it again after {status.retry_after}"
    if len(resting) > _MOST_NODES:
        yield f"Failed a short while ago, too: {shortened([status.node for status in resting[_MOST_NODES:]])}"
