"""The operator's own playbooks around a node's reboot: on a drained node before it, on a Ready one after it.

A playbook that fails before the reboot fails a node that works as it did: it is given back. One that fails after it
leaves a node that is not what its operator wants in service: it stays cordoned, and is reported. A run that is resumed
before the reboot runs the first again; they have to bear that.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol

from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure
from rollout.gather.cluster.snapshot import read_node
from rollout.gather.hosts.boot import BootFacts
from rollout.model.cluster import Node
from rollout.model.host import Host
from rollout.model.progress import Outcome, Phase
from rollout.planning.eligibility import is_control_plane

_ROLE = "node-role.kubernetes.io/"


class Occasion(StrEnum):
    """When a playbook runs; the words are those of `rollout_occasion`."""

    PRE_REBOOT = "pre-reboot"
    POST_REBOOT = "post-reboot"


class NodePlaybooks(Protocol):
    """Runs a playbook on one host."""

    def run(
        self,
        occasion: Occasion,
        host: Host,
        variables: Mapping[str, object],
        *,
        seconds: float,
        check: Callable[[], None],
        notice: Callable[[str], None],
    ) -> str:
        """Why it failed, empty where it passed, or there is none for this occasion; `notice` hears of each task.

        `check` is called again and again while it runs: what it raises ends the playbook, and is raised.
        """
        ...


def run_before_reboot(context: NodeContext, playbooks: NodePlaybooks | None) -> None:
    """Return once the playbook has passed on the drained node; `NodeFailure` where it has not."""
    _run(context, playbooks, Occasion.PRE_REBOOT, Phase.DRAINED, {})


def run_after_reboot(context: NodeContext, playbooks: NodePlaybooks | None, boot: BootFacts) -> None:
    """Do the same for a node that is Ready again."""
    now = {"rollout_boot_id": boot.boot_id, "rollout_running_version": boot.version}
    _run(context, playbooks, Occasion.POST_REBOOT, Phase.READY, now)


def _run(
    context: NodeContext,
    playbooks: NodePlaybooks | None,
    occasion: Occasion,
    phase: Phase,
    variables: Mapping[str, object],
) -> None:
    if playbooks is None:
        return
    node = context.cluster.ask(lambda api: read_node(api, context.name))
    host, timeout = context.host.host, context.policy.gates.hooks.timeout
    why = playbooks.run(
        occasion,
        host,
        {**_about(context, node), "rollout_occasion": occasion.value, **variables},
        seconds=timeout,
        check=context.guard.check,
        notice=lambda task: context.report.step(context.name, phase, f"{occasion} playbook: {task}"),
    )
    if why:
        raise NodeFailure(
            Outcome.CHECK_FAILED,
            f"the {occasion} playbook failed: {why}",
            hint=f"Run it by hand: ansible-playbook --limit {host.name} with -e rollout_node={context.name}",
        )


def _about(context: NodeContext, node: Node) -> Mapping[str, object]:
    """Return the node's facts, under the names that they have in the dynamic inventory."""
    return {
        "rollout_node": context.name,
        "rollout_run": context.task.rollout,
        "rollout_running_version": context.planned.running_version,
        "rollout_staged_version": context.planned.staged_version,
        "rollout_boot_id": context.planned.boot_id,
        "rollout_control_plane": is_control_plane(node, context.policy),
        "rollout_roles": sorted(label.removeprefix(_ROLE) for label in node.labels if label.startswith(_ROLE)),
        "rollout_zone": node.zone,
        "rollout_labels": dict(node.labels),
    }
