import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import ScenarioError
from rollout.lab.hosts.machine import HostSettings, ZincatiHost
from rollout.lab.scenario import HostOverride, HostSelection, NodeGroup, Role, Scenario

CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
_CONTROL_PLANE_TAINT: Final = {"key": CONTROL_PLANE_LABEL, "effect": "NoSchedule"}


class HostPlan(Struct, frozen=True):
    name: str
    role: Role
    settings: HostSettings


def with_fleetlock(scenario: Scenario, base_url: str) -> Scenario:
    """All hosts get Zincati if none has it."""
    hosts = scenario.hosts
    if all(group.zincati is None for group in (*scenario.nodes, *scenario.hosts)):
        hosts = (*hosts, HostOverride(select=HostSelection(), zincati=ZincatiHost()))
    return msgspec.structs.replace(scenario, fleetlock=base_url, hosts=hosts)


def scale(scenario: Scenario, nodes: int) -> Scenario:
    """Scale the groups of workers to this number of nodes in all.

    The control plane shrinks to one node if it would be more than half of the cluster.
    """
    masters = sum(group.count for group in scenario.nodes if group.role is Role.CONTROL_PLANE)
    if nodes < 2 * masters:
        masters = min(1, nodes - 1)
    counts = {
        **_share(scenario, Role.CONTROL_PLANE, masters),
        **_share(scenario, Role.WORKER, nodes - masters),
    }
    groups = [
        msgspec.structs.replace(group, count=counts[group.prefix]) for group in scenario.nodes
    ]
    return msgspec.structs.replace(scenario, nodes=tuple(groups))


def _share(scenario: Scenario, role: Role, nodes: int) -> dict[str, int]:
    groups = [group for group in scenario.nodes if group.role is role]
    weight = sum(group.count for group in groups)
    counts = {}
    for group in groups:
        counts[group.prefix] = math.ceil(nodes * group.count / weight) if weight else 0
        nodes -= counts[group.prefix]
        weight -= group.count
    return counts


def plan_hosts(scenario: Scenario) -> tuple[HostPlan, ...]:
    drafts = [_draft(group, index) for group in scenario.nodes for index in range(group.count)]
    for override in scenario.hosts:
        if not any(_matches(draft, override.select) for draft in drafts):
            selection = msgspec.json.encode(override.select).decode()
            raise ScenarioError(
                f"{scenario.name}: an override selects none of the {len(drafts)} hosts:"
                f" {selection}",
                hint="Use more nodes.",
            )
        drafts = [_override(draft, override) for draft in drafts]
    return tuple(drafts)


def _draft(group: NodeGroup, index: int) -> HostPlan:
    labels = dict[str, str]()
    taints = group.taints
    if group.zones:
        zone = group.zones[index % len(group.zones)]
        labels[ZONE_LABEL] = zone
        labels["topology.kubernetes.io/region"] = zone.rpartition("-")[0] or zone
    if group.role is Role.CONTROL_PLANE:
        labels[CONTROL_PLANE_LABEL] = ""
        taints = (_CONTROL_PLANE_TAINT,) if taints is None else taints
    settings = msgspec.structs.replace(group, labels={**labels, **group.labels}, taints=taints)
    return HostPlan(f"{group.prefix}-{index + 1}", group.role, settings)


def _matches(draft: HostPlan, selection: HostSelection) -> bool:
    return (
        (not selection.names or draft.name in selection.names)
        and selection.role in (None, draft.role)
        and selection.zone in (None, draft.settings.labels.get(ZONE_LABEL))
    )


def _override(draft: HostPlan, override: HostOverride) -> HostPlan:
    """Mappings are merged, other set fields replaced."""
    if not _matches(draft, override.select):
        return draft
    changes: dict[str, Any] = {}
    for name in HostSettings.__struct_fields__:
        before = getattr(draft.settings, name)
        value = getattr(override, name)
        if isinstance(before, Mapping):
            changes[name] = {**before, **value}
        elif value is not None:
            changes[name] = value
    return replace(draft, settings=msgspec.structs.replace(draft.settings, **changes))
