"""Warnings of users at the terminals of hosts that are to be rebooted: the reboot ends their sessions."""

from collections.abc import Iterable, Iterator, Mapping

from rollout.model.host import HostObservation, ProbeFailure
from rollout.model.plan import PlannedNode, PlanWarning, WarningKind
from rollout.model.quantity import Duration
from rollout.model.text import counted, shortened

_NAMED = 3


def login_warnings(
    planned: Iterable[PlannedNode], observations: Mapping[str, HostObservation], longest: Duration
) -> Iterator[PlanWarning]:
    """One for each of these nodes that has any; `longest` is how long they are waited for, 0 where they are not."""
    remedy = (
        f"waited for up to {longest} (reboot.wait-for-users)"
        if longest
        else "not waited for without reboot.wait-for-users"
    )
    for node in (node.name for node in planned):
        facts = observations.get(node)
        users = () if facts is None or isinstance(facts, ProbeFailure) else facts.users
        if users:
            names = shortened([str(user) for user in users], _NAMED)
            message = f"{counted(len(users), 'user')} logged in ({names}), {remedy}"
            yield PlanWarning(node, f"node/{node}", message, WarningKind.LOGGED_IN)
