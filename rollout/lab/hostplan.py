"""From a scenario's groups and overrides to one complete description per host. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from rollout.errors import ScenarioError
from rollout.lab.hosts.machine import HostSettings, ZincatiHost
from rollout.lab.scenario import HostOverride, HostSelection, NodeGroup, Role, Scenario

CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
_CONTROL_PLANE_TAINT: Final = {"key": CONTROL_PLANE_LABEL, "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One host before it exists: what its group and the overrides say of it."""

    name: str
    role: Role
    settings: HostSettings


def with_fleetlock(scenario: Scenario, base_url: str) -> Scenario:
    """Return the scenario with that server for its hosts to ask; where none of them has Zincati, all get it."""
    has_zincati = any(group.zincati is not None for group in (*scenario.nodes, *scenario.hosts))
    everywhere = (
        () if has_zincati else (HostOverride(select=HostSelection(), zincati=ZincatiHost()),)
    )
    return msgspec.structs.replace(
        scenario, fleetlock=base_url, hosts=(*scenario.hosts, *everywhere)
    )


def scale(scenario: Scenario, nodes: int) -> Scenario:
    """Return the scenario with that many nodes in all: workers make the difference, in proportion to their groups.

    A control plane that would be half of the cluster or more shrinks to one node, and a cluster of
    one node is a worker: something has to be left to run workloads.
    """
    masters = sum(group.count for group in scenario.nodes if group.role is Role.CONTROL_PLANE)
    kept = masters if nodes >= 2 * masters else min(1, nodes - 1)
    counts: dict[str, int] = {}
    for role, left in ((Role.CONTROL_PLANE, kept), (Role.WORKER, nodes - kept)):
        groups = [group for group in scenario.nodes if group.role is role]
        weight = sum(group.count for group in groups)
        for group in groups:
            # each its share of what is left, rounded up
            counts[group.prefix] = -(-left * group.count // weight) if weight else 0
            left = left - counts[group.prefix]  # noqa: PLW2901
            weight = weight - group.count
    resized = tuple(
        msgspec.structs.replace(group, count=counts[group.prefix]) for group in scenario.nodes
    )
    return msgspec.structs.replace(scenario, nodes=resized)


def plan_hosts(scenario: Scenario) -> tuple[HostPlan, ...]:
    """Return the scenario's hosts in the order of its groups; raises ScenarioError."""
    drafts = [_draft(group, index) for group in scenario.nodes for index in range(group.count)]
    for override in scenario.hosts:
        chosen = frozenset(draft.name for draft in drafts if _matches(draft, override.select))
        if not chosen:
            asked = msgspec.json.encode(override.select).decode()
            raise ScenarioError(
                f"{scenario.name}: an override selects none of the {len(drafts)} hosts: {asked}",
                hint="ask for more nodes",
            )
        drafts = [
            _overridden(draft, override) if draft.name in chosen else draft for draft in drafts
        ]
    return tuple(drafts)


def _draft(group: NodeGroup, index: int) -> HostPlan:
    labels = dict[str, str]()
    taints = group.taints
    if group.zones:
        zone = group.zones[index % len(group.zones)]
        labels |= {
            ZONE_LABEL: zone,
            "topology.kubernetes.io/region": zone.rpartition("-")[0] or zone,
        }
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


def _overridden(draft: HostPlan, override: HostOverride) -> HostPlan:
    merged = {
        name: _merge(name, draft.settings, override) for name in HostSettings.__struct_fields__
    }
    return replace(draft, settings=msgspec.structs.replace(draft.settings, **merged))


def _merge(name: str, below: HostSettings, above: HostSettings) -> Any:
    """Merge a field: mappings grow, anything else is replaced where the override says something."""
    lower = getattr(below, name)
    upper = getattr(above, name)
    if isinstance(lower, Mapping):
        return {**lower, **upper}
    return lower if upper is None else upper
