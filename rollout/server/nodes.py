"""What FleetLock makes of a Node: the plan of one node's reboot, and what its host's asking tells of it."""

import re
import secrets
from collections.abc import Iterable
from datetime import datetime

from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, Node
from rollout.model.fleetlock import RUN_PREFIX, Slot
from rollout.model.host import NO_VERSION, Host, HostFacts, UpdateOperation, UpdateStatus
from rollout.model.names import is_version
from rollout.model.plan import FORMAT_VERSION, PlannedNode, PlanSummary, RolloutPlan, Wave
from rollout.model.policy import Policy, Selection
from rollout.planning.eligibility import excluded_by_name
from rollout.planning.pools import pools_of
from rollout.planning.selector import parse_selector

_VERSION = re.compile(r"\d+(?:\.\d+)+[-+.\w]*")


def new_run() -> str:
    """An id for one node's way through a reboot."""
    return f"{RUN_PREFIX}{secrets.token_hex(6)}"


def version_of(node: Node) -> str:
    """The version in the name of its OS image, else that name: all that a kubelet tells."""
    match = _VERSION.search(node.os_image)
    return match[0] if match else node.os_image


def selected(nodes: Iterable[Node], selection: Selection) -> tuple[Node, ...]:
    """The nodes that are meant, which percentages are of."""
    selector = parse_selector(selection.selector)
    return tuple(
        node
        for node in nodes
        if selector.matches(node.labels)
        and (not selection.nodes or node.name in selection.nodes)
        and not excluded_by_name(node.name, selection)
    )


def facts_of(node: Node) -> HostFacts:
    """What a host tells by asking: that it is there, and wants to reboot; into what, FLUO's agent may have told."""
    return HostFacts(
        host=Host(node.name, ""),
        update=UpdateStatus(UpdateOperation.NEED_REBOOT, new_version=staged_on(node)),
        os_id="",
        running_version=version_of(node),
        group="",
        boot_id=node.boot_id,
        machine_id=node.machine_id,
        locksmithd_active=False,
        may_reboot=True,
    )


def staged_on(node: Node) -> str:
    """What waits for a reboot as FLUO's agent has it on the Node; empty where that says nothing of it."""
    version = node.annotations.get(marks.FLUO_NEW_VERSION, "")
    is_staged = node.annotations.get(marks.FLUO_STATUS) == UpdateOperation.NEED_REBOOT
    return version if is_staged and version != NO_VERSION and is_version(version) else ""


def planned(node: Node, slot: Slot, policy: Policy) -> PlannedNode:
    """The node as its slot has it: the boot and the version from before."""
    is_marked = node.annotations.get(marks.RUN) == slot.run
    cordoned = node.annotations.get(marks.CORDONED_BY_US) != "true" if is_marked else node.unschedulable
    return PlannedNode(
        name=node.name,
        boot_id=slot.boot_id,
        node_uid=slot.node_uid,
        running_version=slot.version,
        staged_version="",
        evict=0,
        leave=0,
        cordoned=cordoned,
        # a host that was installed anew since is another machine, and proves nothing of this one
        machine_id=(node.annotations.get(marks.MACHINE_ID) if is_marked else "") or node.machine_id,
        pool=pools_of(policy).of(node.labels),
    )


def plan_of(
    node: PlannedNode, slot: Slot, cluster: ClusterIdentity, selection: Selection, policy: Policy, now: datetime
) -> RolloutPlan:
    """A plan of this node alone."""
    wave = Wave(1, (node,), f"its host asked for a slot of the group {slot.group}")
    return RolloutPlan(
        format_version=FORMAT_VERSION,
        plan_id=slot.run,
        created_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        cluster=cluster,
        selection=selection,
        policy=policy,
        waves=(wave,),
        excluded=(),
        blockers=(),
        warnings=(),
        summary=PlanSummary(1, 1, 1),
    )
