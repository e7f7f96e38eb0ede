"""Which node asks, and what FleetLock makes of it: the plan of one node's reboot, and what its host has told.

Each host asks by the id that Zincati makes of its machine id; one list of nodes is kept fresh by a
watch.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime

from rollout.errors import ApiError, ApiNotFoundError
from rollout.execution.base.deadline import PatientApi, StopRequest
from rollout.execution.base.live_view import LiveView, watch_nodes
from rollout.gather.cluster.snapshot import read_node
from rollout.gather.hosts.identity import MACHINE_ID_FIX, ambiguous_machine_ids
from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, Node
from rollout.model.fleetlock import Slot, zincati_id
from rollout.model.host import NO_VERSION, Host, HostFacts, UpdateOperation, UpdateStatus
from rollout.model.plan import FORMAT_VERSION, PlannedNode, PlanSummary, RolloutPlan, Wave
from rollout.model.policy import Policy, Selection
from rollout.model.progress import Phase
from rollout.model.selectors import parse_selector
from rollout.model.text import is_version
from rollout.model.timestamps import whole_second
from rollout.planning.eligibility.candidates import excluded_by_name
from rollout.planning.eligibility.pools import pools_of
from rollout.ports import ClusterApi
from rollout.server.protocol import AnswerKind, Denied

_VERSION = re.compile(r"\d+(?:\.\d+)+[-+.\w]*")
_FOREVER = 10.0 * 365 * 24 * 3600
_AGAIN = 2.0
NOWHERE = ClusterIdentity("", "", "")
# What stands on a node whose host has not been granted its reboot.
UNGRANTED = ("", Phase.CORDONED, Phase.DRAINING, Phase.DRAINED)


def version_of(node: Node) -> str:
    """Return the version in the name of its OS image, else that name: all that a kubelet tells."""
    match = _VERSION.search(node.os_image)
    return match[0] if match else node.os_image


def select_nodes(nodes: Iterable[Node], selection: Selection) -> list[Node]:
    """Return the nodes that are meant, which percentages are of."""
    selector = parse_selector(selection.selector)
    return [
        node
        for node in nodes
        if selector.matches(node.labels)
        and (not selection.nodes or node.name in selection.nodes)
        and not excluded_by_name(node.name, selection)
    ]


def facts_of(node: Node) -> HostFacts:
    """Return what a host tells by asking: that it wants to reboot; into what, FLUO's agent may have told."""
    return HostFacts(
        host=Host(node.name, ""),
        update=UpdateStatus(UpdateOperation.NEED_REBOOT, new_version=staged_version_of(node)),
        os_id="",
        running_version=version_of(node),
        group="",
        boot_id=node.boot_id,
        machine_id=node.machine_id,
        locksmithd_active=False,
        may_reboot=True,
    )


def staged_version_of(node: Node) -> str:
    """Return what waits for a reboot as FLUO's agent has it on the Node; empty where that says nothing of it."""
    version = node.annotations.get(marks.FLUO_NEW_VERSION, "")
    is_staged = node.annotations.get(marks.FLUO_STATUS) == UpdateOperation.NEED_REBOOT
    return version if is_staged and version != NO_VERSION and is_version(version) else ""


def node_of(api: ClusterApi, slot: Slot) -> Node | None:
    """Return the Node that a slot was taken for; None where it was deleted, also where one of its name is there."""
    try:
        node = read_node(api, slot.node)
    except ApiNotFoundError:
        return None
    return node if node.uid == slot.node_uid else None


def plan_node(node: Node, slot: Slot, policy: Policy) -> PlannedNode:
    """Return the node as its slot has it: the boot and the version from before."""
    is_marked = node.annotations.get(marks.RUN) == slot.run
    cordoned = (
        node.annotations.get(marks.CORDONED_BY_US) != "true" if is_marked else node.unschedulable
    )
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
    node: Node,
    slot: Slot,
    selection: Selection,
    policy: Policy,
    now: datetime,
    cluster: ClusterIdentity = NOWHERE,
) -> RolloutPlan:
    """Return a plan of this node alone."""
    wave = Wave(
        1, (plan_node(node, slot, policy),), f"its host asked for a slot of the group {slot.group}"
    )
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


def name_of(asked_as: str, nodes: Iterable[Node]) -> str:
    """Return the node whose host asks by this id; `Denied` where there is none, or it could be any of several."""
    known = tuple(nodes)
    names = sorted(node.name for node in known if zincati_id(node.machine_id) == asked_as != "")
    if not names:
        why = "no Node has the machine id that this id is made of"
        causes = [ambiguity.cause for ambiguity in ambiguous_machine_ids(known)]
        raise Denied(
            AnswerKind.UNKNOWN_ID,
            "; ".join((why, *causes)) + (f". {MACHINE_ID_FIX}" if causes else ""),
        )
    if len(names) > 1:
        raise Denied(
            AnswerKind.DOUBLED_ID,
            f"several Nodes have this machine id: {', '.join(names)}. {MACHINE_ID_FIX}",
        )
    return names[0]


class Machines:
    """The nodes as a watch tells of them. `follow` keeps it going; before the first list nobody is known."""

    def __init__(self, cluster: PatientApi) -> None:
        self._cluster = cluster
        self._view: LiveView[Node] | None = None

    def follow(self, stop: StopRequest) -> None:
        """List and watch until `stop`; an API server that is away, or refuses, is asked again."""
        with ExitStack() as stack:
            while self._view is None and not stop.requested:
                view = watch_nodes(self._cluster, self._cluster.deadline(_FOREVER))
                try:
                    self._view = stack.enter_context(view)
                except ApiError as error:
                    self._cluster.notice(error)
                    self._cluster.clock.wait(stop, _AGAIN)
            self._cluster.clock.wait(stop, _FOREVER)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name; `Denied` before they are known."""
        if self._view is None:
            raise Denied(AnswerKind.API_UNAVAILABLE, "the nodes have not been read yet")
        return {node.name: node for node in self._view.items()}

    def name_of(self, asked_as: str) -> str:
        """Return the node whose host asks by this id; `Denied` where there is none, or more than one."""
        return name_of(asked_as, self.nodes.values())
