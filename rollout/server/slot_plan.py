"""Makes the plan of a slot: one node, whose host asks by itself and is never probed."""

from datetime import datetime

from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, Node
from rollout.model.fleetlock import Slot
from rollout.model.host import Host, HostFacts, UpdateOperation, UpdateStatus
from rollout.model.node_marks import announced_version
from rollout.model.plan import FORMAT_VERSION, PlannedNode, PlanSummary, RolloutPlan, Wave
from rollout.model.policy import Policy, Selection
from rollout.model.timestamps import whole_second
from rollout.planning.eligibility.pools import pools_of
from rollout.server.nodes import version_of

NOWHERE = ClusterIdentity("", "", "")


def facts_of(node: Node) -> HostFacts:
    return HostFacts(
        host=Host(node.name, ""),
        update=UpdateStatus(UpdateOperation.NEED_REBOOT, new_version=announced_version(node)),
        os_id="",
        running_version=version_of(node),
        group="",
        boot_id=node.boot_id,
        machine_id=node.machine_id,
        locksmithd_active=False,
        may_reboot=True,
    )


def plan_node(node: Node, slot: Slot, policy: Policy) -> PlannedNode:
    cordoned = node.unschedulable
    machine_id = node.machine_id
    if node.annotations.get(marks.RUN) == slot.run:
        cordoned = node.annotations.get(marks.CORDONED_BY_US) != "true"
        # A host that was reinstalled since is another machine, and proves nothing about this one.
        machine_id = node.annotations.get(marks.MACHINE_ID) or node.machine_id
    return PlannedNode(
        name=node.name,
        boot_id=slot.boot_id,
        node_uid=slot.node_uid,
        running_version=slot.version,
        staged_version="",
        evict=0,
        leave=0,
        cordoned=cordoned,
        machine_id=machine_id,
        pool=pools_of(policy).of(node.labels),
    )


def plan_of(
    node: Node,
    slot: Slot,
    selection: Selection,
    policy: Policy,
    now: datetime,
    cluster: ClusterIdentity = NOWHERE,
) -> RolloutPlan:
    reason = f"its host asked for a slot of the group {slot.group}"
    wave = Wave(1, (plan_node(node, slot, policy),), reason)
    return RolloutPlan(
        format_version=FORMAT_VERSION,
        plan_id=slot.run,
        created_at=whole_second(now),
        cluster=cluster,
        selection=selection,
        policy=policy,
        waves=(wave,),
        excluded=(),
        blockers=(),
        warnings=(),
        summary=PlanSummary(1, 1, 1),
    )
