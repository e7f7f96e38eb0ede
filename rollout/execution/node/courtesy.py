"""What a node waits for because people asked for it: delays, logged-in users, load balancers.

Delays and users are nobody's work: whoever stops the rollout meanwhile gets the node back at once, whatever
`waves.stop` says. A process that takes the node up again does not know how much of a wait had passed, and waits anew.
"""

from collections.abc import Sequence

from rollout.errors import SshError
from rollout.execution.base.deadline import Deadline
from rollout.execution.node.context import NodeContext
from rollout.execution.node.host import SSH_SECONDS
from rollout.execution.node.marking import is_excluded_by_us
from rollout.execution.node.transitions import GivenUpError
from rollout.gather.hosts.answer import complaint
from rollout.gather.hosts.users import WALL_COMMAND, WHO_COMMAND, parse_users
from rollout.model.cluster import Node
from rollout.model.host import LoggedInUser
from rollout.model.progress import Phase
from rollout.model.quantity import Duration
from rollout.model.replaced import replaced_on
from rollout.model.text import shortened
from rollout.planning.eligibility.selector import node_labels

_TICK = 0.5
_LOOK_SECONDS = 5.0
_NAMED = 5
_Users = tuple[LoggedInUser, ...]


def delay_drain(context: NodeContext) -> None:
    """Return after drain.delay.

    Raises:
        GivenUpError: the rollout is to stop.
        NodeFailure: the maintenance window has closed meanwhile.
        FencedError: this process may not act any more.
    """
    if delay := context.policy.courtesy.drain_delay:
        _delay(context, delay, Phase.CORDONED, f"waiting {delay} before its drain (drain.delay)")
        context.gates.after_waiting(context, "while its drain was delayed")


def delay_reboot(context: NodeContext) -> None:
    """Return once nobody is logged in, or is waited for any longer, and after reboot.delay; raises the same."""
    courtesy = context.policy.courtesy
    if courtesy.wait_for_users or courtesy.wall:
        _await_users(context)
    if delay := courtesy.reboot_delay:
        _delay(context, delay, Phase.DRAINED, f"waiting {delay} before its reboot (reboot.delay)")
        context.gates.after_waiting(context, "while its reboot was delayed")


def report_replaced(context: NodeContext, before: Node, phase: Phase, labels: Sequence[str]) -> None:
    """Tell which values of others' on the Node, as it was before, these labels have taken the place of."""
    ours = replaced_on(before).labels
    replaced = [
        f"{name}={before.labels[name]} is {name}={value} now"
        for name, value in node_labels(labels).items()
        if before.labels.get(name, value) != value and name not in ours
    ]
    if replaced:
        context.report.step(context.name, phase, f"label {shortened(replaced, _NAMED)}")


def _delay(context: NodeContext, delay: Duration, phase: Phase, detail: str) -> None:
    context.report.step(context.name, phase, detail)
    _pause(context, context.cluster.deadline(delay))


def _pause(context: NodeContext, deadline: Deadline) -> None:
    """Return at the deadline, unless the wait is called off before."""
    while not deadline.expired:
        context.guard.check()
        if context.stop.requested:
            raise GivenUpError(context.stop.why)
        deadline.pause(_TICK)


def _await_users(context: NodeContext) -> None:
    courtesy, has_waited = context.policy.courtesy, False
    deadline = context.cluster.deadline(courtesy.wait_for_users)
    users, unknown = _look(context)
    if courtesy.wall and (users or unknown):
        _tell(context)
    while (users or unknown) and courtesy.wait_for_users:
        names = shortened([str(user) for user in users], _NAMED)
        if deadline.expired:
            state = f"{names} still logged in" if users else unknown
            _report(context, f"going on after reboot.wait-for-users {courtesy.wait_for_users}: {state}")
            break
        _report(context, f"waiting for {names} to log out, {courtesy.wait_for_users} at most" if users else unknown)
        has_waited = True
        _pause(context, context.cluster.deadline(min(_LOOK_SECONDS, deadline.remaining)))
        users, unknown = _look(context)
    if has_waited:
        context.gates.after_waiting(context, "while users were waited for")


def _look(context: NodeContext) -> tuple[_Users, str]:
    """Who is logged in; or nobody, and why that may not be so. A host that cannot tell is not waited for."""
    try:
        users = parse_users(context.host.run(WHO_COMMAND, timeout=SSH_SECONDS))
    except SshError as error:
        return (), f"who is logged in cannot be asked: {error}"
    if users is None:
        _report(context, "who is logged in is not known: the host has no working `who`")
    return users or (), ""


def _tell(context: NodeContext) -> None:
    """Have the users told; that they could not be is told, and changes nothing else."""
    try:
        result = context.host.run(WALL_COMMAND, timeout=SSH_SECONDS)
    except SshError as error:
        _report(context, f"its users could not be told (wall): {error}")
        return
    if result.exit_status != 0:
        _report(context, f"its users could not be told (wall): {complaint(result.stderr) or result.exit_status}")
    else:
        _report(context, "its users have been told (wall)")


def _report(context: NodeContext, detail: str) -> None:
    context.report.step(context.name, Phase.DRAINED, detail)


def await_exclusion(context: NodeContext) -> None:
    """Return after drain.exclude-from-load-balancers, at once where the node was excluded before us.

    Raises:
        GivenUpError: the node is to be given back meanwhile.
        FencedError: this process may not act any more.
    """
    wanted = context.policy.exclude_from_load_balancers
    if not wanted or not is_excluded_by_us(context.task):
        return
    context.report.step(context.name, Phase.CORDONED, f"waiting {wanted} for load balancers to leave the node out")
    deadline = context.cluster.deadline(wanted)
    while not deadline.expired:
        context.guard.check()
        deadline.pause(_TICK)
